// A decoder's sizes and weights, as runtime/native/library.py hands them over; the fields mean what
// runtime/decoder_spec.py says of them. Nothing here owns memory.

#pragma once

#include "matmul.h"

struct FeedForward {
    Matrix gate_up;  // the tiles of gate and up alternate
    Matrix down;
};

// Null where the model has no such part. ffns: one, or one for each expert.
struct Layer {
    Matrix qkv;
    Matrix attention_output;
    const FeedForward *ffns;
    const float *attention_norm;
    const float *ffn_norm;
    const float *qkv_bias;
    const float *attention_output_bias;
    const float *q_norm;
    const float *k_norm;
    const float *post_attention_norm;
    const float *post_ffn_norm;
    const float *router;  // [num_experts, hidden]
    const float *cos;     // [max_position, num_rotary / 2]
    const float *sin;
    uint32_t *keys;
    uint32_t *values;
    int32_t num_rotary;
    int32_t window;
    int32_t has_experts;
};

struct Model {
    const Layer *layers;
    Matrix embedding;
    Matrix output;
    const float *final_norm;
    int32_t num_layers;
    int32_t hidden_size;
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t ffn_size;  // of the dense layers, padded to a multiple of 32
    int32_t vocab_size;
    int32_t page_size;
    int32_t is_gelu;
    int32_t num_experts;
    int32_t num_used_experts;
    int32_t expert_ffn_size;  // padded
    int32_t normalize_experts;
    float norm_eps;
    float attention_scale;
    float embedding_scale;
    float attention_softcap;
    float logit_softcap;
};
