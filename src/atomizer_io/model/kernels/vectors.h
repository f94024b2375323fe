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
#define VECTOR_BYTES 64
#else
#define VECTOR_BYTES 32
#endif

typedef REAL real;
#define LANES ((int)(VECTOR_BYTES / sizeof(real)))
#define INLINE static inline __attribute__((always_inline))

/* A vector at any address. */
typedef real vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));

INLINE vec load(const real *p) { return *(const vec *)p; }
INLINE void store(real *p, vec v) { *(vec *)p = v; }
INLINE vec all(real x) { return (vec){0} + x; }

INLINE real sum_lanes(vec v) {
    real total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
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

INLINE vec pick(ints where, vec a, vec b) { return (vec)(((ints)a & where) | ((ints)b & ~where)); }
INLINE vec smallest(vec a, vec b) { return pick(a < b, a, b); }
INLINE vec largest(vec a, vec b) { return pick(a > b, a, b); }

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

/* [w, sin(pi nu_1 w), cos(pi nu_1 w), ...] with nu linear from 1: one rotation per frequency. */
INLINE void fourier(double w, int frequencies, double step, real *out) {
    double sine = sin(M_PI * w), cosine = cos(M_PI * w);
    double turn_s = step == 1.0 ? sine : sin(M_PI * step * w), turn_c = step == 1.0 ? cosine : cos(M_PI * step * w);
    out[0] = (real)w;
    for (int i = 0; i < frequencies; i++) {
        out[1 + 2 * i] = (real)sine;
        out[2 + 2 * i] = (real)cosine;
        double next = sine * turn_c + cosine * turn_s;
        cosine = cosine * turn_c - sine * turn_s;
        sine = next;
    }
}

/* exp of `count` numbers that are not positive, in place. */
INLINE void exponentials(real *x, int count) {
    int i = 0;
    for (; i + LANES <= count; i += LANES) store(x + i, exp_negative(load(x + i)));
    vec rest = {0};
    for (int j = i; j < count; j++) rest[j - i] = x[j];
    rest = exp_negative(rest);
    for (int j = i; j < count; j++) x[j] = rest[j - i];
}

#endif
