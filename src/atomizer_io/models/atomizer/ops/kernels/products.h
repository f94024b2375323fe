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

/* How many of `rows` go into the next tile: tiles of nearly equal size, none of more than 6. */
INLINE int tile_rows(int rows) {
    int tiles = (rows + 5) / 6;
    return (rows + tiles - 1) / tiles;
}

/* Calls of a function of tiles for up to 6 of `count` rows each; the columns are those of the loop around. */
#define BY_ROWS(count, tile)                                     \
    for (int r = 0, now; r < (count); r += now) {                \
        now = tile_rows((count) - r);                            \
        switch (now) {                                           \
            case 6: tile(6); break;                              \
            case 5: tile(5); break;                              \
            case 4: tile(4); break;                              \
            case 3: tile(3); break;                              \
            case 2: tile(2); break;                              \
            default: tile(1); break;                             \
        }                                                        \
    }

static void product(int rows, int depth, const real *a, int a_row, int a_column, Matrix b, Matrix c, int width) {
    int j = 0;
#define PRODUCT_TILE(rows, columns) \
    product_tile(rows, columns, depth, a + r * a_row, a_row, a_column, (Matrix){b.at + j, b.row}, (Matrix){below(c, r).at + j, c.row})
#define PRODUCT_PAIR(rows) PRODUCT_TILE(rows, 2)
#define PRODUCT_ONE(rows) PRODUCT_TILE(rows, 1)
    for (; j + 2 * LANES <= width; j += 2 * LANES) BY_ROWS(rows, PRODUCT_PAIR)
    if (j < width) BY_ROWS(rows, PRODUCT_ONE)
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
