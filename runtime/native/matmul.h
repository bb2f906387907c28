// Matrices of 4- or 8-bit weights times rows of 8-bit activations, both in blocks of 32.
//
// A weight is d * u + m with an unsigned u and the d and m of its block, an activation is s * q
// with a signed q and the s of its block. So a block's share of a product is
//     s * d * sum(u * q) + m * (s * sum(q))
// with both sums exact integers. Letters: N outputs, K inputs, B = K / 32 blocks, R rows.

#pragma once

#include "simd.h"

constexpr int kBlockLen = 32;  // weights that share a scale; ggml's block length
constexpr int kTileRows = 16;  // outputs side by side in a vector
// How far ahead weights are asked for. Sixteen rows from memory, in Gop/s on one Zen 5 core, for 4 bits
// with K = 576 and K = 1,536, and 8 bits with K = 576: 362, 347, 178 without; 545, 571, 491 at 2,048;
// 587, 614, 580 at 6,144; 582, 603, 585 at 10,240; 600 to 640 from the cache.
constexpr int kPrefetchBytes = 6144;

// Tile after tile of 16 outputs, block after block: [64 * bits bytes of weights][16 halves d]
// [16 halves m]. d and m are to be multiplied by `scale`. Of 8-bit weights, each 64 bytes hold four
// neighbouring inputs of the 16 outputs; of 4-bit ones, eight: low nibbles, then high ones.
struct Matrix {
    const uint8_t *data;
    float scale;
    int32_t bits;
    int32_t num_outputs;  // N, a multiple of 16
    int32_t num_blocks;   // B
};

RG_INLINE int block_bytes(int bits) { return 64 * bits + 64; }

RG_INLINE const uint8_t *tile_at(const Matrix &matrix, int tile) {
    return matrix.data + (size_t)tile * matrix.num_blocks * block_bytes(matrix.bits);
}

// R rows of activations, block after block and within it row after row, so that neighbouring rows
// lie side by side. q: [B, stride, 32], scales and sums: [B, stride]; sums are s * sum(q).
struct Quantized {
    int8_t *q;
    float *scales;
    float *sums;
    int stride;

    Quantized from_row(int row) const {
        return {q + (size_t)row * kBlockLen, scales + row, sums + row, stride};
    }
};

// Quantizes the 32 values of one row's block to [-127, 127].
RG_INLINE void quantize_block(f32x16 a, f32x16 b, const Quantized &to, int row, int block) {
    const float largest = reduce_max(maximum(absolute(a), absolute(b)));
    const float scale = largest / 127.0f;
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    const i32x16 low = round_to_int(a * inverse), high = round_to_int(b * inverse);
    const size_t at = (size_t)block * to.stride + row;
    store_int8(to.q + at * kBlockLen, low);
    store_int8(to.q + at * kBlockLen + 16, high);
    to.scales[at] = scale;
    to.sums[at] = scale * reduce_add(to_float(low) + to_float(high));
}

template <int BITS>
RG_INLINE void load_weights(const uint8_t *from, u8x64 w[8]) {
    if constexpr (BITS == 8) {
        for (int i = 0; i < 8; ++i) w[i] = load<u8x64>(from + 64 * i);
    } else {
        for (int i = 0; i < 4; ++i) {
            const u32x16 both = load<u32x16>(from + 64 * i);
            w[2 * i] = (u8x64)(both & 0x0f0f0f0fu);
            w[2 * i + 1] = (u8x64)((both >> 4) & 0x0f0f0f0fu);
        }
    }
}

