// One step of a decoder: all layers over a ragged batch, run by all threads of the pool together.
//
// What it computes is runtime/decoder_spec.py's, in the order of runtime/decoder.py, the reference.
// Each phase below is run by every thread on its share; a barrier stands where one reads what
// another wrote. Letters: M tokens, H query heads, G key-value heads, d head size.

#pragma once

#include <cmath>
#include <memory>

#include "attention_plan.h"
#include "buffers.h"
#include "model.h"
#include "pool.h"
#include "score.h"

class Decoder {
  public:
    Decoder(const Model &model, int num_threads)
        : m_(model), group_size_(model.num_heads / model.num_kv_heads), pool_(num_threads) {
        for (int i = 0; i < num_threads; ++i) {
            scratch_.push_back(std::make_unique<AttentionScratch>());
            rows_.emplace_back(round_up(model.hidden_size, 32));
            expert_scores_.emplace_back(model.num_experts);
        }
    }

    void step(const Batch &batch) {
        b_ = &batch;
        const int num_tokens = batch.num_tokens;
        plan(batch);
        x_ = x_buffer_.at_least((size_t)num_tokens * m_.hidden_size);
        y_ = y_buffer_.at_least((size_t)num_tokens * m_.hidden_size);
        const int qkv_size = (m_.num_heads + 2 * m_.num_kv_heads) * m_.head_dim;
        qkv_ = qkv_buffer_.at_least((size_t)num_tokens * qkv_size);
        queries_ = query_buffer_.at_least((size_t)num_tokens * m_.num_heads * m_.head_dim / 2);
        attended_ = attended_buffer_.at_least((size_t)num_tokens * m_.num_heads * m_.head_dim);
        const int num_rows = std::max(num_tokens, batch.num_sampled);
        input_ = input_buffer_.at_least(num_input_blocks(), num_rows);
        gated_ = gated_buffer_.at_least(num_gated_blocks(), num_rows);
        prepare_experts(num_tokens);
        const bool on_all = threads_.wants_all();
        const auto start = Clock::now();
        const auto waited = pool_.run(on_all, [this](int thread) { run(thread); });
        if (on_all) threads_.note(Clock::now() - start, waited);
    }

    void score(const Scores &scores) {
        const int most = std::min(scores.max_rows, scores.num_scored);
        float *logits = score_buffer_.at_least((size_t)most * m_.vocab_size);
        best_.resize((size_t)pool_.num_threads() * scores.num_best);
        for (int first = 0; first < scores.num_scored; first += most) {
            const int num_rows = std::min(most, scores.num_scored - first);
            pool_.run(threads_.wants_all(), [&](int thread) {
                project_rows(thread, scores.places + first, num_rows, logits);
                pool_.barrier(thread);
                const auto [begin, end] = share(num_rows, thread);
                for (int i = begin; i < end; ++i) {
                    score_row(thread, scores, first + i, row_of(logits, i, m_.vocab_size));
                }
            });
        }
    }

  private:
    struct Routed {
        int token;
        float weight;
    };

    int num_input_blocks() const {
        return round_up(std::max(m_.hidden_size, m_.num_heads * m_.head_dim), 32) / 32;
    }

    int num_gated_blocks() const { return std::max(m_.ffn_size, m_.expert_ffn_size) / 32; }

    void plan(const Batch &batch) {
        plans_.clear();
        plan_of_layer_.clear();
        std::vector<int> windows;
        int total_parts = 0;
        for (int layer = 0; layer < m_.num_layers; ++layer) {
            const int window = m_.layers[layer].window;
            const auto known = std::find(windows.begin(), windows.end(), window);
            plan_of_layer_.push_back((int)(known - windows.begin()));
            if (known != windows.end()) continue;
            windows.push_back(window);
            plans_.emplace_back();
            plans_.back().make(batch, m_.page_size, group_size_, m_.num_kv_heads, window,
                               m_.attention_softcap, pool_.num_threads());
            total_parts = std::max(total_parts, plans_.back().total_parts);
        }
        parts_ = parts_buffer_.at_least((size_t)total_parts * m_.num_heads * (m_.head_dim + 2));
        pages_of_token_.resize(batch.num_tokens);
        positions_.resize(batch.num_tokens);
        int token = 0;
        for (int row = 0; row < batch.num_rows; ++row) {
            for (int i = 0; i < batch.row_tokens[row]; ++i, ++token) {
                positions_[token] = batch.row_starts[row] + i;
                pages_of_token_[token] = batch.pages + batch.row_pages[row];
            }
        }
    }

