/* Attention pooling of the atoms of each cell, forward and backward (see models/atomizer/attention.py for the mathematics).

   A segment is a run of atoms of one cell. For each, with g_i = GELU(value part + kind part + site part):
     lse[h]    = log sum_i exp(g_i . logit[h])
     pooled[h] = sum_i alpha_i[h] g_i
   Atoms are taken in blocks that stay in the cache; the softmax is kept online. Nothing of size atoms x width is stored. */

#include "products.h"

enum { ATOMS = 32, SITES = 32 }; /* multiples of any LANES */

typedef struct {
    /* atoms in the order of the cells, and the segments */
    const real *value;         /* by natural atom number */
    const int64_t *order;
    const int32_t *site, *kind;
    const int64_t *cell, *begin, *length;
    const double *position, *anchor; /* x, y (and z) in metres, by site and by cell */
    const real *site_field;    /* sites x site_features, or null */
    /* folded weights, row-major with `width` columns */
    const real *value_weight, *kind_weight, *site_weight, *offset_weight /* or null */, *logit_weight; /* heads x width */
    int64_t atoms, ordered, sites, kinds, cells, segments; /* how many there are of what is above; `ordered` by cell */
    int32_t width, heads, value_frequencies, offset_frequencies, site_features, axes;
    double value_step, offset_step, offset_scale; /* distance between frequencies; metres */
    /* results of the forward pass: segments x heads; heads x segments x width */
    real *lse, *pooled;
    /* backward: gradients of the results, and of the weights (accumulated) */
    const real *lse_grad;
    const real *const *pooled_grad; /* of each head */
    real *value_weight_grad, *kind_weight_grad, *site_weight_grad, *offset_weight_grad, *logit_weight_grad;
} Cells;

/* Working space of a thread, and copies of the weights it reads all the time. */
typedef struct {
    Matrix site;           /* SITES: pre-activation part of each site */
    Matrix hidden;         /* ATOMS: g */
    Matrix slope;          /* ATOMS: GELU' at the pre-activation */
    Matrix pooled;         /* heads */
    Matrix site_grad;      /* SITES */
    Matrix both;           /* 2 heads: gradient of pooled, then logit weights */
    Matrix value_weight, offset_weight, logit_weight;
    real *memory;
    real phi[MAX_FEATURES * ATOMS], offset[MAX_FEATURES * SITES]; /* one feature a row */
    real logit[ATOMS * MAX_HEADS], weight_t[MAX_HEADS * ATOMS];
    real mix[ATOMS * 2 * MAX_HEADS];
    int32_t sites[SITES], slot[ATOMS];
} Space;

static int value_features(const Cells *t) { return 2 * t->value_frequencies + 1; }
static int has_site_part(const Cells *t) { return t->offset_weight || t->site_field; }
static int offset_features(const Cells *t) { return t->axes * (2 * t->offset_frequencies + 1); }

static Matrix copied(Matrix to, const real *from, int rows, int width) {
    for (int r = 0; from && r < rows; r++) memcpy(to.at + r * to.row, from + r * width, sizeof(real) * width);
    return to;
}

static Space *new_space(const Cells *t) {
    const int rows[] = {SITES, ATOMS, ATOMS, t->heads, SITES, 2 * t->heads, value_features(t), offset_features(t), t->heads};
    const int parts = sizeof rows / sizeof *rows, row = spaced(t->width);
    size_t total = 0;
    for (int i = 0; i < parts; i++) total += rows[i];
    Space *s = calloc(1, sizeof(Space));
    real *memory = calloc(total * row, sizeof(real));
    if (!s || !memory) { free(s); free(memory); return NULL; }
    s->memory = memory;
    Matrix *parts_of[] = {&s->site, &s->hidden, &s->slope, &s->pooled, &s->site_grad, &s->both, &s->value_weight,
                          &s->offset_weight, &s->logit_weight};
    for (int i = 0; i < parts; memory += (size_t)rows[i++] * row) *parts_of[i] = (Matrix){memory, row};
    copied(s->value_weight, t->value_weight, value_features(t), t->width);
    copied(s->offset_weight, t->offset_weight, offset_features(t), t->width);
    copied(s->logit_weight, t->logit_weight, t->heads, t->width);
    return s;
}

