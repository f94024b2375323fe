/* The two attentions of the decoder for one query after the other, forward and backward (see models/atomizer/decoder.py).

   Observations: a shared query attends to the tokens [value | kind | site] at its position; tokens are pooled.
   Latents: each query attends to its nearest latents, whose keys and values are given, and to the Fourier features of
   their offsets, which are pooled. What needs large matrix products is left to the caller. */

#define VECTOR_BYTES 32 /* also where longer ones exist: heads of 24 numbers are whole vectors then, and rows are short */
#include "vectors.h"

/* Fourier features of `count` numbers, one number a row. */
INLINE void fourier_rows(const real *w, int count, int frequencies, real step, real *space, real *out, int row) {
    int across = padded(count);
    fourier(w, count, frequencies, step, space, across);
    for (int i = 0; i < count; i++)
        for (int f = 0; f < 2 * frequencies + 1; f++) out[i * row + f] = space[f * across + i];
}

/* out[k * out_step] = x . row[k] for rows of n numbers, n a multiple of LANES. */
INLINE void dot_rows(const real *x, const real *const *row, int count, int n, real *out, int out_step) {
    for (int k = 0; k < count; k++) {
        vec a = {0}, b = {0};
        int i = 0;
        for (; i + 2 * LANES <= n; i += 2 * LANES) {
            a += load(x + i) * load(row[k] + i);
            b += load(x + i + LANES) * load(row[k] + i + LANES);
        }
        if (i < n) a += load(x + i) * load(row[k] + i);
        out[k * out_step] = sum_lanes(a + b);
    }
}

/* out = sum over k of weight[k * step] row[k], n a multiple of LANES. */
INLINE void mix_rows(const real *weight, int step, const real *const *row, int count, int n, real *out) {
    int i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        vec sum[4] = {{0}};
        for (int k = 0; k < count; k++)
            for (int j = 0; j < 4; j++) sum[j] += weight[k * step] * load(row[k] + i + j * LANES);
        for (int j = 0; j < 4; j++) store(out + i + j * LANES, sum[j]);
    }
    for (; i < n; i += LANES) {
        vec sum = {0};
        for (int k = 0; k < count; k++) sum += weight[k * step] * load(row[k] + i);
        store(out + i, sum);
    }
}

/* y += a x, n a multiple of LANES. */
INLINE void add_scaled(real *y, real a, const real *x, int n) {
    for (int i = 0; i < n; i += LANES) store(y + i, load(y + i) + a * load(x + i));
}

/* Softmax over `count` rows of logits, one column a head (`heads` a multiple of LANES), in place. */
INLINE void softmax_rows(real *logit, int count, int heads) {
    for (int h = 0; h < heads; h += LANES) {
        vec peak = all(-INFINITY), total = {0};
        for (int k = 0; k < count; k++) {
            vec x = load(logit + k * heads + h);
            for (int i = 0; i < LANES; i++) peak[i] = x[i] > peak[i] ? x[i] : peak[i];
        }
        for (int k = 0; k < count; k++) {
            vec x = exp_negative(load(logit + k * heads + h) - peak);
            total += x;
            store(logit + k * heads + h, x);
        }
        for (int k = 0; k < count; k++) store(logit + k * heads + h, load(logit + k * heads + h) / total);
    }
}

/* d logit = w (dw - sum w dw), in place of dw. */
INLINE void softmax_rows_backward(const real *weight, real *grad, int count, int heads) {
    for (int h = 0; h < heads; h += LANES) {
        vec mean = {0};
        for (int k = 0; k < count; k++) mean += load(weight + k * heads + h) * load(grad + k * heads + h);
        for (int k = 0; k < count; k++)
            store(grad + k * heads + h, load(weight + k * heads + h) * (load(grad + k * heads + h) - mean));
    }
}

/* A copy of a (rows x columns) matrix whose rows are padded with zeros; free it. */
static real *padded_copy(const real *x, int rows, int columns) {
    real *copy = calloc((size_t)(rows ? rows : 1) * padded(columns), sizeof(real));
    for (int r = 0; copy && r < rows; r++) memcpy(copy + r * padded(columns), x + r * columns, sizeof(real) * columns);
    return copy;
}