    void prepare_experts(int num_tokens) {
        if (m_.num_experts == 0) return;
        const size_t count = (size_t)num_tokens * m_.num_used_experts;
        chosen_experts_.resize(count);
        chosen_weights_.resize(count);
        routed_.resize(m_.num_experts);
        for (auto &routed : routed_) routed.reserve(num_tokens);
        expert_input_ = expert_input_buffer_.at_least(num_input_blocks(), num_tokens);
    }

    // [begin, end) of `count` things that is this thread's.
    std::pair<int, int> share(int count, int thread) const {
        const int threads = pool_.num_active();
        return {count * thread / threads, count * (thread + 1) / threads};
    }

    // Takes no memory: a thread that threw would leave the others at a barrier.
    void run(int thread) {
        embed(thread);
        for (int layer = 0; layer < m_.num_layers; ++layer) {
            const Layer &l = m_.layers[layer];
            normalize(thread, l.attention_norm, nullptr);
            pool_.barrier(thread);
            project(thread, l);
            pool_.barrier(thread);
            rotate(thread, l);
            sync_and_reset(thread);
            const AttentionPlan &plan = plans_[plan_of_layer_[layer]];
            attend_items(thread, l, plan);
            pool_.barrier(thread);
            merge_parts(thread, plan);
            pool_.barrier(thread);
            multiply_into(thread, l.attention_output, input_, l.attention_output_bias,
                          l.post_attention_norm);
            pool_.barrier(thread);
            add_normed(thread, l.post_attention_norm);
            normalize(thread, l.ffn_norm, l.has_experts ? l.router : nullptr);
            pool_.barrier(thread);
            if (l.has_experts) {
                run_experts(thread, l);
            } else {
                gate(thread, l.ffns[0], input_, b_->num_tokens);
                pool_.barrier(thread);
                multiply_into(thread, l.ffns[0].down, gated_, nullptr, l.post_ffn_norm);
            }
            pool_.barrier(thread);
            add_normed(thread, l.post_ffn_norm);
        }
        project_logits(thread);
    }

    void sync_and_reset(int thread) {
        if (thread == 0) pool_.reset();
        pool_.barrier(thread);
    }

    float *row_of(float *matrix, int row, int size) const { return matrix + (size_t)row * size; }

    void embed(int thread) {
        const auto [begin, end] = share(b_->num_tokens, thread);
        float *row = rows_[thread].data();
        for (int token = begin; token < end; ++token) {
            expand_row(m_.embedding, b_->token_ids[token], row);
            float *x = row_of(x_, token, m_.hidden_size);
            for (int i = 0; i < m_.hidden_size; ++i) x[i] = row[i] * m_.embedding_scale;
        }
    }

    // 1 / root mean square of `size` values (a multiple of 16).
    float inverse_rms(const float *x, int size) const {
        f32x16 squares = {};
        for (int i = 0; i < size; i += 16) {
            const f32x16 v = load<f32x16>(x + i);
            squares += v * v;
        }
        return 1.0f / std::sqrt(reduce_add(squares) / (float)size + m_.norm_eps);
    }

    void quantize_row(const float *values, int size, const Quantized &to, int row) const {
        for (int i = 0; i < size; i += 32) {
            const bool is_whole = i + 16 < size;
            const f32x16 high = is_whole ? load<f32x16>(values + i + 16) : f32x16{};
            quantize_block(load<f32x16>(values + i), high, to, row, i / 32);
        }
    }

    // input = quantized norm(x); where there is a router, the experts of each token too.
    void normalize(int thread, const float *weight, const float *router) {
        const auto [begin, end] = share(b_->num_tokens, thread);
        for (int token = begin; token < end; ++token) {
            const float *normed = norm_row(thread, row_of(x_, token, m_.hidden_size), weight);
            quantize_row(normed, m_.hidden_size, input_, token);
            if (router) choose_experts(thread, token, normed, router);
        }
    }

