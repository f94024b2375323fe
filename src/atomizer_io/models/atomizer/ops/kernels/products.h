/* Small matrix products whose operands stay in the cache. */

#ifndef ATOMIZER_PRODUCTS_H
#define ATOMIZER_PRODUCTS_H

#include "vectors.h"

/* Distance between rows of `width` numbers in a working space. Rows a power of two apart would fight for the same few
   places in the cache. */
static int spaced(int width) { return width + 64 / (int)sizeof(real); }

/* A matrix: its first number and the distance between its rows. */
typedef struct {
    real *at;
    int row;
} Matrix;

INLINE Matrix below(Matrix x, int rows) { return (Matrix){x.at + (int64_t)rows * x.row, x.row}; }

/* C (rows x width) += A (rows x depth) B (depth x width); a tile of C stays in registers. A number of A is at
   a[row * a_row + column * a_column]. */
INLINE void product_tile(const int rows, const int columns, int depth, const real *a, int a_row, int a_column, Matrix b, Matrix c) {
    vec sum[6][2];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++) sum[r][j] = load(c.at + r * c.row + j * LANES);
    for (int k = 0; k < depth; k++) {
        vec line[2];
        for (int j = 0; j < columns; j++) line[j] = load(b.at + (int64_t)k * b.row + j * LANES);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < columns; j++) sum[r][j] += a[r * a_row + k * a_column] * line[j];
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++) store(c.at + r * c.row + j * LANES, sum[r][j]);
}

INLINE void product_rows(const int rows, int depth, const real *a, int a_row, int a_column, Matrix b, Matrix c, int width) {
    int j = 0;
    for (; j + 2 * LANES <= width; j += 2 * LANES)
        product_tile(rows, 2, depth, a, a_row, a_column, (Matrix){b.at + j, b.row}, (Matrix){c.at + j, c.row});
    if (j < width) product_tile(rows, 1, depth, a, a_row, a_column, (Matrix){b.at + j, b.row}, (Matrix){c.at + j, c.row});
}

/* How many of `rows` go into the next tile: tiles of nearly equal size, none of more than 6. */
INLINE int tile_rows(int rows) {
    int tiles = (rows + 5) / 6;
    return (rows + tiles - 1) / tiles;
}

static void product(int rows, int depth, const real *a, int a_row, int a_column, Matrix b, Matrix c, int width) {
    while (rows) {
        int now = tile_rows(rows);
        switch (now) {
            case 6: product_rows(6, depth, a, a_row, a_column, b, c, width); break;
            case 5: product_rows(5, depth, a, a_row, a_column, b, c, width); break;
            case 4: product_rows(4, depth, a, a_row, a_column, b, c, width); break;
            case 3: product_rows(3, depth, a, a_row, a_column, b, c, width); break;
            case 2: product_rows(2, depth, a, a_row, a_column, b, c, width); break;
            default: product_rows(1, depth, a, a_row, a_column, b, c, width); break;
        }
        rows -= now, a += now * a_row, c = below(c, now);
    }
}

/* out[r * out_row + h] = x[r] . y[h] for rows of length width. */
INLINE void dots_tile(const int rows, const int heads, Matrix x, Matrix y, int width, real *out, int out_row) {
    vec sum[3][4] = {{{0}}};
    for (int d = 0; d < width; d += LANES)
        for (int h = 0; h < heads; h++) {
            vec line = load(y.at + h * y.row + d);
            for (int r = 0; r < rows; r++) sum[r][h] += load(x.at + r * x.row + d) * line;
        }
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < heads; h++) out[r * out_row + h] = sum_lanes(sum[r][h]);
}

static void dots(int rows, int heads, Matrix x, Matrix y, int width, real *out, int out_row) {
    for (int r = 0; r < rows;) {
        int now = rows - r >= 3 ? 3 : 1;
        for (int h = 0; h < heads;) {
            int group = heads - h >= 4 ? 4 : 1;
            Matrix left = below(x, r), right = below(y, h);
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