/* Add the sums in a padded matrix to a plain one, and free the padded one. */
static void add_padded(real *sums, int rows, int columns, real *to) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) to[r * columns + c] += sums[r * padded(columns) + c];
    free(sums);
}

typedef struct {
    /* acquisitions: values, validity (or null) and site features (or null); channels[a] of them at sites[a] */
    const real *const *values;
    const uint8_t *const *valid;
    const real *const *site_field;
    const int32_t *channels;
    const int64_t *sites;      /* how many there are */
    int32_t acquisitions, kinds, heads, frequencies, value_features, kind_features, site_features;
    double step;
    int64_t queries;
    const int64_t *site;                                      /* queries x acquisitions, -1: none */
    const real *kind, *kind_logit;                            /* kinds x kind_features; kinds x heads */
    const real *value_logit, *site_logit;                     /* features x heads each */
    const real *nothing;                                       /* the token where nothing was observed */
    real *pooled;                                             /* heads x queries x features */
    const real *pooled_grad;
    real *kind_grad, *kind_logit_grad, *value_logit_grad, *site_logit_grad, *nothing_grad;
} Observing;

/* The tokens that one query sees, and padded copies of what they meet. */
typedef struct {
    real *phi, *weight, *grad; /* tokens x value features; tokens x heads: attention and its gradient; padded */
    const real **phi_row, **kind_row, **field_row;
    int32_t *kind, *has_field;
    real *value, *space;
    real *kind_of, *kind_logit, *value_logit, *site_logit; /* kinds x features, kinds x heads, features x heads (2) */
    real *field;               /* tokens x site features, zero where there are none */
    int heads, values, kinds, sites; /* padded widths */
} Seen;

static void free_seen(Seen *s) {
    void *parts[] = {s->phi, s->weight, s->grad, s->phi_row, s->kind_row, s->field_row, s->kind, s->has_field, s->value, s->space,
                     s->kind_of, s->kind_logit, s->value_logit, s->site_logit, s->field};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

static int new_seen(const Observing *t, Seen *s) {
    size_t n = t->kinds ? t->kinds : 1;
    *s = (Seen){.heads = padded(t->heads), .values = padded(t->value_features), .kinds = padded(t->kind_features),
                .sites = padded(t->site_features)};
    s->phi = calloc(n * s->values, sizeof(real)), s->weight = calloc(n * s->heads, sizeof(real));
    s->grad = calloc(n * s->heads, sizeof(real)), s->field = calloc(n * s->sites + 1, sizeof(real));
    s->phi_row = malloc(n * sizeof(real *)), s->kind_row = malloc(n * sizeof(real *));
    s->field_row = malloc(n * sizeof(real *)), s->value = malloc(n * sizeof(real));
    s->space = malloc(padded((int)n) * (size_t)t->value_features * sizeof(real));
    s->kind = malloc(n * sizeof(int32_t)), s->has_field = malloc(n * sizeof(int32_t));
    s->kind_of = padded_copy(t->kind, t->kinds, t->kind_features);
    s->kind_logit = padded_copy(t->kind_logit, t->kinds, t->heads);
    s->value_logit = padded_copy(t->value_logit, t->value_features, t->heads);
    s->site_logit = padded_copy(t->site_logit, t->site_features, t->heads);
    void *parts[] = {s->phi, s->weight, s->grad, s->phi_row, s->kind_row, s->field_row, s->kind, s->has_field, s->value, s->space,
                     s->kind_of, s->kind_logit, s->value_logit, s->site_logit, s->field};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!parts[i]) { free_seen(s); return 1; }
    for (size_t k = 0; k < n; k++) s->phi_row[k] = s->phi + k * s->values, s->field_row[k] = s->field + k * s->sites;
    return 0;
}