    const float *norm_row(int thread, const float *x, const float *weight) {
        float *to = rows_[thread].data();
        const float inverse = inverse_rms(x, m_.hidden_size);
        for (int i = 0; i < m_.hidden_size; i += 16) {
            store(to + i, load<f32x16>(x + i) * inverse * load<f32x16>(weight + i));
        }
        return to;
    }

    void project(int thread, const Layer &l) {
        const int size = l.qkv.num_outputs;
        const auto [begin, end] = share(size / kTileRows, thread);
        for (int tile = begin; tile < end; ++tile) {
            const f32x16 bias =
                l.qkv_bias ? load<f32x16>(l.qkv_bias + tile * kTileRows) : f32x16{};
            multiply_tile(l.qkv, tile, input_, b_->num_tokens, [&](int row, f32x16 out) {
                store(row_of(qkv_, row, size) + tile * kTileRows, out + bias);
            });
        }
    }

    // Norms and rotates q and k; q goes, scaled, to `queries`, k and v to their slots.
    void rotate(int thread, const Layer &l) {
        const int d = m_.head_dim, size = l.qkv.num_outputs;
        const float scale = m_.attention_scale * 1.44269504f;  // log2 e, for exp2
        const PagedKv kv = paged(l);
        const auto [begin, end] = share(b_->num_tokens * m_.num_kv_heads, thread);
        for (int unit = begin; unit < end; ++unit) {
            const int token = unit / m_.num_kv_heads, kv_head = unit % m_.num_kv_heads;
            float *heads = row_of(qkv_, token, size);
            const size_t at = (size_t)positions_[token] * (l.num_rotary / 2);
            for (int i = 0; i < group_size_; ++i) {
                const int head = kv_head * group_size_ + i;
                float *q = heads + head * d;
                if (l.q_norm) norm_head(q, l.q_norm);
                rotate_head(q, l.cos + at, l.sin + at, l.num_rotary);
                store_query(q, scale, token, head);
            }
            float *key = heads + (m_.num_heads + kv_head) * d;
            if (l.k_norm) norm_head(key, l.k_norm);
            rotate_head(key, l.cos + at, l.sin + at, l.num_rotary);
            const float *value = heads + (m_.num_heads + m_.num_kv_heads + kv_head) * d;
            const int page = pages_of_token_[token][positions_[token] / m_.page_size];
            write_slot(kv, page, kv_head, positions_[token] % m_.page_size, key, value);
        }
    }

    void norm_head(float *head, const float *weight) const {
        const float inverse = inverse_rms(head, m_.head_dim);
        for (int i = 0; i < m_.head_dim; i += 16) {
            store(head + i, load<f32x16>(head + i) * inverse * load<f32x16>(weight + i));
        }
    }

    static void rotate_head(float *head, const float *cos, const float *sin, int num_rotary) {
        const int half = num_rotary / 2;
        for (int i = 0; i < half; ++i) {
            const float first = head[i], second = head[i + half];
            head[i] = first * cos[i] - second * sin[i];
            head[i + half] = second * cos[i] + first * sin[i];
        }
    }

    void store_query(const float *q, float scale, int token, int head) {
        uint32_t *to = queries_ + ((size_t)token * m_.num_heads + head) * (m_.head_dim / 2);
        for (int i = 0; i < m_.head_dim; i += 16) {
            const u32x16 bits = to_bf16(load<f32x16>(q + i) * scale);
            store((uint16_t *)to + i, __builtin_convertvector(bits, u16x16));
        }
    }

    PagedKv paged(const Layer &l) const {
        return {l.keys, l.values, m_.num_kv_heads, m_.head_dim, m_.page_size};
    }

    void attend_items(int thread, const Layer &l, const AttentionPlan &plan) {
        AttentionScratch &scratch = *scratch_[thread];
        const PagedKv kv = paged(l);
        const int num_units = (int)plan.items.size() * m_.num_kv_heads;
        for (int unit = pool_.next(); unit < num_units; unit = pool_.next()) {
            const AttentionItem &item = plan.items[unit / m_.num_kv_heads];
            const int kv_head = unit % m_.num_kv_heads;
            gather_queries(scratch, plan, item, kv_head);
            attend(scratch, kv, kv_head, item.range);
            for (int i = 0; i < scratch.num_queries; ++i) {
                const int token = plan.tokens[item.first + i / group_size_];
                const int head = kv_head * group_size_ + i % group_size_;
                put_part(scratch, i, plan, item.part, token, head);
            }
        }
    }