static void free_space(Space *s) { free(s->memory); free(s); }

/* Collect up to SITES sites from atom `a` on; returns the atom after their last. */
static int64_t next_sites(const Cells *t, Space *s, int64_t a, int64_t end, int *count) {
    int n = 0;
    for (; a < end; a++) {
        if (n && t->site[a] == s->sites[n - 1]) continue;
        if (n == SITES) break;
        s->sites[n++] = t->site[a];
    }
    *count = n;
    return a;
}

/* The part of the pre-activation that all atoms of a site share. */
static void site_parts(const Cells *t, Space *s, int64_t cell, int count) {
    int width = t->width, features = offset_features(t), axes = t->axes;
    if (!has_site_part(t)) return;
    memset(s->site.at, 0, sizeof(real) * count * s->site.row);
    if (t->offset_weight) {
        for (int axis = 0; axis < axes; axis++) {
            real delta[SITES];
            for (int i = 0; i < count; i++) {
                double metres = t->position[axes * (int64_t)s->sites[i] + axis] - t->anchor[axes * cell + axis];
                delta[i] = compress((real)metres, (real)t->offset_scale);
            }
            real *out = s->offset + axis * (features / axes) * SITES;
            fourier(delta, count, t->offset_frequencies, (real)t->offset_step, out, SITES);
        }
        product(count, features, s->offset, 1, SITES, s->offset_weight, s->site, width);
    }
    if (t->site_field)
        for (int i = 0; i < count; i++)
            product(1, t->site_features, t->site_field + (int64_t)s->sites[i] * t->site_features, 0, 1,
                    (Matrix){(real *)t->site_weight, width}, below(s->site, i), width);
}

/* g of up to 6 atoms and 2 vectors of columns at once; with `slopes`, GELU' as well. */
INLINE void hidden_tile(const Cells *t, Space *s, const int rows, const int columns, const int slopes, int64_t a, int r, int d) {
    int width = t->width, features = value_features(t);
    vec sum[6][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) sum[i][j] = load(t->kind_weight + (int64_t)t->kind[a + r + i] * width + d + j * LANES);
    if (has_site_part(t))
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) sum[i][j] += load(s->site.at + s->slot[r + i] * s->site.row + d + j * LANES);
    for (int f = 0; f < features; f++) {
        vec line[2];
        for (int j = 0; j < columns; j++) line[j] = load(s->value_weight.at + f * s->value_weight.row + d + j * LANES);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) sum[i][j] += s->phi[f * ATOMS + r + i] * line[j];
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            real *to = s->hidden.at + (r + i) * s->hidden.row + d + j * LANES;
            if (slopes) {
                vec slope;
                store(to, gelu_with_slope(sum[i][j], &slope));
                store(s->slope.at + (r + i) * s->slope.row + d + j * LANES, slope);
            } else
                store(to, gelu(sum[i][j]));
        }
}

/* g and the logits of the `count` atoms from `a` on; `slot` is the place of the first atom's site among the sites. */
INLINE int block(const Cells *t, Space *s, int64_t a, int count, int slot, const int slopes) {
    real value[ATOMS];
    for (int i = 0; i < count; i++) {
        if (t->site[a + i] != s->sites[slot]) slot++;
        s->slot[i] = slot;
        value[i] = t->value[t->order[a + i]];
    }
    fourier(value, count, t->value_frequencies, (real)t->value_step, s->phi, ATOMS);
    int d = 0;
#define HIDDEN_PAIR(rows) hidden_tile(t, s, rows, 2, slopes, a, r, d)
#define HIDDEN_ONE(rows) hidden_tile(t, s, rows, 1, slopes, a, r, d)
    for (; d + 2 * LANES <= t->width; d += 2 * LANES) BY_ROWS(count, HIDDEN_PAIR)
    if (d < t->width) BY_ROWS(count, HIDDEN_ONE)
    dots(count, t->heads, s->hidden, s->logit_weight, t->width, s->logit, t->heads);
    return slot;
}

