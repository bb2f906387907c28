// Which queries attend to which keys together: made once a step for each window length.
//
// A prompt's tokens are taken some at a time, all their heads of a group at once. Rows with one new
// token that begin with the same full pages read these once for all of them, then each its own
// rest; long ranges are cut in parts where there are too few rows for the threads. The parts of a
// token are merged afterwards.

#pragma once

#include <algorithm>
#include <vector>

#include "attention.h"

// A step's rows as the scheduler made them, flattened. sampled: tokens whose logits are wanted.
struct Batch {
    int32_t num_rows;
    int32_t num_tokens;
    int32_t num_sampled;
    const int32_t *token_ids;   // [num_tokens]
    const int32_t *row_tokens;  // [num_rows] new tokens
    const int32_t *row_starts;  // [num_rows] position of the first of them
    const int32_t *row_pages;   // [num_rows] where the row's pages begin in `pages`
    const int32_t *pages;
    const int32_t *sampled;  // [num_sampled]
    float *logits;           // [num_sampled, V]
};

// Some tokens (from `first` in AttentionPlan::tokens) over one range of keys, as their part `part`.
struct AttentionItem {
    int first;
    int num_tokens;
    int part;
    KeyRange range;
};

class AttentionPlan {
  public:
    std::vector<AttentionItem> items;
    std::vector<int32_t> tokens;
    std::vector<int32_t> num_parts;   // [num_tokens]
    std::vector<int32_t> first_part;  // [num_tokens]
    int total_parts = 0;

    void make(const Batch &batch, int page_size, int group_size, int num_kv_heads, int window,
              float softcap, int num_threads) {
        page_size_ = page_size;
        tokens_at_once_ = std::max(1, kMaxQueries / group_size);
        window_ = window;
        softcap_ = softcap;
        items.clear();
        tokens.clear();
        num_parts.assign(batch.num_tokens, 0);
        decode_rows_.clear();
        int token = 0;
        for (int row = 0; row < batch.num_rows; ++row) {
            if (batch.row_tokens[row] == 1) {
                decode_rows_.push_back(
                    {token, batch.row_starts[row] + 1, batch.pages + batch.row_pages[row]});
            } else {
                add_prompt(batch, row, token);
            }
            token += batch.row_tokens[row];
        }
        // With few rows a long range is cut, so that every thread has some of it.
        const int num_units = (int)decode_rows_.size() * num_kv_heads;
        part_len_ = num_units < 4 * num_threads ? kPartSlots : 1 << 30;
        add_decode_rows();
        first_part.resize(batch.num_tokens);
        total_parts = 0;
        for (int t = 0; t < batch.num_tokens; ++t) {
            first_part[t] = total_parts;
            total_parts += num_parts[t];
        }
    }

  private:
    static constexpr int kPartSlots = 256;
    static constexpr int kMinSharedPages = 4;  // below it, merging costs more than reading twice

    struct DecodeRow {
        int token;
        int len;  // tokens that its token sees, itself included
        const int32_t *pages;
    };

    void add_prompt(const Batch &batch, int row, int first_token) {
        const int num_tokens = batch.row_tokens[row], start = batch.row_starts[row];
        for (int done = 0; done < num_tokens; done += tokens_at_once_) {
            const int count = std::min(tokens_at_once_, num_tokens - done);
            const int first = (int)tokens.size();
            for (int i = 0; i < count; ++i) tokens.push_back(first_token + done + i);
            const int position = start + done;
            add_range(first, count, batch.pages + batch.row_pages[row], first_seen(position),
                      position + count);
        }
    }

    void add_decode_rows() {
        std::stable_sort(
            decode_rows_.begin(), decode_rows_.end(),
            [](const DecodeRow &a, const DecodeRow &b) { return a.pages[0] < b.pages[0]; });
        for (size_t begin = 0; begin < decode_rows_.size();) {
            size_t end = begin + 1;
            while (end < decode_rows_.size() &&
                   decode_rows_[end].pages[0] == decode_rows_[begin].pages[0]) {
                ++end;
            }
            add_group(begin, end, window_ > 0 ? 0 : num_shared_pages(begin, end));
            begin = end;
        }
    }

    // Full pages, all before the token itself, that every row of the group begins with.
    int num_shared_pages(size_t begin, size_t end) const {
        const DecodeRow &first = decode_rows_[begin];
        int shared = (first.len - 1) / page_size_;
        for (size_t i = begin + 1; i < end; ++i) {
            shared = std::min(shared, (decode_rows_[i].len - 1) / page_size_);
            for (int page = 0; page < shared; ++page) {
                if (decode_rows_[i].pages[page] != first.pages[page]) shared = page;
            }
        }
        return end - begin > 1 && shared >= kMinSharedPages ? shared : 0;
    }

    void add_group(size_t begin, size_t end, int num_shared) {
        const int shared_len = num_shared * page_size_;
        for (size_t from = begin; num_shared > 0 && from < end; from += tokens_at_once_) {
            const size_t to = std::min(end, from + tokens_at_once_);
            const int first = (int)tokens.size();
            for (size_t i = from; i < to; ++i) tokens.push_back(decode_rows_[i].token);
            add_parts(first, (int)(to - from), decode_rows_[from].pages, 0, shared_len);
        }
        for (size_t i = begin; i < end; ++i) {
            const DecodeRow &row = decode_rows_[i];
            const int first = (int)tokens.size();
            tokens.push_back(row.token);
            add_parts(first, 1, row.pages, std::max(shared_len, first_seen(row.len - 1)), row.len);
        }
    }

    void add_parts(int first, int count, const int32_t *pages, int slot_begin, int slot_end) {
        for (int slot = slot_begin; slot < slot_end; slot += part_len_) {
            const int end = slot_end - slot > part_len_ ? slot + part_len_ : slot_end;
            add_range(first, count, pages, slot, end);
            if (end == slot_end) break;
        }
    }

    void add_range(int first, int count, const int32_t *pages, int slot_begin, int slot_end) {
        const int part = num_parts[tokens[first]];
        for (int i = 0; i < count; ++i) ++num_parts[tokens[first + i]];
        items.push_back({first, count, part, {pages, slot_begin, slot_end, window_, softcap_}});
    }

    // The block in which the first slot lies that a token at this position sees.
    int first_seen(int position) const {
        if (window_ == 0) return 0;
        return std::max(0, position - window_ + 1) / kBlockSlots * kBlockSlots;
    }

    int page_size_ = 0;
    int tokens_at_once_ = 1;
    int window_ = 0;
    float softcap_ = 0.0f;
    int part_len_ = 0;
    std::vector<DecodeRow> decode_rows_;
};
