// Attention of some queries over a range of paged keys and values, one KV head at a time.
//
// A page is [G, page_size / 16, 16 slots]; of the 16 slots of a block, keys are stored as
// [d / 2, 16 slots, 2] and values as [8, d, 2] bfloat16, so that a vector holds one pair of inputs
// for 16 results. Letters: G key-value heads, d head size. Softmax is online over chunks of slots,
// in float32 with base 2 (log2 e is in the scale of the queries).

#pragma once

#include <algorithm>

#include "simd.h"

constexpr int kBlockSlots = 16;
constexpr int kChunkBlocks = 8;
constexpr int kChunkSlots = kChunkBlocks * kBlockSlots;
constexpr int kPrefetchBlocks = 4;  // how far ahead memory is asked for
constexpr int kMaxQueries = 64;
constexpr int kMaxHeadDim = 256;
constexpr float kMasked = -1e30f;  // a score that no sum of products reaches

// The keys and values of one layer, and what a score goes through.
struct PagedKv {
    uint32_t *keys;
    uint32_t *values;
    int num_kv_heads;
    int head_dim;
    int page_size;

    size_t block_offset(int page, int kv_head, int block) const {
        const size_t slot = ((size_t)page * num_kv_heads + kv_head) * page_size;
        return (slot + (size_t)block * kBlockSlots) * (head_dim / 2);
    }
};

// Queries that share keys. [slot_begin, slot_end) of the sequence in `pages` is read; a query at
// `positions[i]` sees the slots up to its position, the last `window` of them (0 = all).
struct KeyRange {
    const int32_t *pages;
    int slot_begin;  // a multiple of 16
    int slot_end;
    int window;
    float softcap;  // 0 = none
};

// What one thread needs. queries: transposed, so that those of one d pair lie side by side.
struct AttentionScratch {
    int num_queries;
    int positions[kMaxQueries];
    float best[kMaxQueries];
    float total[kMaxQueries];
    alignas(64) uint32_t queries[kMaxHeadDim / 2][kMaxQueries];
    alignas(64) float scores[kMaxQueries][kChunkSlots];
    alignas(64) uint32_t weights[kMaxQueries][kChunkSlots / 2];
    alignas(64) float sums[kMaxQueries][kMaxHeadDim];
};

// Few queries have two sums each, so that no product waits for the one before it.
template <int Q>
RG_INLINE void score_block(AttentionScratch &scratch, int first, const uint32_t *keys,
                           int half_dim, int column) {
    f32x16 even[Q] = {}, odd[Q] = {};
    for (int j = 0; j < half_dim; j += 2) {
        const u32x16 pair = load<u32x16>(keys + 16 * j), next = load<u32x16>(keys + 16 * j + 16);
        const uint32_t *query = scratch.queries[j] + first, *after = scratch.queries[j + 1] + first;
        for (int i = 0; i < Q; ++i) even[i] = dot2(even[i], pair, query[i]);
        for (int i = 0; i < Q; ++i) odd[i] = dot2(odd[i], next, after[i]);
    }
    for (int i = 0; i < Q; ++i) store(&scratch.scores[first + i][column], even[i] + odd[i]);
}

// Asks for the keys and values of a block: pages lie anywhere, so the processor cannot guess them.
RG_INLINE void prefetch_block(const PagedKv &kv, size_t at) {
    const int num_bytes = kBlockSlots * kv.head_dim * 2;
    for (int byte = 0; byte < num_bytes; byte += 64) {
        __builtin_prefetch((const char *)(kv.keys + at) + byte);
        __builtin_prefetch((const char *)(kv.values + at) + byte);
    }
}

// sums[first .. first + 4)[offset .. offset + 16 C) += weights * values of the chunk's blocks.
template <int C>
RG_INLINE void add_values(AttentionScratch &scratch, int first, const uint32_t *const *blocks,
                          int num_blocks, int head_dim, int offset) {
    f32x16 acc[4][C];
    for (int i = 0; i < 4; ++i) {
        for (int c = 0; c < C; ++c) {
            acc[i][c] = load<f32x16>(&scratch.sums[first + i][offset + 16 * c]);
        }
    }
    for (int block = 0; block < num_blocks; ++block) {
        const uint32_t *row = blocks[block] + offset;
        for (int pair = 0; pair < kBlockSlots / 2; ++pair, row += head_dim) {
            for (int c = 0; c < C; ++c) {
                const u32x16 value = load<u32x16>(row + 16 * c);
                for (int i = 0; i < 4; ++i) {
                    const uint32_t weight = scratch.weights[first + i][block * 8 + pair];
                    acc[i][c] = dot2(acc[i][c], value, weight);
                }
            }
        }
    }
    for (int i = 0; i < 4; ++i) {
        for (int c = 0; c < C; ++c) {
            store(&scratch.sums[first + i][offset + 16 * c], acc[i][c]);
        }
    }
}

