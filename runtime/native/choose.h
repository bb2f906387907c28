// The token of a row of scores, under a mask of allowed tokens: the best one, or one drawn by adding
// Gumbel noise to the scores (runtime/noise.py, whose hash this repeats).

#pragma once

#include <cmath>

#include "simd.h"

// How a row's token is chosen. mask: [V / 32] words, null = all tokens. temperature 0 = the best.
struct Choice {
    const uint32_t *mask;
    float temperature;
    uint32_t key[2];  // of the noise
};

// Scores of 16 tokens from `first`, -inf where the mask has no bit.
RG_INLINE f32x16 masked_scores(const float *scores, int first, const uint32_t *mask) {
    const f32x16 loaded = load<f32x16>(scores + first);
    if (!mask) return loaded;
    const uint32_t bits = mask[first / 32] >> (first % 32);
    const u32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const u32x16 allowed = ((u32x16{} + bits) >> lane) & 1u;
    return allowed != 0u ? loaded : splat(-INFINITY);
}

RG_INLINE f32x16 gumbel_noise(u32x16 token, const uint32_t key[2]) {
    u32x16 word = token * 0x9E3779B9u + key[0];
    word ^= word >> 16;
    word *= 0x7FEB352Du;
    word += key[1];
    word ^= word >> 15;
    word *= 0x846CA68Bu;
    word ^= word >> 16;
    const f32x16 uniform = (to_float((i32x16)(word >> 9)) + 0.5f) * 0x1p-23f;
    return -log_approx(-log_approx(uniform));
}

template <bool DRAWS>
RG_INLINE f32x16 noisy_scores(const float *scores, int first, const Choice &choice) {
    f32x16 score = masked_scores(scores, first, choice.mask);
    if (DRAWS) {
        const u32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        score = score / choice.temperature + gumbel_noise(lanes + (uint32_t)first, choice.key);
    }
    return score;
}

template <bool DRAWS>
RG_INLINE void choose_among(const float *scores, int vocab_size, const Choice &choice,
                            int32_t *token, float *best) {
    const i32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    f32x16 greatest = splat(-INFINITY);
    i32x16 at = {};
    const auto take = [&](f32x16 score, int first) {
        const i32x16 is_better = score > greatest;
        greatest = is_better ? score : greatest;
        at = is_better ? lanes + first : at;
    };
    const int whole = vocab_size / 16 * 16;
    for (int first = 0; first < whole; first += 16) {
        take(noisy_scores<DRAWS>(scores, first, choice), first);
    }
    if (whole < vocab_size) {
        float tail[16];
        for (int i = 0; i < 16; ++i) {
            tail[i] = whole + i < vocab_size ? scores[whole + i] : -INFINITY;
        }
        take(noisy_scores<DRAWS>(tail - whole, whole, choice), whole);
    }
    *best = -INFINITY;
    *token = 0;
    for (int lane = 0; lane < 16; ++lane) {
        if (greatest[lane] > *best || (greatest[lane] == *best && at[lane] < *token)) {
            *best = greatest[lane];
            *token = at[lane];
        }
    }
}

// The chosen token and its score, with noise where it is drawn; -inf if no token is allowed. Of
// equal scores the first token has it.
static void choose_token(const float *scores, int vocab_size, const Choice &choice,
                         int32_t *token, float *best) {
    if (choice.temperature > 0.0f) {
        choose_among<true>(scores, vocab_size, choice, token, best);
    } else {
        choose_among<false>(scores, vocab_size, choice, token, best);
    }
}