    void gather_queries(AttentionScratch &scratch, const AttentionPlan &plan,
                        const AttentionItem &item, int kv_head) const {
        const int half_dim = m_.head_dim / 2;
        scratch.num_queries = item.num_tokens * group_size_;
        for (int i = 0; i < scratch.num_queries; ++i) {
            const int token = plan.tokens[item.first + i / group_size_];
            const int head = kv_head * group_size_ + i % group_size_;
            const uint32_t *query = queries_ + ((size_t)token * m_.num_heads + head) * half_dim;
            scratch.positions[i] = positions_[token];
            for (int j = 0; j < half_dim; ++j) scratch.queries[j][i] = query[j];
        }
        for (int i = scratch.num_queries; i % 4 != 0; ++i) {
            for (int j = 0; j < half_dim; ++j) scratch.queries[j][i] = 0;
        }
    }

    // The only part of a token is its result; of several, what a merge needs is kept.
    void put_part(const AttentionScratch &scratch, int i, const AttentionPlan &plan, int part,
                  int token, int head) {
        const int d = m_.head_dim;
        float *to = attended_ + ((size_t)token * m_.num_heads + head) * d;
        float factor = 1.0f;
        if (plan.num_parts[token] == 1) {
            factor = 1.0f / scratch.total[i];
        } else {
            to = part_at(plan.first_part[token] + part, head);
            to[d] = scratch.best[i];
            to[d + 1] = scratch.total[i];
        }
        for (int at = 0; at < d; at += 16) {
            store(to + at, load<f32x16>(&scratch.sums[i][at]) * factor);
        }
    }

    float *part_at(int part, int head) const {
        return parts_ + ((size_t)part * m_.num_heads + head) * (m_.head_dim + 2);
    }

    // Joins the parts of each token, and quantizes what it attended to.
    void merge_parts(int thread, const AttentionPlan &plan) {
        const int d = m_.head_dim, size = m_.num_heads * d;
        const auto [begin, end] = share(b_->num_tokens, thread);
        for (int token = begin; token < end; ++token) {
            float *attended = row_of(attended_, token, size);
            for (int head = 0; plan.num_parts[token] > 1 && head < m_.num_heads; ++head) {
                merge_head(plan.first_part[token], plan.num_parts[token], head,
                           attended + head * d);
            }
            quantize_row(attended, size, input_, token);
        }
    }

    void merge_head(int first_part, int num_parts, int head, float *to) const {
        const int d = m_.head_dim;
        float best = kMasked, total = 0.0f;
        for (int p = 0; p < num_parts; ++p) best = std::max(best, part_at(first_part + p, head)[d]);
        for (int at = 0; at < d; ++at) to[at] = 0.0f;
        for (int p = 0; p < num_parts; ++p) {
            const float *part = part_at(first_part + p, head);
            const float weight = exp2_approx(splat(part[d] - best))[0];
            total += weight * part[d + 1];
            for (int at = 0; at < d; at += 16) {
                store(to + at, load<f32x16>(to + at) + load<f32x16>(part + at) * weight);
            }
        }
        for (int at = 0; at < d; at += 16) store(to + at, load<f32x16>(to + at) * (1.0f / total));
    }

    // x += matrix * input + bias; where a norm comes between, the product goes to y.
    void multiply_into(int thread, const Matrix &matrix, const Quantized &input,
                       const float *biases, const float *post_norm) {
        const auto [begin, end] = share(m_.hidden_size / kTileRows, thread);
        for (int tile = begin; tile < end; ++tile) {
            const f32x16 bias = biases ? load<f32x16>(biases + tile * kTileRows) : f32x16{};
            multiply_tile(matrix, tile, input, b_->num_tokens, [&](int row, f32x16 product) {
                const f32x16 out = product + bias;
                float *x = row_of(x_, row, m_.hidden_size) + tile * kTileRows;
                float *y = row_of(y_, row, m_.hidden_size) + tile * kTileRows;
                if (post_norm) {
                    store(y, out);
                } else {
                    store(x, load<f32x16>(x) + out);
                }
            });
        }
    }