/* The tokens at query m and the attention to each; returns how many there are. */
static int see(const Observing *t, int64_t m, Seen *s) {
    int count = 0;
    for (int a = 0, first = 0; a < t->acquisitions; first += t->channels[a++]) {
        int64_t site = t->site[m * t->acquisitions + a];
        if (site < 0) continue;
        for (int c = 0; c < t->channels[a]; c++) {
            int64_t at = site * t->channels[a] + c;
            if (t->valid[a] && !t->valid[a][at]) continue;
            s->value[count] = t->values[a][at];
            s->kind[count] = first + c;
            s->kind_row[count] = s->kind_of + (first + c) * s->kinds;
            s->has_field[count] = t->site_field[a] != NULL;
            if (t->site_field[a])
                memcpy(s->field + count * s->sites, t->site_field[a] + site * t->site_features,
                       sizeof(real) * t->site_features);
            else
                memset(s->field + count * s->sites, 0, sizeof(real) * s->sites);
            count++;
        }
    }
    fourier_rows(s->value, count, t->frequencies, (real)t->step, s->space, s->phi, s->values);
    for (int k = 0; k < count; k++)
        for (int h = 0; h < s->heads; h += LANES) {
            vec logit = load(s->kind_logit + s->kind[k] * s->heads + h);
            for (int f = 0; f < t->value_features; f++)
                logit += s->phi[k * s->values + f] * load(s->value_logit + f * s->heads + h);
            for (int f = 0; s->has_field[k] && f < t->site_features; f++)
                logit += s->field[k * s->sites + f] * load(s->site_logit + f * s->heads + h);
            store(s->weight + k * s->heads + h, logit);
        }
    softmax_rows(s->weight, count, s->heads);
    return count;
}

static int observe_range(const Observing *t, int64_t first, int64_t last) {
    for (int64_t m = first; m < last; m++)
        for (int a = 0; a < t->acquisitions; a++)
            if (t->site[m * t->acquisitions + a] >= t->sites[a]) return BAD_INDEX;
    Seen s;
    if (new_seen(t, &s)) return NO_MEMORY;
    const int value = t->value_features, kind = t->kind_features, site = t->site_features, token = value + kind + site;
    real mixed[3 * MAX_FEATURES];
    for (int64_t m = first; m < last; m++) {
        int count = see(t, m, &s);
        for (int h = 0; h < t->heads; h++) {
            real *pooled = t->pooled + (h * t->queries + m) * token;
            if (!count) {
                memcpy(pooled, t->nothing, sizeof(real) * token);
                continue;
            }
            mix_rows(s.weight + h, s.heads, s.phi_row, count, s.values, mixed);
            memcpy(pooled, mixed, sizeof(real) * value);
            mix_rows(s.weight + h, s.heads, s.kind_row, count, s.kinds, mixed);
            memcpy(pooled + value, mixed, sizeof(real) * kind);
            mix_rows(s.weight + h, s.heads, s.field_row, count, s.sites, mixed);
            memcpy(pooled + value + kind, mixed, sizeof(real) * site);
        }
    }
    free_seen(&s);
    return DONE;
}

static int observe_range_backward(const Observing *t, int64_t first, int64_t last) {
    Seen s;
    if (new_seen(t, &s)) return NO_MEMORY;
    const int heads = t->heads, value = t->value_features, kind = t->kind_features, site = t->site_features;
    const int token = value + kind + site;
    real *kind_grad = calloc((size_t)t->kinds * s.kinds + 1, sizeof(real));
    real *kind_logit = calloc((size_t)t->kinds * s.heads + 1, sizeof(real));
    real *value_logit = calloc((size_t)value * s.heads, sizeof(real)), *site_logit = calloc((size_t)site * s.heads + 1, sizeof(real));
    if (!kind_grad || !kind_logit || !value_logit || !site_logit) {
        free(kind_grad), free(kind_logit), free(value_logit), free(site_logit), free_seen(&s);
        return NO_MEMORY;
    }
    real pull_value[MAX_FEATURES] = {0}, pull_kind[MAX_FEATURES] = {0}, pull_site[MAX_FEATURES] = {0};
    for (int64_t m = first; m < last; m++) {
        int count = see(t, m, &s);
        for (int h = 0; h < heads; h++) {
            const real *pull = t->pooled_grad + (h * t->queries + m) * token;
            if (!count)
                for (int f = 0; f < token; f++) t->nothing_grad[f] += pull[f];
            memcpy(pull_value, pull, sizeof(real) * value);
            memcpy(pull_kind, pull + value, sizeof(real) * kind);
            memcpy(pull_site, pull + value + kind, sizeof(real) * site);
            for (int k = 0; k < count; k++) {
                real grad[3];
                dot_rows(pull_value, s.phi_row + k, 1, s.values, grad, 1);
                dot_rows(pull_kind, s.kind_row + k, 1, s.kinds, grad + 1, 1);
                dot_rows(pull_site, s.field_row + k, 1, s.sites, grad + 2, 1);
                s.grad[k * s.heads + h] = grad[0] + grad[1] + grad[2];
                add_scaled(kind_grad + s.kind[k] * s.kinds, s.weight[k * s.heads + h], pull_kind, s.kinds);
            }
        }
        softmax_rows_backward(s.weight, s.grad, count, s.heads);
        for (int k = 0; k < count; k++) {
            const real *grad = s.grad + k * s.heads;
            add_scaled(kind_logit + s.kind[k] * s.heads, 1, grad, s.heads);
            for (int f = 0; f < value; f++) add_scaled(value_logit + f * s.heads, s.phi[k * s.values + f], grad, s.heads);
            for (int f = 0; s.has_field[k] && f < site; f++)
                add_scaled(site_logit + f * s.heads, s.field[k * s.sites + f], grad, s.heads);
        }
    }
    add_padded(kind_grad, t->kinds, kind, t->kind_grad);
    add_padded(kind_logit, t->kinds, heads, t->kind_logit_grad);
    add_padded(value_logit, value, heads, t->value_logit_grad);
    add_padded(site_logit, site, heads, t->site_logit_grad);
    free_seen(&s);
    return DONE;
}

