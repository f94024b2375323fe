/* The two attentions of the decoder for one query after the other, forward and backward (see model/decoder.py).

   Observations: a shared query attends to the tokens [value | kind | site] at its position; tokens are pooled.
   Latents: each query attends to its nearest latents, whose keys and values are given, and to the Fourier features of
   their offsets, which are pooled. What needs large matrix products is left to the caller. */

#include "vectors.h"

enum { MAX_HEADS = 32, MAX_FEATURES = 256, MAX_NEIGHBORS = 64 };

/* y += a x */
INLINE void add_scaled(real *y, real a, const real *x, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) store(y + i, load(y + i) + a * load(x + i));
    for (; i < n; i++) y[i] += a * x[i];
}

INLINE real dot(const real *x, const real *y, int n) {
    vec sum = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) sum += load(x + i) * load(y + i);
    real total = sum_lanes(sum);
    for (; i < n; i++) total += x[i] * y[i];
    return total;
}

/* Softmax over `count` rows of `heads` logits, in place. */
static void softmax_rows(real *logit, int count, int heads) {
    for (int h = 0; h < heads; h++) {
        real peak = -INFINITY;
        for (int k = 0; k < count; k++) peak = logit[k * heads + h] > peak ? logit[k * heads + h] : peak;
        for (int k = 0; k < count; k++) logit[k * heads + h] -= peak;
    }
    exponentials(logit, count * heads);
    for (int h = 0; h < heads; h++) {
        real total = 0;
        for (int k = 0; k < count; k++) total += logit[k * heads + h];
        for (int k = 0; k < count; k++) logit[k * heads + h] /= total;
    }
}

/* d logit = w (dw - sum w dw), in place of dw. */
static void softmax_rows_backward(const real *weight, real *grad, int count, int heads) {
    for (int h = 0; h < heads; h++) {
        real mean = 0;
        for (int k = 0; k < count; k++) mean += weight[k * heads + h] * grad[k * heads + h];
        for (int k = 0; k < count; k++) grad[k * heads + h] = weight[k * heads + h] * (grad[k * heads + h] - mean);
    }
}

typedef struct {
    /* acquisitions: values, validity (or null) and site features (or null); channels[a] of them */
    const real *const *values;
    const uint8_t *const *valid;
    const real *const *site_field;
    const int32_t *channels;
    int32_t acquisitions, kinds, heads, frequencies, value_features, kind_features, site_features;
    double step;
    int64_t queries;
    const int64_t *site;                                      /* queries x acquisitions, -1: none */
    const real *kind, *kind_logit;                            /* kinds x kind_features; kinds x heads */
    const real *value_logit, *site_logit;                     /* heads x features each */
    const real *unseen;                                       /* the token where nothing was observed */
    real *pooled;                                             /* heads x queries x features */
    const real *pooled_grad;
    real *kind_grad, *kind_logit_grad, *value_logit_grad, *site_logit_grad, *unseen_grad;
} Observing;

typedef struct {
    real *phi, *weight, *grad; /* by observed token: value features, attention by head, its gradient */
    const real **field;        /* site features, or null */
    int32_t *kind;
} Seen;

static Seen new_seen(const Observing *t) {
    size_t n = t->kinds;
    return (Seen){malloc(n * t->value_features * sizeof(real)), malloc(n * t->heads * sizeof(real)),
                  malloc(n * t->heads * sizeof(real)), malloc(n * sizeof(real *)), malloc(n * sizeof(int32_t))};
}

static void free_seen(Seen *s) { free(s->phi), free(s->weight), free(s->grad), free(s->field), free(s->kind); }