    // x += norm(y) on the tokens that this thread norms next, so that no barrier is needed.
    void add_normed(int thread, const float *post_norm) {
        if (!post_norm) return;
        const auto [begin, end] = share(b_->num_tokens, thread);
        for (int token = begin; token < end; ++token) {
            const float *normed = norm_row(thread, row_of(y_, token, m_.hidden_size), post_norm);
            float *x = row_of(x_, token, m_.hidden_size);
            for (int i = 0; i < m_.hidden_size; i += 16) {
                store(x + i, load<f32x16>(x + i) + load<f32x16>(normed + i));
            }
        }
    }

    void gate(int thread, const FeedForward &ffn, const Quantized &input, int num_rows) {
        const auto [begin, end] = share(ffn.down.num_blocks, thread);
        for (int block = begin; block < end; ++block) {
            if (m_.is_gelu) {
                multiply_gated(ffn.gate_up, block, input, num_rows, gated_, gelu);
            } else {
                multiply_gated(ffn.gate_up, block, input, num_rows, gated_, silu);
            }
        }
    }

    RG_INLINE f32x16 silu(f32x16 a) { return a / (1.0f + exp_approx(-a)); }

    // The tanh form: 0.5 a (1 + tanh(sqrt(2 / pi) (a + 0.044715 a^3))).
    RG_INLINE f32x16 gelu(f32x16 a) {
        return 0.5f * a * (1.0f + tanh_approx(0.79788456f * (a + 0.044715f * a * a * a)));
    }

    // Each expert at most once a token, also where scores are no numbers: there is room for no more.
    void choose_experts(int thread, int token, const float *normed, const float *router) {
        constexpr float kTaken = -1.0f;
        const int num_experts = m_.num_experts, num_used = m_.num_used_experts;
        std::vector<float> &scores = expert_scores_[thread];
        float best = kMasked, total = 0.0f;
        for (int e = 0; e < num_experts; ++e) {
            f32x16 sum = {};
            const float *row = router + (size_t)e * m_.hidden_size;
            for (int i = 0; i < m_.hidden_size; i += 16) {
                sum += load<f32x16>(row + i) * load<f32x16>(normed + i);
            }
            scores[e] = reduce_add(sum);
            best = std::max(best, scores[e]);
        }
        for (float &score : scores) total += score = std::exp(score - best);
        float used = 0.0f;
        for (int i = 0; i < num_used; ++i) {
            int e = -1;
            for (int other = 0; other < num_experts; ++other) {
                if (scores[other] == kTaken) continue;
                if (e < 0 || scores[other] > scores[e]) e = other;
            }
            chosen_experts_[token * num_used + i] = e;
            chosen_weights_[token * num_used + i] = scores[e] / total;
            used += scores[e] / total;
            scores[e] = kTaken;
        }
        for (int i = 0; m_.normalize_experts && i < num_used; ++i) {
            chosen_weights_[token * num_used + i] /= used;
        }
    }

    void run_experts(int thread, const Layer &l) {
        if (thread == 0) route();
        clear_y(thread);
        pool_.barrier(thread);
        for (int e = 0; e < m_.num_experts; ++e) {
            const std::vector<Routed> &routed = routed_[e];
            if (routed.empty()) continue;
            gather_input(thread, routed);
            pool_.barrier(thread);
            gate(thread, l.ffns[e], expert_input_, (int)routed.size());
            pool_.barrier(thread);
            const auto [begin, end] = share(m_.hidden_size / kTileRows, thread);
            for (int tile = begin; tile < end; ++tile) {
                multiply_tile(l.ffns[e].down, tile, gated_, (int)routed.size(),
                              [&](int row, f32x16 out) {
                                  float *y = row_of(y_, routed[row].token, m_.hidden_size) +
                                             tile * kTileRows;
                                  store(y, load<f32x16>(y) + out * routed[row].weight);
                              });
            }
            pool_.barrier(thread);
        }
        if (!l.post_ffn_norm) add_y(thread);
    }

    void route() {
        for (auto &routed : routed_) routed.clear();
        const int num_used = m_.num_used_experts;
        for (int token = 0; token < b_->num_tokens; ++token) {
            for (int i = token * num_used; i < (token + 1) * num_used; ++i) {
                routed_[chosen_experts_[i]].push_back({token, chosen_weights_[i]});
            }
        }
    }

