// The best token of a row of scores, under a mask of allowed tokens.

#pragma once

#include <cmath>

#include "simd.h"

// Scores of 16 tokens from `first`, -inf where the mask has no bit. The mask may be null.
RG_INLINE f32x16 masked_scores(const float *scores, int first, const uint32_t *mask) {
    const f32x16 loaded = load<f32x16>(scores + first);
    if (!mask) return loaded;
    const uint32_t bits = mask[first / 32] >> (first % 32);
    u32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const u32x16 allowed = ((u32x16{} + bits) >> lane) & 1u;
    return allowed != 0u ? loaded : splat(-INFINITY);
}

static void choose_token(const float *scores, int vocab_size, const uint32_t *mask,
                         int32_t *token, float *best) {
    f32x16 greatest = splat(-INFINITY);
    i32x16 at = {};
    const i32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int whole = vocab_size / 16 * 16;
    for (int first = 0; first < whole; first += 16) {
        const f32x16 score = masked_scores(scores, first, mask);
        const i32x16 is_better = score > greatest;
        greatest = is_better ? score : greatest;
        at = is_better ? lanes + first : at;
    }
    *best = -INFINITY;
    *token = 0;
    for (int lane = 0; lane < 16; ++lane) {
        if (greatest[lane] > *best || (greatest[lane] == *best && at[lane] < *token)) {
            *best = greatest[lane];
            *token = at[lane];
        }
    }
    for (int i = whole; i < vocab_size; ++i) {
        const bool is_allowed = !mask || (mask[i / 32] >> (i % 32) & 1u);
        if (is_allowed && scores[i] > *best) {
            *best = scores[i];
            *token = i;
        }
    }
}