/* Whether every number of an atom, site, kind or cell is one that there is. */
static int indices_exist(const Cells *t, int64_t first, int64_t last) {
    for (int64_t g = first; g < last; g++) {
        int64_t begin = t->begin[g], length = t->length[g];
        if (begin < 0 || length < 0 || begin > t->ordered - length || !WITHIN(t->cell[g], t->cells)) return 0;
        int bad = 0;
        for (int64_t a = begin; a < begin + length; a++)
            bad |= !WITHIN(t->order[a], t->atoms) | !WITHIN(t->site[a], t->sites) | !WITHIN(t->kind[a], t->kinds);
        if (bad) return 0;
    }
    return 1;
}

static int pool_range(const Cells *t, int64_t first, int64_t last) {
    if (!indices_exist(t, first, last)) return BAD_INDEX;
    Space *s = new_space(t);
    if (!s) return NO_MEMORY;
    const int heads = t->heads, width = t->width;
    for (int64_t g = first; g < last; g++) {
        real peak[MAX_HEADS], total[MAX_HEADS];
        for (int h = 0; h < heads; h++) peak[h] = -INFINITY, total[h] = 0;
        memset(s->pooled.at, 0, sizeof(real) * heads * s->pooled.row);
        int64_t end = t->begin[g] + t->length[g];
        for (int64_t a = t->begin[g]; a < end;) {
            int sites, slot = 0;
            int64_t stop = next_sites(t, s, a, end, &sites);
            site_parts(t, s, t->cell[g], sites);
            while (a < stop) {
                int count = stop - a < ATOMS ? (int)(stop - a) : ATOMS;
                slot = block(t, s, a, count, slot, 0);
                for (int h = 0; h < heads; h++) {
                    real top = peak[h];
                    for (int i = 0; i < count; i++) top = s->logit[i * heads + h] > top ? s->logit[i * heads + h] : top;
                    if (top > peak[h]) {
                        real fade = total[h] > 0 ? (real)exp(peak[h] - top) : 0;
                        total[h] *= fade;
                        for (int d = 0; d < width; d += LANES)
                            store(s->pooled.at + h * s->pooled.row + d, load(s->pooled.at + h * s->pooled.row + d) * fade);
                        peak[h] = top;
                    }
                    for (int i = 0; i < count; i++) s->weight_t[h * ATOMS + i] = s->logit[i * heads + h] - top;
                    exponentials(s->weight_t + h * ATOMS, count);
                    for (int i = 0; i < count; i++) total[h] += s->weight_t[h * ATOMS + i];
                }
                product(heads, count, s->weight_t, ATOMS, 1, s->hidden, s->pooled, width);
                a += count;
            }
        }
        for (int h = 0; h < heads; h++) {
            t->lse[g * heads + h] = peak[h] + (real)log(total[h]);
            for (int d = 0; d < width; d += LANES)
                store(t->pooled + (h * t->segments + g) * width + d, load(s->pooled.at + h * s->pooled.row + d) * (1 / total[h]));
        }
    }
    free_space(s);
    return DONE;
}

/* The gradient of the pre-activation of up to 6 atoms, in place of g, added to that of their kinds and sites. */
INLINE void grad_tile(const Cells *t, Space *s, const int rows, const int columns, int64_t a, int r, int d) {
    const int heads = t->heads;
    vec sum[6][2] = {{{0}}};
    for (int h = 0; h < 2 * heads; h++) {
        vec line[2];
        for (int j = 0; j < columns; j++) line[j] = load(s->both.at + h * s->both.row + d + j * LANES);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) sum[i][j] += s->mix[(r + i) * 2 * heads + h] * line[j];
    }
    for (int i = 0; i < rows; i++) {
        real *kind = t->kind_weight_grad + (int64_t)t->kind[a + r + i] * t->width + d;
        real *site = below(s->site_grad, s->slot[r + i]).at + d;
        for (int j = 0; j < columns; j++) {
            vec x = sum[i][j] * load(s->slope.at + (r + i) * s->slope.row + d + j * LANES);
            store(s->hidden.at + (r + i) * s->hidden.row + d + j * LANES, x);
            store(kind + j * LANES, load(kind + j * LANES) + x);
            if (has_site_part(t)) store(site + j * LANES, load(site + j * LANES) + x);
        }
    }
}