/* The tokens at query m and the attention to each; returns how many there are. */
static int see(const Observing *t, int64_t m, Seen *s) {
    int count = 0;
    for (int a = 0, first = 0; a < t->acquisitions; first += t->channels[a++]) {
        int64_t site = t->site[m * t->acquisitions + a];
        if (site < 0) continue;
        const real *field = t->site_field[a] ? t->site_field[a] + site * t->site_features : NULL;
        for (int c = 0; c < t->channels[a]; c++) {
            int64_t at = site * t->channels[a] + c;
            if (t->valid[a] && !t->valid[a][at]) continue;
            real *phi = s->phi + count * t->value_features;
            fourier(t->values[a][at], t->frequencies, t->step, phi);
            for (int h = 0; h < t->heads; h++) {
                real logit = t->kind_logit[(first + c) * t->heads + h];
                logit += dot(phi, t->value_logit + h * t->value_features, t->value_features);
                if (field) logit += dot(field, t->site_logit + h * t->site_features, t->site_features);
                s->weight[count * t->heads + h] = logit;
            }
            s->field[count] = field;
            s->kind[count++] = first + c;
        }
    }
    softmax_rows(s->weight, count, t->heads);
    return count;
}

int observe_forward(const Observing *t, int64_t first, int64_t last) {
    Seen s = new_seen(t);
    const int heads = t->heads, value = t->value_features, kind = t->kind_features, site = t->site_features;
    const int token = value + kind + site;
    const int64_t stride = t->queries * token;
    if (!s.phi || !s.weight || !s.grad || !s.field || !s.kind) { free_seen(&s); return 1; }
    for (int64_t m = first; m < last; m++) {
        real *pooled = t->pooled + m * token; /* of the first head; the others follow every `stride` */
        int count = see(t, m, &s);
        for (int h = 0; h < heads; h++)
            if (count) memset(pooled + h * stride, 0, sizeof(real) * token);
            else memcpy(pooled + h * stride, t->unseen, sizeof(real) * token);
        for (int k = 0; k < count; k++)
            for (int h = 0; h < heads; h++) {
                real weight = s.weight[k * heads + h], *to = pooled + h * stride;
                add_scaled(to, weight, s.phi + k * value, value);
                add_scaled(to + value, weight, t->kind + s.kind[k] * kind, kind);
                if (s.field[k]) add_scaled(to + value + kind, weight, s.field[k], site);
            }
    }
    free_seen(&s);
    return 0;
}

int observe_backward(const Observing *t, int64_t first, int64_t last) {
    Seen s = new_seen(t);
    const int heads = t->heads, value = t->value_features, kind = t->kind_features, site = t->site_features;
    const int token = value + kind + site;
    const int64_t stride = t->queries * token;
    if (!s.phi || !s.weight || !s.grad || !s.field || !s.kind) { free_seen(&s); return 1; }
    for (int64_t m = first; m < last; m++) {
        const real *pull = t->pooled_grad + m * token;
        int count = see(t, m, &s);
        if (!count)
            for (int h = 0; h < heads; h++) add_scaled(t->unseen_grad, 1, pull + h * stride, token);
        for (int k = 0; k < count; k++)
            for (int h = 0; h < heads; h++) {
                const real *from = pull + h * stride;
                real grad = dot(from, s.phi + k * value, value) + dot(from + value, t->kind + s.kind[k] * kind, kind);
                if (s.field[k]) grad += dot(from + value + kind, s.field[k], site);
                s.grad[k * heads + h] = grad;
                add_scaled(t->kind_grad + s.kind[k] * kind, s.weight[k * heads + h], from + value, kind);
            }
        softmax_rows_backward(s.weight, s.grad, count, heads);
        for (int k = 0; k < count; k++)
            for (int h = 0; h < heads; h++) {
                real grad = s.grad[k * heads + h];
                t->kind_logit_grad[s.kind[k] * heads + h] += grad;
                add_scaled(t->value_logit_grad + h * value, grad, s.phi + k * value, value);
                if (s.field[k]) add_scaled(t->site_logit_grad + h * site, grad, s.field[k], site);
            }
    }
    free_seen(&s);
    return 0;
}

typedef struct {
    const real *query, *turned;     /* queries x heads x dim; heads x queries x offset_features, or null */
    const real *key, *value;        /* latents x heads x dim */
    const int64_t *neighbor;        /* queries x neighbors */
    const double *position, *anchor; /* (x, y) in metres */
    int64_t queries;
    int32_t neighbors, heads, dim, frequencies;
    double step, scale;
    real *attended, *pooled;        /* as query; as turned */
    const real *attended_grad, *pooled_grad;
    real *query_grad, *turned_grad, *key_grad, *value_grad;
} Asking;

