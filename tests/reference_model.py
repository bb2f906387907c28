"""transformers' llama with the weights of a GGUF file, read by the gguf package's own reader.

Shares no code with the product: reader, dequantizing, names and the order of rotary pairs are
written here a second time.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import LlamaConfig, LlamaForCausalLM

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def load_reference_model(path: Path) -> Any:
    """The model in float32, ready for inference."""
    reader = gguf.GGUFReader(str(path))
    state = {_name(tensor.name): _weights(tensor) for tensor in reader.tensors}
    config = _config(reader, state)
    for name, weight in state.items():
        if "q_proj" in name or "k_proj" in name:
            state[name] = _split_halves(weight, config.head_dim)
    model: Any = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert missing in ([], ["lm_head.weight"])
    model.tie_weights()
    return model.eval()


def _name(gguf_name: str) -> str:
    parts = gguf_name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"
    return _TOP_NAMES[parts[0]] + ".weight"


def _weights(tensor: Any) -> torch.Tensor:
    return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())


def _split_halves(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """From rows (0, d/2, 1, d/2 + 1, ...) of each head to (0, 1, ..., d - 1)."""
    heads = weight.view(-1, head_dim, weight.shape[1])
    halves = torch.cat((heads[:, 0::2], heads[:, 1::2]), dim=1)
    return halves.view(weight.shape)


def _config(reader: Any, state: Mapping[str, torch.Tensor]) -> Any:
    def value(key: str) -> Any:
        return reader.fields[key].contents()

    return LlamaConfig(
        vocab_size=state["model.embed_tokens.weight"].shape[0],
        hidden_size=value("llama.embedding_length"),
        intermediate_size=value("llama.feed_forward_length"),
        num_hidden_layers=value("llama.block_count"),
        num_attention_heads=value("llama.attention.head_count"),
        num_key_value_heads=value("llama.attention.head_count_kv"),
        max_position_embeddings=value("llama.context_length"),
        rms_norm_eps=value("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": value("llama.rope.freq_base")},
        tie_word_embeddings="lm_head.weight" not in state,
    )