typedef struct {
    const real *query, *turned;     /* queries x heads x dim; heads x queries x offset_features, or null */
    const real *key, *value;        /* latents x heads x dim */
    const int64_t *neighbor;        /* queries x neighbors */
    const double *position, *anchor; /* x, y (and z) in metres */
    int64_t queries, latents;
    int32_t neighbors, heads, dim, frequencies, axes;
    double step, scale;
    real *attended, *pooled;        /* as query; as turned */
    const real *attended_grad, *pooled_grad;
    real *query_grad, *turned_grad, *key_grad, *value_grad;
} Attending;

static int attending_features(const Attending *t) { return t->turned ? t->axes * (2 * t->frequencies + 1) : 0; }

/* What one query meets: offset features and rows of keys and values of its neighbours, and its attention to them. */
typedef struct {
    real *phi, *turned; /* neighbors x features and features, padded */
    real weight[MAX_NEIGHBORS * MAX_HEADS], grad[MAX_NEIGHBORS * MAX_HEADS]; /* neighbors x heads, padded */
    const real *phi_row[MAX_NEIGHBORS], *row[MAX_NEIGHBORS];
} Hood;

static int new_hood(const Attending *t, Hood *s) {
    int features = padded(attending_features(t));
    memset(s, 0, sizeof *s);
    s->phi = calloc((size_t)MAX_NEIGHBORS * features + 1, sizeof(real)), s->turned = calloc(features + 1, sizeof(real));
    for (int k = 0; s->phi && k < MAX_NEIGHBORS; k++) s->phi_row[k] = s->phi + k * features;
    return !s->phi || !s->turned;
}

static void free_hood(Hood *s) { free(s->phi), free(s->turned); }

/* Point `row` at the keys or values of head h. */
INLINE void rows_of(const Attending *t, Hood *s, int64_t m, int h, const real *of) {
    for (int k = 0; k < t->neighbors; k++)
        s->row[k] = of + (t->neighbor[m * t->neighbors + k] * t->heads + h) * t->dim;
}

static void attend(const Attending *t, int64_t m, Hood *s) {
    const int features = attending_features(t), wide = padded(features), columns = padded(t->heads), axes = t->axes;
    if (features) {
        for (int axis = 0; axis < axes; axis++) {
            real delta[MAX_NEIGHBORS], space[MAX_FEATURES / 2 * MAX_NEIGHBORS];
            for (int k = 0; k < t->neighbors; k++) {
                double metres = t->anchor[axes * t->neighbor[m * t->neighbors + k] + axis] - t->position[axes * m + axis];
                delta[k] = compress((real)metres, (real)t->scale);
            }
            real *out = s->phi + axis * (features / axes);
            fourier_rows(delta, t->neighbors, t->frequencies, (real)t->step, space, out, wide);
        }
    }
    for (int h = 0; h < t->heads; h++) {
        rows_of(t, s, m, h, t->key);
        dot_rows(t->query + (m * t->heads + h) * t->dim, s->row, t->neighbors, t->dim, s->weight + h, columns);
        if (features) {
            real extra[MAX_NEIGHBORS];
            memcpy(s->turned, t->turned + (h * t->queries + m) * features, sizeof(real) * features);
            dot_rows(s->turned, s->phi_row, t->neighbors, wide, extra, 1);
            for (int k = 0; k < t->neighbors; k++) s->weight[k * columns + h] += extra[k];
        }
    }
    softmax_rows(s->weight, t->neighbors, columns);
}

