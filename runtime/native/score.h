// The log-probability of a token given a row of logits, and the best tokens with theirs.

#pragma once

#include <algorithm>
#include <cmath>

#include "simd.h"

// Tokens whose probability behind others of the last step is wanted. places: [num_scored], where
// among all tokens of the step those others are; token_ids: [num_scored]. Not more than `max_rows`
// rows of logits are there at a time. To be filled: own, [num_scored]; best and best_ids,
// [num_scored, num_best], best first, of equal ones the lower id.
struct Scores {
    int32_t num_scored;
    int32_t num_best;  // at most V
    int32_t max_rows;  // at least 1
    const int32_t *places;
    const int32_t *token_ids;
    float *own;
    float *best;
    int32_t *best_ids;
};

struct ScoredToken {
    float score;
    int32_t token;
};

static inline bool is_better(const ScoredToken &a, const ScoredToken &b) {
    return a.score > b.score || (a.score == b.score && a.token < b.token);
}

static float greatest_of(const float *logits, int vocab_size) {
    const int whole = vocab_size / 16 * 16;
    f32x16 lanes = splat(-INFINITY);
    for (int i = 0; i < whole; i += 16) lanes = maximum(lanes, load<f32x16>(logits + i));
    float greatest = reduce_max(lanes);
    for (int i = whole; i < vocab_size; ++i) greatest = std::max(greatest, logits[i]);
    return greatest;
}

// The logarithm of the sum of all exp(logit).
static float log_sum_exp(const float *logits, int vocab_size) {
    const float greatest = greatest_of(logits, vocab_size);
    double total = 0.0;
    int i = 0;
    // In parts, as float32 loses some of a sum of a hundred thousand.
    while (i + 16 <= vocab_size) {
        const int end = std::min(i + 4096, vocab_size / 16 * 16);
        f32x16 part = {};
        for (; i < end; i += 16) part += exp_approx(load<f32x16>(logits + i) - greatest);
        total += reduce_add(part);
    }
    for (; i < vocab_size; ++i) total += std::exp(logits[i] - greatest);
    return (float)(greatest + std::log(total));
}

// best: room for num_best, in which they are sorted. Takes no memory.
static void find_best(const float *logits, int vocab_size, int num_best, ScoredToken *best) {
    for (int token = 0; token < num_best; ++token) best[token] = {logits[token], token};
    // A heap whose first is the worst of the best.
    std::make_heap(best, best + num_best, is_better);
    for (int token = num_best; token < vocab_size && num_best > 0; ++token) {
        if (token % 16 == 0 && token + 16 <= vocab_size &&
            !(reduce_max(load<f32x16>(logits + token)) > best[0].score)) {
            token += 15;  // none of 16
            continue;
        }
        if (!(logits[token] > best[0].score)) continue;
        std::pop_heap(best, best + num_best, is_better);
        best[num_best - 1] = {logits[token], token};
        std::push_heap(best, best + num_best, is_better);
    }
    std::sort_heap(best, best + num_best, is_better);
}
