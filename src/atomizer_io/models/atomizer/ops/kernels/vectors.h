/* Short vectors, small matrix products and the functions of the network that need them, for float and double.

   Compiled once per precision with -DREAL=float or -DREAL=double. The float functions are accurate to a few units in the
   last place; the double ones call the C library, so that tests can compare to 1e-9. */

#ifndef ATOMIZER_VECTORS_H
#define ATOMIZER_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#ifndef VECTOR_BYTES
#ifdef __AVX512F__
#define VECTOR_BYTES 64
#else
#define VECTOR_BYTES 32
#endif
#endif

typedef REAL real;
#define LANES ((int)(VECTOR_BYTES / sizeof(real)))
#define INLINE static inline __attribute__((always_inline))

/* Sizes of the working spaces. */
enum { MAX_HEADS = 32, MAX_FEATURES = 256, MAX_NEIGHBORS = 64 };

/* What a kernel returns; added up over the threads. */
enum { DONE = 0, NO_MEMORY = 1, BAD_INDEX = 2 };

/* Define what a library says of itself, which layout.py compares with what it expects: the meaning of the structures as a
   number, sizes, and the sizes of the structures given. And two functions that say how it was compiled. */
#define ABI 4
#define FACTS(...)                                                                                               \
    int64_t fact(int i) {                                                                                        \
        static const int64_t facts[] = {ABI, sizeof(real), MAX_HEADS, MAX_FEATURES, MAX_NEIGHBORS, __VA_ARGS__}; \
        return i < (int)(sizeof facts / sizeof *facts) ? facts[i] : -1;                                          \
    }                                                                                                            \
    int lanes(void) { return LANES; }                                                                            \
    int openmp(void) { return WITH_OPENMP; }

#ifdef _OPENMP
#define WITH_OPENMP 1
#else
#define WITH_OPENMP 0
#endif

/* Whether 0 <= index < count. */
#define WITHIN(index, count) ((uint64_t)(int64_t)(index) < (uint64_t)(count))

/* A vector at any address. */
typedef real vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));

INLINE vec load(const real *p) { return *(const vec *)p; }
INLINE void store(real *p, vec v) { *(vec *)p = v; }
INLINE vec all(real x) { return (vec){0} + x; }