    void gather_input(int thread, const std::vector<Routed> &routed) {
        const auto [begin, end] = share((int)routed.size(), thread);
        for (int row = begin; row < end; ++row) {
            for (int block = 0; block < round_up(m_.hidden_size, 32) / 32; ++block) {
                const size_t from = (size_t)block * input_.stride + routed[row].token;
                const size_t to = (size_t)block * expert_input_.stride + row;
                memcpy(expert_input_.q + to * kBlockLen, input_.q + from * kBlockLen, kBlockLen);
                expert_input_.scales[to] = input_.scales[from];
                expert_input_.sums[to] = input_.sums[from];
            }
        }
    }

    void clear_y(int thread) {
        const auto [begin, end] = share(b_->num_tokens, thread);
        std::fill(row_of(y_, begin, m_.hidden_size), row_of(y_, end, m_.hidden_size), 0.0f);
    }

    void add_y(int thread) {
        const auto [begin, end] = share(b_->num_tokens, thread);
        for (int token = begin; token < end; ++token) {
            float *x = row_of(x_, token, m_.hidden_size);
            const float *y = row_of(y_, token, m_.hidden_size);
            for (int i = 0; i < m_.hidden_size; i += 16) {
                store(x + i, load<f32x16>(x + i) + load<f32x16>(y + i));
            }
        }
    }

    void project_logits(int thread) {
        if (b_->num_sampled == 0) return;
        pool_.barrier(thread);
        project_rows(thread, b_->sampled, b_->num_sampled, b_->logits);
    }

    // Logits of some of the step's tokens, [num_rows, V]. Leaves the hidden states as they are.
    void project_rows(int thread, const int32_t *places, int num_rows, float *logits) {
        const auto [first, last] = share(num_rows, thread);
        for (int i = first; i < last; ++i) {
            const float *x = row_of(x_, places[i], m_.hidden_size);
            quantize_row(norm_row(thread, x, m_.final_norm), m_.hidden_size, input_, i);
        }
        pool_.barrier(thread);
        const auto [begin, end] = share(m_.output.num_outputs / kTileRows, thread);
        for (int tile = begin; tile < end; ++tile) {
            const int num_wanted = std::min(kTileRows, m_.vocab_size - tile * kTileRows);
            multiply_tile(m_.output, tile, input_, num_rows, [&](int row, f32x16 out) {
                if (m_.logit_softcap > 0.0f) {
                    out = tanh_approx(out * (1.0f / m_.logit_softcap)) * m_.logit_softcap;
                }
                float *to = row_of(logits, row, m_.vocab_size) + tile * kTileRows;
                memcpy(to, &out, num_wanted * sizeof(float));
            });
        }
    }

    void score_row(int thread, const Scores &scores, int index, const float *logits) {
        const int num_best = scores.num_best;
        const float total = log_sum_exp(logits, m_.vocab_size);
        scores.own[index] = logits[scores.token_ids[index]] - total;
        ScoredToken *best = best_.data() + (size_t)thread * num_best;
        find_best(logits, m_.vocab_size, num_best, best);
        for (int i = 0; i < num_best; ++i) {
            scores.best[(size_t)index * num_best + i] = best[i].score - total;
            scores.best_ids[(size_t)index * num_best + i] = best[i].token;
        }
    }

    const Model m_;
    const int group_size_;
    Pool pool_;
    ThreadChoice threads_;
    const Batch *b_ = nullptr;
    std::vector<AttentionPlan> plans_;
    std::vector<int> plan_of_layer_;
    std::vector<int32_t> positions_;
    std::vector<const int32_t *> pages_of_token_;
    std::vector<std::unique_ptr<AttentionScratch>> scratch_;
    std::vector<std::vector<float>> rows_, expert_scores_;
    Buffer<float> x_buffer_, y_buffer_, qkv_buffer_, attended_buffer_, parts_buffer_;
    Buffer<float> score_buffer_;
    std::vector<ScoredToken> best_;
    Buffer<uint32_t> query_buffer_;
    QuantizedBuffer input_buffer_, gated_buffer_, expert_input_buffer_;
    float *x_ = nullptr, *y_ = nullptr, *qkv_ = nullptr, *attended_ = nullptr, *parts_ = nullptr;
    uint32_t *queries_ = nullptr;
    Quantized input_{}, gated_{}, expert_input_{};
    std::vector<int> chosen_experts_;
    std::vector<float> chosen_weights_;
    std::vector<std::vector<Routed>> routed_;
};