static int asking_features(const Asking *t) { return t->turned ? 2 * (2 * t->frequencies + 1) : 0; }

/* Offset features (neighbors x features) of query m and its attention (neighbors x heads). */
static void ask(const Asking *t, int64_t m, real *phi, real *weight) {
    const int heads = t->heads, dim = t->dim, features = asking_features(t);
    for (int k = 0; k < t->neighbors; k++) {
        int64_t latent = t->neighbor[m * t->neighbors + k];
        for (int axis = 0; features && axis < 2; axis++) {
            double delta = t->anchor[2 * latent + axis] - t->position[2 * m + axis];
            fourier((real)((real)delta / ((real)t->scale + fabs((real)delta))), t->frequencies, t->step,
                    phi + k * features + axis * features / 2);
        }
        for (int h = 0; h < heads; h++) {
            real logit = dot(t->query + (m * heads + h) * dim, t->key + (latent * heads + h) * dim, dim);
            if (features) logit += dot(t->turned + (h * t->queries + m) * features, phi + k * features, features);
            weight[k * heads + h] = logit;
        }
    }
    softmax_rows(weight, t->neighbors, heads);
}

int ask_forward(const Asking *t, int64_t first, int64_t last) {
    const int heads = t->heads, dim = t->dim, features = asking_features(t);
    real phi[MAX_NEIGHBORS * MAX_FEATURES], weight[MAX_NEIGHBORS * MAX_HEADS];
    for (int64_t m = first; m < last; m++) {
        ask(t, m, phi, weight);
        memset(t->attended + m * heads * dim, 0, sizeof(real) * heads * dim);
        for (int h = 0; h < heads; h++) {
            real *pooled = features ? t->pooled + (h * t->queries + m) * features : NULL;
            if (features) memset(pooled, 0, sizeof(real) * features);
            for (int k = 0; k < t->neighbors; k++) {
                int64_t latent = t->neighbor[m * t->neighbors + k];
                real w = weight[k * heads + h];
                add_scaled(t->attended + (m * heads + h) * dim, w, t->value + (latent * heads + h) * dim, dim);
                if (features) add_scaled(pooled, w, phi + k * features, features);
            }
        }
    }
    return 0;
}

int ask_backward(const Asking *t, int64_t first, int64_t last) {
    const int heads = t->heads, dim = t->dim, features = asking_features(t);
    real phi[MAX_NEIGHBORS * MAX_FEATURES], weight[MAX_NEIGHBORS * MAX_HEADS], grad[MAX_NEIGHBORS * MAX_HEADS];
    for (int64_t m = first; m < last; m++) {
        ask(t, m, phi, weight);
        for (int h = 0; h < heads; h++)
            for (int k = 0; k < t->neighbors; k++) {
                int64_t latent = (t->neighbor[m * t->neighbors + k] * heads + h) * dim;
                const real *pull = t->attended_grad + (m * heads + h) * dim;
                real g = dot(pull, t->value + latent, dim);
                if (features) g += dot(t->pooled_grad + (h * t->queries + m) * features, phi + k * features, features);
                grad[k * heads + h] = g;
                add_scaled(t->value_grad + latent, weight[k * heads + h], pull, dim);
            }
        softmax_rows_backward(weight, grad, t->neighbors, heads);
        memset(t->query_grad + m * heads * dim, 0, sizeof(real) * heads * dim);
        for (int h = 0; h < heads; h++) {
            real *turned_grad = features ? t->turned_grad + (h * t->queries + m) * features : NULL;
            if (features) memset(turned_grad, 0, sizeof(real) * features);
            for (int k = 0; k < t->neighbors; k++) {
                int64_t latent = (t->neighbor[m * t->neighbors + k] * heads + h) * dim;
                real g = grad[k * heads + h];
                add_scaled(t->query_grad + (m * heads + h) * dim, g, t->key + latent, dim);
                add_scaled(t->key_grad + latent, g, t->query + (m * heads + h) * dim, dim);
                if (features) add_scaled(turned_grad, g, phi + k * features, features);
            }
        }
    }
    return 0;
}
