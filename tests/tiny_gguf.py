"""A tiny random llama as a GGUF file, with every storage type that can be read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

HIDDEN, FFN, HEADS, KV_HEADS, LAYERS, HEAD_DIM = 64, 128, 4, 2, 2, 16
TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abcdefghijklmnopqrstuvwxyz", "Ġ", "Ċ",
    "ab", "Ġa",
)  # fmt: skip
MERGES = ("a b", "Ġ a")
VOCAB = 64  # wider than the token list, as in real files


def write_tiny_gguf(
    path: Path,
    *,
    metadata: Mapping[str, Any] | None = None,
    drop: str | None = None,
    extra: Mapping[str, tuple[int, ...]] | None = None,
    seed: int = 0,
) -> Path:
    """Writes a valid file. `metadata` adds or replaces entries (None removes one), `drop` leaves a
    tensor out, `extra` adds tensors of these shapes."""
    writer = gguf.GGUFWriter(path, str((metadata or {}).get("general.architecture", "llama")))
    for key, value in (default_metadata() | dict(metadata or {})).items():
        if value is not None and key != "general.architecture":
            _add(writer, key, value)
    rng = np.random.default_rng(seed)
    shapes = tensor_shapes() | dict(extra or {})
    for name, shape in shapes.items():
        weights = rng.standard_normal(shape).astype(np.float32) * shape[-1] ** -0.5
        if name != drop:
            _add_tensor(writer, name, weights if len(shape) > 1 else weights + 1.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def default_metadata() -> dict[str, Any]:
    return {
        "llama.block_count": LAYERS,
        "llama.context_length": 256,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": HEAD_DIM,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": list(TOKENS),
        "tokenizer.ggml.token_type": [3, 3, 3, *[1] * (len(TOKENS) - 3)],
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages }}",
    }


def tensor_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCAB, HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        shapes |= {
            f"{prefix}attn_norm.weight": (HIDDEN,),
            f"{prefix}attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}ffn_norm.weight": (HIDDEN,),
            f"{prefix}ffn_gate.weight": (FFN, HIDDEN),
            f"{prefix}ffn_up.weight": (FFN, HIDDEN),
            f"{prefix}ffn_down.weight": (HIDDEN, FFN),
        }
    return shapes


_STORAGE = {
    "token_embd": gguf.GGMLQuantizationType.Q8_0,
    "attn_q": gguf.GGMLQuantizationType.Q4_1,
    "attn_k": gguf.GGMLQuantizationType.Q4_0,
    "attn_v": gguf.GGMLQuantizationType.BF16,
    "attn_output": gguf.GGMLQuantizationType.F16,
}


def _add_tensor(writer: Any, name: str, weights: np.ndarray[Any, Any]) -> None:
    storage = next((kind for part, kind in _STORAGE.items() if part in name), None)
    if storage is None or weights.ndim == 1:
        writer.add_tensor(name, weights)
    else:
        writer.add_tensor(name, gguf.quantize(weights, storage), raw_dtype=storage)


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