// One tile times R rows -> out[r], without the matrix's scale.
template <int R, int BITS>
RG_INLINE void tile_times_rows(const uint8_t *tile, int num_blocks, const Quantized &x,
                               f32x16 out[R]) {
    f32x16 acc[R] = {};
    const int8_t *q = x.q;
    const float *scales = x.scales, *sums = x.sums;
    for (int block = 0; block < num_blocks; ++block) {
        for (int byte = 0; byte < 64 * BITS + 64; byte += 64) {
            __builtin_prefetch(tile + kPrefetchBytes + byte);
        }
        u8x64 w[8];
        load_weights<BITS>(tile, w);
        const f32x16 d = load_half(tile + 64 * BITS), m = load_half(tile + 64 * BITS + 32);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            i32x16 dots = {};
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) {
                const int32_t x4 = load<int32_t>(q + r * kBlockLen + 4 * i);
                dots = BITS == 4 ? dot4_nibbles(dots, w[i], x4) : dot4_bytes(dots, w[i], x4);
            }
            acc[r] += to_float(dots) * d * scales[r];
            acc[r] += m * sums[r];
        }
        tile += 64 * BITS + 64;
        q += (size_t)x.stride * kBlockLen;
        scales += x.stride;
        sums += x.stride;
    }
    for (int r = 0; r < R; ++r) out[r] = acc[r];
}

template <int R>
static void tile_times(const Matrix &matrix, int tile, const Quantized &x, f32x16 out[R]) {
    if (matrix.bits == 4) {
        tile_times_rows<R, 4>(tile_at(matrix, tile), matrix.num_blocks, x, out);
    } else {
        tile_times_rows<R, 8>(tile_at(matrix, tile), matrix.num_blocks, x, out);
    }
    for (int r = 0; r < R; ++r) out[r] *= matrix.scale;
}

// Calls visit.template operator()<R>(first row) for runs of 16, 8, 4, 2 and 1 rows.
template <typename Visit>
RG_INLINE void for_row_runs(int num_rows, Visit visit) {
    int row = 0;
    for (; num_rows - row >= 16; row += 16) visit.template operator()<16>(row);
    if (num_rows - row >= 8) visit.template operator()<8>(row), row += 8;
    if (num_rows - row >= 4) visit.template operator()<4>(row), row += 4;
    if (num_rows - row >= 2) visit.template operator()<2>(row), row += 2;
    if (num_rows - row >= 1) visit.template operator()<1>(row);
}

// Tile `tile` times all rows; write(row, 16 outputs) takes what comes out.
template <typename Write>
RG_INLINE void multiply_tile(const Matrix &matrix, int tile, const Quantized &x, int num_rows,
                             Write write) {
    for_row_runs(num_rows, [&]<int R>(int row) {
        f32x16 out[R];
        tile_times<R>(matrix, tile, x.from_row(row), out);
        for (int r = 0; r < R; ++r) write(row + r, out[r]);
    });
}

// [gate | up] times all rows, then activation(gate) * up, quantized as block `block` of 32. The
// tiles of gate and up alternate.
template <typename Activation>
RG_INLINE void multiply_gated(const Matrix &gate_up, int block, const Quantized &x, int num_rows,
                              const Quantized &to, Activation activation) {
    for_row_runs(num_rows, [&]<int R>(int row) {
        f32x16 gated[2][R];
        for (int half = 0; half < 2; ++half) {
            f32x16 gate[R], up[R];
            const int tile = 4 * block + 2 * half;
            tile_times<R>(gate_up, tile, x.from_row(row), gate);
            tile_times<R>(gate_up, tile + 1, x.from_row(row), up);
            for (int r = 0; r < R; ++r) gated[half][r] = activation(gate[r]) * up[r];
        }
        for (int r = 0; r < R; ++r) quantize_block(gated[0][r], gated[1][r], to, row + r, block);
    });
}

// Row `row` of the matrix as floats, [32 * B].
static void expand_row(const Matrix &matrix, int row, float *to) {
    const int lane = row % kTileRows;
    const uint8_t *at = tile_at(matrix, row / kTileRows);
    for (int block = 0; block < matrix.num_blocks; ++block) {
        const uint8_t *tail = at + 64 * matrix.bits;
        const float d = load_half(tail)[lane] * matrix.scale;
        const float m = load_half(tail + 32)[lane] * matrix.scale;
        for (int k = 0; k < kBlockLen; ++k) {
            const int group = k / 4;
            int u;
            if (matrix.bits == 8) {
                u = at[64 * group + 4 * lane + k % 4];
            } else {
                u = (at[64 * (group / 2) + 4 * lane + k % 4] >> (4 * (group % 2))) & 15;
            }
            to[block * kBlockLen + k] = d * (float)u + m;
        }
        at = tail + 64;
    }
}
