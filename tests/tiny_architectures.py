"""Tiny random models of every architecture, made and judged by transformers.

Each case turns on what its architecture has: shared key-value heads, windows smaller than the
prompt, scaled rotary frequencies, biases, norms that are not one, more experts than are used.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.tiny_model import END_OF_TEXT_ID, IM_END_ID, build_tokenizer

VOCAB_SIZE = 320
MAX_POSITION = 512
_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_POSITION,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": IM_END_ID,
    "pad_token_id": 0,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 48,
}
_WINDOW = 20
_ENDS = (END_OF_TEXT_ID, IM_END_ID)  # by their names in the tokenizer


@dataclass(frozen=True)
class Case:
    """One model. `config` names a class of transformers without its suffix; `in_gguf`: GGUF files
    can say all of it; `max_model_len` is what the runtime is asked for."""

    name: str
    config: str
    changes: dict[str, Any] = field(default_factory=dict)
    in_gguf: bool = True
    max_model_len: int = 256


def _longrope(num_pairs: int, trained_len: int) -> dict[str, Any]:
    return {
        "original_max_position_embeddings": trained_len,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0 + 0.1 * pair for pair in range(num_pairs)],
            "long_factor": [1.0 + 0.9 * pair for pair in range(num_pairs)],
            "original_max_position_embeddings": trained_len,
        },
    }


_PARTIAL = _longrope(6, trained_len=300) | {"hidden_size": 64}
_PARTIAL["rope_parameters"]["partial_rotary_factor"] = 0.75
_GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": _WINDOW}
_GEMMA_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
CASES = (
    Case("llama", "Llama"),
    Case("llama tied, wide heads", "Llama", {"tie_word_embeddings": True, "head_dim": 16}),
    Case("llama3 rope", "Llama", {"rope_parameters": _LLAMA3}),
    Case(
        "linear rope, biases",
        "Llama",
        {
            "attention_bias": True,
            "rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 5e4},
        },
    ),
    Case("yarn rope", "Llama", {"rope_parameters": _YARN}),
    Case("mistral", "Mistral", {"sliding_window": None, "head_dim": 16}),
    Case("mistral window", "Mistral", {"sliding_window": _WINDOW}),
    Case("qwen2", "Qwen2"),
    Case(
        "qwen2 windows",
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": _WINDOW, "max_window_layers": 1},
        in_gguf=False,
    ),
    Case("qwen3", "Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    Case(
        "qwen3 biases, window",
        "Qwen3",
        {
            "head_dim": 8,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": _WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        in_gguf=False,
    ),
    Case(
        "gemma3",
        "Gemma3Text",
        {
            **_GEMMA,
            "num_hidden_layers": 7,
            "query_pre_attn_scalar": 16,
            "final_logit_softcapping": 3.0,
            "rope_parameters": _GEMMA_ROPES,
        },
    ),
    Case("gemma3 pattern, scale", "Gemma3Text", {**_GEMMA, "sliding_window_pattern": 2}, False),
    Case("gemma3 with images", "Gemma3", {**_GEMMA, "sliding_window_pattern": 3}, False),
    Case("phi3", "Phi3", {"sliding_window": _WINDOW}),
    Case("phi3 short", "Phi3", _longrope(6, trained_len=300)),
    Case("phi3 long", "Phi3", _longrope(6, trained_len=40)),
    Case("phi3 partly turning", "Phi3", _PARTIAL),
    Case(
        "mixtral",
        "Mixtral",
        {"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": _WINDOW},
    ),
    Case("qwen3_moe", "Qwen3Moe", {**_EXPERTS, "head_dim": 16, "norm_topk_prob": True}),
    Case(
        "qwen3_moe some layers",
        "Qwen3Moe",
        {
            **_EXPERTS,
            "head_dim": 8,
            "norm_topk_prob": False,
            "num_hidden_layers": 5,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
        },
    ),
)


def make_model(case: Case) -> Any:
    """The model in float32 with random weights, ready for inference."""
    torch.manual_seed(sum(case.name.encode()))
    config = getattr(transformers, f"{case.config}Config")(**_config(case))
    kind = "ForConditionalGeneration" if case.config == "Gemma3" else "ForCausalLM"
    name = case.config.removesuffix("Text")
    model: Any = getattr(transformers, name + kind)(config).eval()
    stores_offset = case.config.startswith("Gemma3")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(_random(name, weight.shape, stores_offset=stores_offset))
    return model


def save_folder(model: Any, folder: Path) -> Path:
    """The model as transformers writes it, with a tokenizer."""
    model.save_pretrained(folder)
    tokenizer = build_tokenizer(VOCAB_SIZE)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def reference_logits(model: Any, token_ids: list[int]) -> torch.Tensor:
    """[len(token_ids), V], one whole forward without a cache."""
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([token_ids]), use_cache=False).logits[0]
    return logits


def reference_greedy(model: Any, prompt: list[int], *, num_tokens: int) -> list[int]:
    """The best tokens but for those that end a text, each after one whole forward."""
    token_ids = list(prompt)
    for _ in range(num_tokens):
        logits = reference_logits(model, token_ids)[-1]
        order = logits.argsort(descending=True).tolist()
        token_ids.append(next(token_id for token_id in order if token_id not in _ENDS))
    return token_ids[len(prompt) :]


def _config(case: Case) -> dict[str, Any]:
    if case.config != "Gemma3":
        return _SIZES | case.changes
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 8,
        "patch_size": 4,
    }
    text = _SIZES | case.changes
    return {"text_config": text, "vision_config": vision, "mm_tokens_per_image": 4}


def _random(name: str, shape: torch.Size, *, stores_offset: bool) -> torch.Tensor:
    """Matrices that keep the size of what they multiply, norms around one, large biases."""
    noise = torch.randn(shape)
    if name.endswith("bias"):
        return 0.5 * noise
    if "norm" in name:
        return 0.3 * noise + (0.0 if stores_offset else 1.0)
    return noise if "embed_tokens" in name else noise * 1.5 * shape[-1] ** -0.5
