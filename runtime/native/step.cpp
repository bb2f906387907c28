// The C interface of the native step: what runtime/native/library.py declares with ctypes.
//
// No function throws; those that can fail return 0 or a null pointer then.

#include <cstdlib>
#include <new>

#include "choose.h"
#include "decoder.h"

extern "C" {

// Goes up with every change of a structure or a function below, or of the packed layout.
int rg_interface_version() { return 3; }

void *rg_create(const Model *model, int num_threads) try {
    return new Decoder(*model, num_threads);
} catch (...) {
    return nullptr;
}

void rg_destroy(void *decoder) { delete static_cast<Decoder *>(decoder); }

int rg_step(void *decoder, const Batch *batch) try {
    static_cast<Decoder *>(decoder)->step(*batch);
    return 1;
} catch (...) {
    return 0;
}

// Of tokens of the last step, which were its own.
int rg_score(void *decoder, const Scores *scores) try {
    static_cast<Decoder *>(decoder)->score(*scores);
    return 1;
} catch (...) {
    return 0;
}

// The first `num_slots` slots of a page to another page, in one layer.
void rg_copy_slots(const PagedKv *kv, int source, int target, int num_slots) {
    const int d = kv->head_dim;
    for (int head = 0; head < kv->num_kv_heads; ++head) {
        for (int slot = 0; slot < num_slots; ++slot) {
            const size_t from = kv->block_offset(source, head, slot / kBlockSlots);
            const size_t to = kv->block_offset(target, head, slot / kBlockSlots);
            const int s = slot % kBlockSlots;
            for (int j = 0; j < d / 2; ++j) {
                kv->keys[to + j * kBlockSlots + s] = kv->keys[from + j * kBlockSlots + s];
            }
            uint16_t *values = (uint16_t *)kv->values;
            const size_t line = (size_t)(s / 2) * 2 * d + s % 2;
            for (int j = 0; j < d; ++j) {
                values[2 * to + line + 2 * j] = values[2 * from + line + 2 * j];
            }
        }
    }
}

// Whole pages of one layer. keys and values: [num_pages, page_size, G, d] floats.
void rg_write_pages(const PagedKv *kv, const int32_t *pages, int num_pages, const float *keys,
                    const float *values) {
    size_t at = 0;
    for (int page = 0; page < num_pages; ++page) {
        for (int slot = 0; slot < kv->page_size; ++slot) {
            for (int head = 0; head < kv->num_kv_heads; ++head, at += kv->head_dim) {
                write_slot(*kv, pages[page], head, slot, keys + at, values + at);
            }
        }
    }
}

// The inverse of rg_write_pages.
void rg_read_pages(const PagedKv *kv, const int32_t *pages, int num_pages, float *keys,
                   float *values) {
    size_t at = 0;
    for (int page = 0; page < num_pages; ++page) {
        for (int slot = 0; slot < kv->page_size; ++slot) {
            for (int head = 0; head < kv->num_kv_heads; ++head, at += kv->head_dim) {
                read_slot(*kv, pages[page], head, slot, keys + at, values + at);
            }
        }
    }
}

// The token of each row of scores, [R, V].
int rg_choose(const float *scores, int num_rows, int vocab_size, const Choice *choices,
              int32_t *tokens, float *best) try {
    for (int row = 0; row < num_rows; ++row) {
        choose_token(scores + (size_t)row * vocab_size, vocab_size, choices[row], tokens + row,
                     best + row);
    }
    return 1;
} catch (...) {
    return 0;
}

// Row `row` of a packed matrix as floats: [32 * B].
void rg_unpack_row(const Matrix *matrix, int row, float *to) { expand_row(*matrix, row, to); }

// out[r, n] = rows[r] times the matrix, on the caller's thread. rows: [R, 32 * B], out: [R, N].
int rg_multiply(const Matrix *matrix, const float *rows, int num_rows, float *out) try {
    QuantizedBuffer buffer;
    const Quantized x = buffer.at_least(matrix->num_blocks, num_rows);
    for (int row = 0; row < num_rows; ++row) {
        for (int block = 0; block < matrix->num_blocks; ++block) {
            const float *at = rows + ((size_t)row * matrix->num_blocks + block) * kBlockLen;
            quantize_block(load<f32x16>(at), load<f32x16>(at + 16), x, row, block);
        }
    }
    for (int tile = 0; tile < matrix->num_outputs / kTileRows; ++tile) {
        multiply_tile(*matrix, tile, x, num_rows, [&](int row, f32x16 result) {
            store(out + (size_t)row * matrix->num_outputs + tile * kTileRows, result);
        });
    }
    return 1;
} catch (...) {
    return 0;
}
}
