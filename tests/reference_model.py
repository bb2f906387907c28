"""transformers' models with the weights of a GGUF file, read by the gguf package's own reader.

Shares no code with the product: reader, dequantizing, names and the order of rotary pairs are
written here a second time.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA3_LAYER_NAMES = _LAYER_NAMES | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def load_reference_model(path: Path) -> Any:
    """The model in float32, ready for inference. Tensors are dequantized one at a time."""
    reader = gguf.GGUFReader(str(path))
    architecture = reader.fields["general.architecture"].contents()
    names = _GEMMA3_LAYER_NAMES if architecture == "gemma3" else _LAYER_NAMES
    model = _MODELS[architecture](_Metadata(reader, architecture))
    parameters = dict(model.named_parameters())
    for tensor in reader.tensors:
        name = _name(tensor.name, names)
        weight = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            weight = _split_halves(weight, model.config.head_dim)
        if architecture == "gemma3" and "norm" in name:
            weight -= 1
        parameter = parameters.pop(name)
        assert parameter.shape == weight.shape
        parameter.data = weight
    assert parameters == {}, "every weight of the model is in the file"
    return model.eval()


class _Metadata:
    """The file's own entries by the end of their keys, and what its tensors say."""

    def __init__(self, reader: Any, architecture: str) -> None:
        self._reader = reader
        self._architecture = architecture

    def __call__(self, suffix: str) -> Any:
        return self._reader.fields[f"{self._architecture}.{suffix}"].contents()

    def sizes(self) -> dict[str, Any]:
        shapes = {tensor.name: tensor.shape for tensor in self._reader.tensors}
        return {
            "vocab_size": int(shapes["token_embd.weight"][1]),  # the file's order is the other
            "hidden_size": self("embedding_length"),
            "intermediate_size": self("feed_forward_length"),
            "num_hidden_layers": self("block_count"),
            "num_attention_heads": self("attention.head_count"),
            "num_key_value_heads": self("attention.head_count_kv"),
            "max_position_embeddings": self("context_length"),
            "rms_norm_eps": self("attention.layer_norm_rms_epsilon"),
            "tie_word_embeddings": "output.weight" not in shapes,
        }

    def rope(self) -> dict[str, Any]:
        return {"rope_type": "default", "rope_theta": self("rope.freq_base")}


def _llama(metadata: _Metadata) -> Any:
    return LlamaForCausalLM(LlamaConfig(**metadata.sizes(), rope_parameters=metadata.rope()))


def _qwen2(metadata: _Metadata) -> Any:
    return Qwen2ForCausalLM(Qwen2Config(**metadata.sizes(), rope_parameters=metadata.rope()))


def _gemma3(metadata: _Metadata) -> Any:
    """The file leaves out what all models of the family share: every sixth layer sees all."""
    kinds = ("sliding_attention", "full_attention")
    local = {"rope_type": "default", "rope_theta": 10_000.0}
    config = Gemma3TextConfig(
        **metadata.sizes(),
        head_dim=metadata("attention.key_length"),
        query_pre_attn_scalar=metadata("attention.key_length"),
        sliding_window=metadata("attention.sliding_window"),
        layer_types=[kinds[(layer + 1) % 6 == 0] for layer in range(metadata("block_count"))],
        rope_parameters={"sliding_attention": local, "full_attention": metadata.rope()},
    )
    return Gemma3ForCausalLM(config)


_MODELS: Mapping[str, Callable[[_Metadata], Any]] = {
    "gemma3": _gemma3,
    "llama": _llama,
    "qwen2": _qwen2,
}


def _name(gguf_name: str, layer_names: Mapping[str, str]) -> str:
    parts = gguf_name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{layer_names[parts[2]]}.{parts[3]}"
    return _TOP_NAMES[parts[0]] + ".weight"


def _split_halves(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """From rows (0, d/2, 1, d/2 + 1, ...) of each head to (0, 1, ..., d - 1)."""
    heads = weight.view(-1, head_dim, weight.shape[1])
    halves = torch.cat((heads[:, 0::2], heads[:, 1::2]), dim=1)
    return halves.view(weight.shape)