/* The sum of all lanes, by halves; a loop over lanes in memory takes three times as long. */
INLINE real sum_lanes(vec v) {
#if VECTOR_BYTES == 64
    typedef real half __attribute__((vector_size(32)));
    union { vec whole; half part[2]; } split = {v};
    half w = split.part[0] + split.part[1];
#else
    vec w = v;
#endif
    typedef real quad __attribute__((vector_size(16)));
    union { typeof(w) whole; quad part[2]; } rest = {w};
    quad x = rest.part[0] + rest.part[1];
#ifdef IS_DOUBLE
    return x[0] + x[1];
#else
    return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

/* exp(x) for x <= 0, and the normal distribution's Phi(x), lane by lane. */
#if defined(IS_DOUBLE)

INLINE vec exp_negative(vec x) {
    for (int i = 0; i < LANES; i++) x[i] = exp(x[i]);
    return x;
}

INLINE vec normal_cdf(vec x) {
    for (int i = 0; i < LANES; i++) x[i] = 0.5 * (1 + erf(x[i] * 0.70710678118654752440));
    return x;
}

#else

typedef int32_t ints __attribute__((vector_size(VECTOR_BYTES)));

#if defined(__AVX512F__) && VECTOR_BYTES == 64
INLINE vec smallest(vec a, vec b) { return (vec)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vec largest(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
#else
INLINE vec pick(ints where, vec a, vec b) { return (vec)(((ints)a & where) | ((ints)b & ~where)); }
INLINE vec smallest(vec a, vec b) { return pick(a < b, a, b); }
INLINE vec largest(vec a, vec b) { return pick(a > b, a, b); }
#endif

/* 2^k e^r with k the nearest integer to x / ln 2 and a Taylor polynomial for |r| <= ln 2 / 2. */
INLINE vec exp_negative(vec x) {
    x = largest(x, all(-87.0f));
    vec shifted = x * 1.44269504f + 12582912.0f; /* adding 1.5 * 2^23 rounds to an integer */
    vec k = shifted - 12582912.0f;
    vec r = x - k * 0.693359375f + k * 2.12194440e-4f;
    vec p = all(1.0f / 720);
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    ints exponent = __builtin_convertvector(k, ints) << 23;
    return (vec)((ints)p + exponent);
}

/* (1 + erf(x / sqrt 2)) / 2 with erf(t) = t P(t^2) / Q(t^2) on |t| <= 3.9: fitted to an error of 1.5e-8. */
INLINE vec normal_cdf(vec x) {
    vec t = largest(smallest(x * 0.70710678f, all(3.9f)), all(-3.9f));
    vec u = t * t;
    vec p = all(2.0504144436e-06f);
    p = p * u + 2.8745604372e-04f;
    p = p * u + 3.8367845020e-03f;
    p = p * u + 5.2966633263e-02f;
    p = p * u + 1.9193875238e-01f;
    p = p * u + 1.1283790324e+00f;
    vec q = all(3.8230963343e-05f);
    q = q * u + 1.1817139379e-03f;
    q = q * u + 1.5109018236e-02f;
    q = q * u + 1.1475728110e-01f;
    q = q * u + 5.0343306886e-01f;
    q = q * u + 1.0f;
    return t * p / q * 0.5f + 0.5f;
}

#endif

INLINE vec gelu(vec x) { return x * normal_cdf(x); }

INLINE vec gelu_with_slope(vec x, vec *slope) {
    vec phi = normal_cdf(x);
    *slope = phi + x * exp_negative(x * x * (real)-0.5) * (real)0.39894228040143267794;
    return x * phi;
}

/* sin(pi x) and cos(pi x), lane by lane. */
INLINE void sine_cosine(vec x, vec *sine, vec *cosine) {
#if defined(IS_DOUBLE)
    for (int i = 0; i < LANES; i++) (*sine)[i] = sin(M_PI * x[i]), (*cosine)[i] = cos(M_PI * x[i]);
#else
    /* x = 2 n + r with |r| <= 1, then y = r / 2 with |y| <= 1/2 and the double angle; errors stay below 2e-7 */
    vec n = x * 0.5f + 12582912.0f;
    vec y = x * 0.5f - (n - 12582912.0f);
    vec u = y * y;
    vec s = all(-7.00050009e-03f);
    s = s * u + 8.20312300e-02f;
    s = s * u - 5.99247405e-01f;
    s = s * u + 2.55016279e+00f;
    s = s * u - 5.16771274e+00f;
    s = s * u + 3.14159265e+00f;
    s = s * y;
    vec c = all(-2.43967159e-02f);
    c = c * u + 2.34937559e-01f;
    c = c * u - 1.33521206e+00f;
    c = c * u + 4.05870916e+00f;
    c = c * u - 4.93480214e+00f;
    c = c * u + 1.00000000e+00f;
    *sine = 2 * s * c;
    *cosine = 1 - 2 * s * s;
#endif
}

/* [w, sin(pi nu_1 w), cos(pi nu_1 w), ...] of `count` numbers, one feature a row: out[f * row + i], row >= count rounded up
   to whole vectors. The frequencies nu are linear from 1 by `step`: one sine and cosine (two, where the step is not 1),
   then a rotation per frequency. */
INLINE void fourier(const real *w, int count, int frequencies, real step, real *out, int row) {
    for (int first = 0; first < count; first += LANES) {
        real lane[LANES] = {0};
        memcpy(lane, w + first, sizeof(real) * (count - first < LANES ? count - first : LANES));
        vec x = load(lane), sine, cosine, turn_s, turn_c;
        sine_cosine(x, &sine, &cosine);
        turn_s = sine, turn_c = cosine;
        if (step != 1) sine_cosine(x * step, &turn_s, &turn_c);
        real *to = out + first;
        store(to, x);
        for (int f = 0; f < frequencies; f++) {
            store(to + (1 + 2 * f) * row, sine);
            store(to + (2 + 2 * f) * row, cosine);
            vec next = sine * turn_c + cosine * turn_s;
            cosine = cosine * turn_c - sine * turn_s;
            sine = next;
        }
    }
}

/* A length rounded up to whole vectors. */
INLINE int padded(int n) { return (n + LANES - 1) / LANES * LANES; }

/* w / (scale + |w|) */
INLINE real compress(real w, real scale) { return w / (scale + (w < 0 ? -w : w)); }

/* exp of `count` numbers that are not positive, in place. */
INLINE void exponentials(real *x, int count) {
    int i = 0;
    for (; i + LANES <= count; i += LANES) store(x + i, exp_negative(load(x + i)));
    vec rest = {0};
    for (int j = i; j < count; j++) rest[j - i] = x[j];
    rest = exp_negative(rest);
    for (int j = i; j < count; j++) x[j] = rest[j - i];
}

/* Define `name`, which runs the function `range` on ranges of items at the same time, each with its own task. The threads
   are those of OpenMP, which torch uses too: other ones would have to wait while torch's are spinning. */
#define IN_PARALLEL(name, range, Task)                                                                 \
    int name(const Task *tasks, const int64_t *bounds, int count) {                                    \
        int failed = 0;                                                                                \
        _Pragma("omp parallel for num_threads(count) schedule(static, 1) reduction(| : failed)")       \
        for (int i = 0; i < count; i++) failed |= range(tasks + i, bounds[i], bounds[i + 1]);          \
        return failed;                                                                                 \
    }

#endif
