"""A tiny random llama as a Hugging Face folder, so that tests run a whole runtime in seconds.

The weights are a function of the seed. Every id of the vocabulary is a token of the byte-level
tokenizer, so that whatever the random model says has bytes. Needs no torch.
"""

import json
from itertools import islice, product
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TEXT_ID, IM_START_ID, IM_END_ID = range(3)

HIDDEN_SIZE = 64
HEAD_DIM = 16
NUM_HEADS = 4
NUM_KV_HEADS = 2
INTERMEDIATE_SIZE = 128
NUM_LAYERS = 2

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_MERGED_LETTERS = "etaoinshrdlucmfw"

Array = npt.NDArray[np.float32]


def write_tiny_model(
    folder: Path, *, seed: int = 0, vocab_size: int = 512, max_position: int = 2048
) -> Path:
    """Fills `folder` (made if missing) with config, tokenizer and weights; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    build_tokenizer(vocab_size).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(max_position))
    _write_json(folder / "config.json", _model_config(vocab_size, max_position))
    save_file(_weights(seed, vocab_size), folder / "model.safetensors", {"format": "pt"})
    return folder


def build_tokenizer(vocab_size: int = 512) -> Tokenizer:
    """Specials, 256 bytes, then merges of a space or a common letter with a letter."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    num_merges = vocab_size - len(SPECIAL_TOKENS) - len(alphabet)
    merges = list(islice(_merge_candidates(), num_merges))
    assert len(merges) == num_merges, "the vocabulary must have 259 to 541 tokens"
    tokens = [*SPECIAL_TOKENS, *alphabet, *(left + right for left, right in merges)]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return tokenizer


def _merge_candidates() -> list[tuple[str, str]]:
    space = "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
    starts = [(space, letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
    return starts + [(left, right) for left, right in product(_MERGED_LETTERS, _MERGED_LETTERS)]


def _tokenizer_config(max_position: int) -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[IM_START_ID],
        "eos_token": SPECIAL_TOKENS[IM_END_ID],
        "unk_token": SPECIAL_TOKENS[END_OF_TEXT_ID],
        "pad_token": SPECIAL_TOKENS[IM_END_ID],
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_position,
        "chat_template": CHAT_TEMPLATE,
    }


def _model_config(vocab_size: int, max_position: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN_SIZE,
        "head_dim": HEAD_DIM,
        "intermediate_size": INTERMEDIATE_SIZE,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "max_position_embeddings": max_position,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": IM_START_ID,
        "eos_token_id": IM_END_ID,
        "pad_token_id": IM_END_ID,
    }


def _weights(seed: int, vocab_size: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    weights = {
        "model.embed_tokens.weight": _normal(rng, (vocab_size, HIDDEN_SIZE), 1.0),
        "model.norm.weight": np.ones(HIDDEN_SIZE, np.float32),
        "lm_head.weight": _normal(rng, (vocab_size, HIDDEN_SIZE), 0.25),
    }
    for layer in range(NUM_LAYERS):
        weights.update(_layer_weights(rng, f"model.layers.{layer}."))
    return weights


def _layer_weights(rng: np.random.Generator, prefix: str) -> dict[str, Array]:
    query_size, kv_size = NUM_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM
    shapes = {
        "self_attn.q_proj": (query_size, HIDDEN_SIZE),
        "self_attn.k_proj": (kv_size, HIDDEN_SIZE),
        "self_attn.v_proj": (kv_size, HIDDEN_SIZE),
        "self_attn.o_proj": (HIDDEN_SIZE, query_size),
        "mlp.gate_proj": (INTERMEDIATE_SIZE, HIDDEN_SIZE),
        "mlp.up_proj": (INTERMEDIATE_SIZE, HIDDEN_SIZE),
        "mlp.down_proj": (HIDDEN_SIZE, INTERMEDIATE_SIZE),
    }
    weights = {
        f"{prefix}{name}.weight": _normal(rng, shape, shape[1] ** -0.5)
        for name, shape in shapes.items()
    }
    for norm in ("input_layernorm", "post_attention_layernorm"):
        weights[f"{prefix}{norm}.weight"] = np.ones(HIDDEN_SIZE, np.float32)
    return weights


def _normal(rng: np.random.Generator, shape: tuple[int, int], scale: float) -> Array:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