/* Gradients of the weights from the atoms of one block. */
static void block_backward(const Cells *t, Space *s, int64_t g, int64_t a, int count, const real *inner) {
    const int heads = t->heads, width = t->width, features = value_features(t);
    real alpha[ATOMS * MAX_HEADS], pull[ATOMS * MAX_HEADS];
    for (int i = 0; i < count; i++)
        for (int h = 0; h < heads; h++) alpha[i * heads + h] = s->logit[i * heads + h] - t->lse[g * heads + h];
    exponentials(alpha, count * heads);
    dots(count, heads, s->hidden, s->both, width, pull, heads);
    for (int i = 0; i < count; i++)
        for (int h = 0; h < heads; h++) {
            real weight = alpha[i * heads + h];
            real logit_grad = weight * (pull[i * heads + h] - inner[h] + t->lse_grad[g * heads + h]);
            s->mix[i * 2 * heads + h] = weight;
            s->mix[i * 2 * heads + heads + h] = logit_grad;
            s->weight_t[h * ATOMS + i] = logit_grad;
        }
    product(heads, count, s->weight_t, ATOMS, 1, s->hidden, (Matrix){t->logit_weight_grad, width}, width);
    int d = 0;
#define GRAD_PAIR(rows) grad_tile(t, s, rows, 2, a, r, d)
#define GRAD_ONE(rows) grad_tile(t, s, rows, 1, a, r, d)
    for (; d + 2 * LANES <= width; d += 2 * LANES) BY_ROWS(count, GRAD_PAIR)
    if (d < width) BY_ROWS(count, GRAD_ONE)
    product(features, count, s->phi, ATOMS, 1, s->hidden, (Matrix){t->value_weight_grad, width}, width);
}

static int pool_range_backward(const Cells *t, int64_t first, int64_t last) {
    Space *s = new_space(t);
    if (!s) return NO_MEMORY;
    const int heads = t->heads, width = t->width, features = offset_features(t);
    copied(below(s->both, heads), t->logit_weight, heads, width);
    for (int64_t g = first; g < last; g++) {
        real inner[MAX_HEADS];
        for (int h = 0; h < heads; h++) {
            memcpy(below(s->both, h).at, t->pooled_grad[h] + g * width, sizeof(real) * width);
            dots(1, 1, below(s->both, h), (Matrix){t->pooled + (h * t->segments + g) * width, width}, width, inner + h, 1);
        }
        int64_t end = t->begin[g] + t->length[g];
        for (int64_t a = t->begin[g]; a < end;) {
            int sites, slot = 0;
            int64_t stop = next_sites(t, s, a, end, &sites);
            site_parts(t, s, t->cell[g], sites);
            if (has_site_part(t)) memset(s->site_grad.at, 0, sizeof(real) * sites * s->site_grad.row);
            while (a < stop) {
                int count = stop - a < ATOMS ? (int)(stop - a) : ATOMS;
                slot = block(t, s, a, count, slot, 1);
                block_backward(t, s, g, a, count, inner);
                a += count;
            }
            if (t->offset_weight) {
                product(features, sites, s->offset, SITES, 1, s->site_grad, (Matrix){t->offset_weight_grad, width}, width);
            }
            if (t->site_field)
                for (int i = 0; i < sites; i++)
                    product(t->site_features, 1, t->site_field + (int64_t)s->sites[i] * t->site_features, 1, 0,
                            below(s->site_grad, i), (Matrix){t->site_weight_grad, width}, width);
        }
    }
    free_space(s);
    return DONE;
}

IN_PARALLEL(cells_forward, pool_range, Cells)
IN_PARALLEL(cells_backward, pool_range_backward, Cells)

FACTS(sizeof(Cells))
