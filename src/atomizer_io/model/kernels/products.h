/* Small matrix products whose operands stay in the cache. */

#ifndef ATOMIZER_PRODUCTS_H
#define ATOMIZER_PRODUCTS_H

#include "vectors.h"

/* C (rows x width) += A (rows x depth) B (depth x width); a tile of C stays in registers. */
INLINE void product_tile(const int rows, const int columns, int depth, const real *a, int a_row, const real *b, int width,
                         real *c) {
    vec sum[6][2];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++) sum[r][j] = load(c + r * width + j * LANES);
    for (int k = 0; k < depth; k++) {
        vec line[2];
        for (int j = 0; j < columns; j++) line[j] = load(b + (int64_t)k * width + j * LANES);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < columns; j++) sum[r][j] += a[r * a_row + k] * line[j];
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++) store(c + r * width + j * LANES, sum[r][j]);
}

INLINE void product_rows(const int rows, int depth, const real *a, int a_row, const real *b, int width, real *c) {
    int j = 0;
    for (; j + 2 * LANES <= width; j += 2 * LANES) product_tile(rows, 2, depth, a, a_row, b + j, width, c + j);
    if (j < width) product_tile(rows, 1, depth, a, a_row, b + j, width, c + j);
}

static void product(int rows, int depth, const real *a, int a_row, const real *b, int width, real *c) {
    while (rows) {
        int now = rows >= 6 && rows != 8 ? 6 : rows >= 4 ? 4 : rows;
        switch (now) {
            case 6: product_rows(6, depth, a, a_row, b, width, c); break;
            case 4: product_rows(4, depth, a, a_row, b, width, c); break;
            case 3: product_rows(3, depth, a, a_row, b, width, c); break;
            case 2: product_rows(2, depth, a, a_row, b, width, c); break;
            default: product_rows(1, depth, a, a_row, b, width, c); break;
        }
        rows -= now, a += now * a_row, c += (int64_t)now * width;
    }
}

/* out[r * out_row + h] = x[r] . y[h] for rows of length width. */
INLINE void dots_tile(const int rows, const int heads, const real *x, const real *y, int width, real *out, int out_row) {
    vec sum[3][4] = {{{0}}};
    for (int d = 0; d < width; d += LANES)
        for (int h = 0; h < heads; h++) {
            vec line = load(y + h * width + d);
            for (int r = 0; r < rows; r++) sum[r][h] += load(x + r * width + d) * line;
        }
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < heads; h++) out[r * out_row + h] = sum_lanes(sum[r][h]);
}

static void dots(int rows, int heads, const real *x, const real *y, int width, real *out, int out_row) {
    for (int r = 0; r < rows;) {
        int now = rows - r >= 3 ? 3 : 1;
        for (int h = 0; h < heads;) {
            int group = heads - h >= 4 ? 4 : 1;
            const real *left = x + r * width, *right = y + h * width;
            real *to = out + r * out_row + h;
            if (now == 3 && group == 4) dots_tile(3, 4, left, right, width, to, out_row);
            else if (now == 3) dots_tile(3, 1, left, right, width, to, out_row);
            else if (group == 4) dots_tile(1, 4, left, right, width, to, out_row);
            else dots_tile(1, 1, left, right, width, to, out_row);
            h += group;
        }
        r += now;
    }
}

#endif