// Masks query i's scores of `num_slots` slots from `first_slot`, and turns them into weights.
static void weigh_scores(AttentionScratch &scratch, int i, int first_slot, int num_slots,
                         const KeyRange &range, int head_dim) {
    float *scores = scratch.scores[i];
    const int last_seen = std::min(scratch.positions[i], range.slot_end - 1);
    const int first_seen = range.window > 0 ? scratch.positions[i] - range.window + 1 : 0;
    const bool is_partial = first_slot < first_seen || first_slot + num_slots - 1 > last_seen;
    f32x16 largest = splat(kMasked);
    for (int s = 0; s < num_slots; s += 16) {
        f32x16 score = load<f32x16>(scores + s);
        if (range.softcap > 0.0f) {
            score = tanh_approx(score * (1.0f / (range.softcap * 1.44269504f)));
            score *= range.softcap * 1.44269504f;
        }
        if (is_partial) {
            i32x16 slot = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
            slot += first_slot + s;
            score = (slot <= last_seen) & (slot >= first_seen) ? score : splat(kMasked);
        }
        store(scores + s, score);
        largest = maximum(largest, score);
    }
    const float best = std::max(scratch.best[i], reduce_max(largest));
    if (best <= kMasked) {
        memset(scratch.weights[i], 0, num_slots * 2);
        return;
    }
    const float correction = exp2_approx(splat(scratch.best[i] - best))[0];
    f32x16 total = {};
    for (int s = 0; s < num_slots; s += 16) {
        const u32x16 weight = to_bf16(exp2_approx(load<f32x16>(scores + s) - best));
        total += as_float(weight << 16);
        store((uint16_t *)scratch.weights[i] + s, __builtin_convertvector(weight, u16x16));
    }
    scratch.total[i] = scratch.total[i] * correction + reduce_add(total);
    if (correction != 1.0f) {
        for (int at = 0; at < head_dim; at += 16) {
            store(&scratch.sums[i][at], load<f32x16>(&scratch.sums[i][at]) * correction);
        }
    }
    scratch.best[i] = best;
}

// The queries in `scratch` over the range: leaves best, total and the unnormalized sums there.
static void attend(AttentionScratch &scratch, const PagedKv &kv, int kv_head,
                   const KeyRange &range) {
    const int num_queries = scratch.num_queries, padded = (num_queries + 3) / 4 * 4;
    const int blocks_in_page = kv.page_size / kBlockSlots;
    const auto offset_of = [&](int slot) {
        const int block = slot / kBlockSlots, page = range.pages[block / blocks_in_page];
        return kv.block_offset(page, kv_head, block % blocks_in_page);
    };
    for (int i = 0; i < padded; ++i) {
        scratch.best[i] = kMasked;
        scratch.total[i] = 0.0f;
        memset(scratch.sums[i], 0, kv.head_dim * sizeof(float));
        memset(scratch.weights[i], 0, sizeof scratch.weights[i]);
    }
    for (int slot = range.slot_begin; slot < range.slot_end; slot += kChunkSlots) {
        const int left = range.slot_end - slot;
        const int num_blocks = std::min(kChunkBlocks, (left + kBlockSlots - 1) / kBlockSlots);
        const uint32_t *values[kChunkBlocks];
        for (int b = 0; b < num_blocks; ++b) {
            const size_t at = offset_of(slot + b * kBlockSlots);
            values[b] = kv.values + at;
            const int ahead = slot + (b + kPrefetchBlocks) * kBlockSlots;
            if (ahead < range.slot_end) prefetch_block(kv, offset_of(ahead));
            int i = 0;
            for (; i + 8 <= padded; i += 8) {
                score_block<8>(scratch, i, kv.keys + at, kv.head_dim / 2, b * kBlockSlots);
            }
            if (i < padded) {
                score_block<4>(scratch, i, kv.keys + at, kv.head_dim / 2, b * kBlockSlots);
            }
        }
        for (int i = 0; i < num_queries; ++i) {
            weigh_scores(scratch, i, slot, num_blocks * kBlockSlots, range, kv.head_dim);
        }
        for (int i = 0; i < padded; i += 4) {
            int at = 0;
            for (; at + 64 <= kv.head_dim; at += 64) {
                add_values<4>(scratch, i, values, num_blocks, kv.head_dim, at);
            }
            for (; at < kv.head_dim; at += 16) {
                add_values<1>(scratch, i, values, num_blocks, kv.head_dim, at);
            }
        }
    }
}

// Writes one head's key and value, [d] floats each, to a slot.
static void write_slot(const PagedKv &kv, int page, int kv_head, int slot, const float *key,
                       const float *value) {
    const size_t at = kv.block_offset(page, kv_head, slot / kBlockSlots);
    const int s = slot % kBlockSlots;
    uint16_t *keys = (uint16_t *)(kv.keys + at) + 2 * s;
    uint16_t *values = (uint16_t *)(kv.values + at) + (size_t)(s / 2) * 2 * kv.head_dim + s % 2;
    for (int i = 0; i < kv.head_dim; i += 16) {
        const u32x16 k = to_bf16(load<f32x16>(key + i)), v = to_bf16(load<f32x16>(value + i));
        for (int j = 0; j < 16; ++j) {
            keys[(i + j) / 2 * 2 * kBlockSlots + (j & 1)] = (uint16_t)k[j];
            values[2 * (i + j)] = (uint16_t)v[j];
        }
    }
}

// The inverse of write_slot, up to the rounding to bfloat16.
static void read_slot(const PagedKv &kv, int page, int kv_head, int slot, float *key,
                      float *value) {
    const size_t at = kv.block_offset(page, kv_head, slot / kBlockSlots);
    const int s = slot % kBlockSlots;
    const uint16_t *keys = (const uint16_t *)(kv.keys + at) + 2 * s;
    const uint16_t *values =
        (const uint16_t *)(kv.values + at) + (size_t)(s / 2) * 2 * kv.head_dim + s % 2;
    for (int i = 0; i < kv.head_dim; ++i) {
        key[i] = from_bf16(keys[i / 2 * 2 * kBlockSlots + (i & 1)]);
        value[i] = from_bf16(values[2 * i]);
    }
}
