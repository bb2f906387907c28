"""Writes a model of transformers as llama.cpp's converter would: its names, its metadata, its
order of rows. Shares no code with the product.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from tests.tiny_gguf import MERGES, TOKENS

_ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
}
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def export_gguf(
    model: Any,
    path: Path,
    *,
    storage: gguf.GGMLQuantizationType | None = None,
    splits_experts: bool = False,
) -> Path:
    """Vectors and routers in float32; the other matrices too, or quantized to `storage`.
    `splits_experts`: a tensor for each expert's matrix, as the converter wrote them in 2023."""
    config = model.config
    writer: Any = gguf.GGUFWriter(path, _ARCHITECTURES[config.model_type])
    _add_sizes(writer, config)
    _add_rope(writer, model)
    _add_vocabulary(writer)
    for name, weight in model.state_dict().items():
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            for gguf_name, tensor in _tensors(name, weight, config):
                parts = _split(gguf_name, tensor) if splits_experts else [(gguf_name, tensor)]
                for part_name, part in parts:
                    _add_tensor(writer, part_name, part, storage)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensor(
    writer: Any, name: str, tensor: torch.Tensor, storage: gguf.GGMLQuantizationType | None
) -> None:
    array = np.ascontiguousarray(tensor.numpy())
    if storage is None or tensor.ndim == 1 or "ffn_gate_inp" in name:
        writer.add_tensor(name, array)
    else:
        writer.add_tensor(name, gguf.quantize(array, storage), raw_dtype=storage)


def _add_sizes(writer: Any, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "head_dim", None) is not None:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if getattr(config, "final_logit_softcapping", None):
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if getattr(config, "num_experts_per_tok", None):
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if config.model_type == "qwen3_moe":
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_weights_norm(config.norm_topk_prob)


def _add_rope(writer: Any, model: Any) -> None:
    config = model.config
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        exponents = torch.arange(0, head_dim, 2) / head_dim
        plain = rope["rope_theta"] ** -exponents
        writer.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).numpy())
    if rope["rope_type"] == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
        writer.add_rope_scaling_attn_factors(model.model.rotary_emb.attention_scaling)
        for kind in ("short", "long"):
            factors = np.array(rope[f"{kind}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{kind}.weight", factors)


def _add_vocabulary(writer: Any) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(list(TOKENS))
    writer.add_token_types([3, 3, 3, *[1] * (len(TOKENS) - 3)])
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _tensors(name: str, weight: torch.Tensor, config: Any) -> list[tuple[str, torch.Tensor]]:
    prefix, inner = "", name
    if name.startswith("model.layers."):
        _, _, layer, inner = name.split(".", 3)
        prefix = f"blk.{layer}."
    if inner.startswith("mlp.experts."):
        return [(prefix + part, tensor) for part, tensor in _experts(inner, weight)]
    module, kind = inner.rsplit(".", 1)
    is_gemma = config.model_type == "gemma3_text"
    if is_gemma and module == "post_attention_layernorm":
        return [(f"{prefix}post_attention_norm.weight", weight + 1)]
    if is_gemma and "norm" in module:
        weight = weight + 1
    if _ARCHITECTURES[config.model_type] == "llama" and module in (
        "self_attn.q_proj",
        "self_attn.k_proj",
    ):
        is_query = module == "self_attn.q_proj"
        num_heads = config.num_attention_heads if is_query else config.num_key_value_heads
        halves = weight.view(num_heads, 2, -1, *weight.shape[1:])
        weight = halves.transpose(1, 2).reshape(weight.shape)
    return [(f"{prefix}{_NAMES[module]}.{kind}", weight)]


def _experts(name: str, weight: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """transformers holds gate and up of all experts in one tensor: [experts, 2 f, hidden]."""
    if name == "mlp.experts.down_proj":
        return [("ffn_down_exps.weight", weight)]
    gate, up = weight.chunk(2, dim=1)
    return [("ffn_gate_exps.weight", gate), ("ffn_up_exps.weight", up)]


def _split(name: str, tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    if "_exps." not in name:
        return [(name, tensor)]
    return [(name.replace("_exps.", f".{expert}."), part) for expert, part in enumerate(tensor)]