static int attend_range(const Attending *t, int64_t first, int64_t last) {
    for (int64_t i = first * t->neighbors; i < last * t->neighbors; i++)
        if (!WITHIN(t->neighbor[i], t->latents)) return BAD_INDEX;
    Hood s;
    if (new_hood(t, &s)) { free_hood(&s); return NO_MEMORY; }
    const int features = attending_features(t), columns = padded(t->heads);
    real mixed[MAX_FEATURES];
    for (int64_t m = first; m < last; m++) {
        attend(t, m, &s);
        for (int h = 0; h < t->heads; h++) {
            rows_of(t, &s, m, h, t->value);
            mix_rows(s.weight + h, columns, s.row, t->neighbors, t->dim, t->attended + (m * t->heads + h) * t->dim);
            if (features) {
                mix_rows(s.weight + h, columns, s.phi_row, t->neighbors, padded(features), mixed);
                memcpy(t->pooled + (h * t->queries + m) * features, mixed, sizeof(real) * features);
            }
        }
    }
    free_hood(&s);
    return DONE;
}

static int attend_range_backward(const Attending *t, int64_t first, int64_t last) {
    Hood s;
    if (new_hood(t, &s)) { free_hood(&s); return NO_MEMORY; }
    const int heads = t->heads, dim = t->dim, features = attending_features(t), columns = padded(heads);
    real pull_phi[MAX_FEATURES] = {0}, mixed[MAX_FEATURES];
    for (int64_t m = first; m < last; m++) {
        attend(t, m, &s);
        for (int h = 0; h < heads; h++) {
            const real *pull = t->attended_grad + (m * heads + h) * dim;
            rows_of(t, &s, m, h, t->value);
            dot_rows(pull, s.row, t->neighbors, dim, s.grad + h, columns);
            for (int k = 0; k < t->neighbors; k++)
                add_scaled(t->value_grad + (s.row[k] - t->value), s.weight[k * columns + h], pull, dim);
            if (features) {
                real extra[MAX_NEIGHBORS];
                memcpy(pull_phi, t->pooled_grad + (h * t->queries + m) * features, sizeof(real) * features);
                dot_rows(pull_phi, s.phi_row, t->neighbors, padded(features), extra, 1);
                for (int k = 0; k < t->neighbors; k++) s.grad[k * columns + h] += extra[k];
            }
        }
        softmax_rows_backward(s.weight, s.grad, t->neighbors, columns);
        for (int h = 0; h < heads; h++) {
            const real *query = t->query + (m * heads + h) * dim;
            rows_of(t, &s, m, h, t->key);
            mix_rows(s.grad + h, columns, s.row, t->neighbors, dim, t->query_grad + (m * heads + h) * dim);
            for (int k = 0; k < t->neighbors; k++)
                add_scaled(t->key_grad + (s.row[k] - t->key), s.grad[k * columns + h], query, dim);
            if (features) {
                mix_rows(s.grad + h, columns, s.phi_row, t->neighbors, padded(features), mixed);
                memcpy(t->turned_grad + (h * t->queries + m) * features, mixed, sizeof(real) * features);
            }
        }
    }
    free_hood(&s);
    return DONE;
}

IN_PARALLEL(observe_forward, observe_range, Observing)
IN_PARALLEL(observe_backward, observe_range_backward, Observing)
IN_PARALLEL(attend_forward, attend_range, Attending)
IN_PARALLEL(attend_backward, attend_range_backward, Attending)

FACTS(sizeof(Observing), sizeof(Attending))
