// The token of a row of scores, under a mask of allowed tokens: the best one, or one drawn by adding
// Gumbel noise to the scores (runtime/noise.py, whose hash this repeats).

#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "simd.h"

// How a row's token is chosen. mask: [V / 32] words, null = all tokens. temperature 0 = the best.
// The filters apply in the order top_k (0 = none), top_p (1 = none), min_p (0 = none), as in
// runtime/candidates.py, the reference.
struct Choice {
    const uint32_t *mask;
    float temperature;
    uint32_t key[2];  // of the noise
    int32_t top_k;
    float top_p;
    float min_p;
};

struct Candidate {
    float score;
    int32_t token;
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

// All tokens with a finite score of at least `cut`, best first; of equal ones the first token.
static void collect(const float *scores, int vocab_size, const Choice &choice, float cut,
                    std::vector<Candidate> &found) {
    found.clear();
    for (int first = 0; first < vocab_size; first += 16) {
        float some[16];
        if (first + 16 <= vocab_size) {
            const f32x16 score = masked_scores(scores, first, choice.mask);
            if (!(reduce_max(score) >= cut)) continue;
            store(some, score);
        } else {
            for (int i = 0; i < 16; ++i) {
                const int token = first + i;
                const bool is_allowed = token < vocab_size &&
                    (!choice.mask || (choice.mask[token / 32] >> (token % 32) & 1u));
                some[i] = is_allowed ? scores[token] : -INFINITY;
            }
        }
        for (int i = 0; i < 16; ++i) {
            if (some[i] >= cut && some[i] > -INFINITY) found.push_back({some[i], first + i});
        }
    }
    std::sort(found.begin(), found.end(), [](const Candidate &a, const Candidate &b) {
        return a.score > b.score || (a.score == b.score && a.token < b.token);
    });
}

// Sum over the allowed tokens of exp((score - best) / temperature).
static double total_mass(const float *scores, int vocab_size, const Choice &choice, float best) {
    double total = 0.0;
    const int whole = vocab_size / 16 * 16;
    for (int first = 0; first < whole; first += 16) {
        const f32x16 score = masked_scores(scores, first, choice.mask);
        total += reduce_add(exp_approx((score - best) / choice.temperature));
    }
    for (int i = whole; i < vocab_size; ++i) {
        const bool is_allowed = !choice.mask || (choice.mask[i / 32] >> (i % 32) & 1u);
        if (is_allowed) total += std::exp((scores[i] - best) / choice.temperature);
    }
    return total;
}

// How many of the candidates, best first, are the fewest that hold top_p of `total`; 0 if all
// together do not.
static int nucleus_size(const std::vector<Candidate> &candidates, const Choice &choice,
                        double total) {
    double mass = 0.0;
    for (size_t i = 0; i < candidates.size(); ++i) {
        mass += std::exp((candidates[i].score - candidates[0].score) / choice.temperature);
        if (mass >= choice.top_p * total) return (int)i + 1;
    }
    return 0;
}

// The candidates that top_k and top_p leave, or where neither is set, roughly those of min_p. They
// are looked for not far below the best score at first, where nearly always they are.
static void filter(const float *scores, int vocab_size, const Choice &choice, float best,
                   std::vector<Candidate> &kept) {
    const bool has_top_k = choice.top_k > 0 && choice.top_k < vocab_size;
    const bool has_top_p = choice.top_p < 1.0f;
    if (!has_top_k && !has_top_p) {
        const float reach = choice.temperature * -std::log(choice.min_p);
        collect(scores, vocab_size, choice, best - reach, kept);
        return;
    }
    const double total =
        has_top_p && !has_top_k ? total_mass(scores, vocab_size, choice, best) : 0.0;
    for (const float depth : {4.0f, 8.0f, 16.0f, INFINITY}) {
        const bool is_last = depth == INFINITY;
        const float reach = has_top_k ? depth : depth * choice.temperature;
        collect(scores, vocab_size, choice, best - reach, kept);
        if (has_top_k) {
            if ((int)kept.size() < choice.top_k && !is_last) continue;
            kept.resize(std::min(kept.size(), (size_t)choice.top_k));
        }
        if (!has_top_p) return;
        double mass = total;
        for (size_t i = 0; has_top_k && i < kept.size(); ++i) {
            mass += std::exp((kept[i].score - best) / choice.temperature);
        }
        const int size = nucleus_size(kept, choice, mass);
        if (size > 0) kept.resize(size);
        if (size > 0 || is_last) return;
    }
}

static void draw_filtered(const float *scores, int vocab_size, const Choice &choice,
                          int32_t *token, float *drawn) {
    float best;
    choose_among<false>(scores, vocab_size, choice, token, &best);
    *drawn = -INFINITY;
    if (!std::isfinite(best)) return;
    thread_local std::vector<Candidate> kept;
    filter(scores, vocab_size, choice, best, kept);
    const float floor = choice.min_p > 0.0f ? best / choice.temperature + std::log(choice.min_p)
                                            : -INFINITY;
    for (const Candidate &one : kept) {
        const float score = one.score / choice.temperature;
        if (score < floor) continue;
        const float noisy = score + gumbel_noise(u32x16{} + (uint32_t)one.token, choice.key)[0];
        if (noisy > *drawn || (noisy == *drawn && one.token < *token)) {
            *drawn = noisy;
            *token = one.token;
        }
    }
}

// The chosen token and its score, with noise where it is drawn; -inf if no token is allowed. Of
// equal scores the first token has it.
static void choose_token(const float *scores, int vocab_size, const Choice &choice,
                         int32_t *token, float *best) {
    const bool has_filter = choice.top_k > 0 || choice.top_p < 1.0f || choice.min_p > 0.0f;
    if (choice.temperature > 0.0f && has_filter) {
        draw_filtered(scores, vocab_size, choice, token, best);
    } else if (choice.temperature > 0.0f) {
        choose_among<true>(scores, vocab_size, choice, token, best);
    } else {
        choose_among<false>(scores, vocab_size, choice, token, best);
    }
}
