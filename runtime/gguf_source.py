"""What a GGUF file says about its model: what it computes and text assets. Called by
open_model."""

from pathlib import Path

from runtime.decoder_spec import DecoderSpec
from runtime.errors import ModelError
from runtime.gguf_file import GgufFile
from runtime.gguf_vocabulary import adds_bos, build_tokenizer_json, control_tokens, string_list
from runtime.model_facts import END_OF_TURN_TOKENS, ModelSource, check_num_tokens
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.registry import GGUF_ARCHITECTURES
from runtime.text_assets import TextAssets

_SPECIAL_TOKEN_KEYS = {
    "bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding",
}  # fmt: skip


def open_gguf(path: Path) -> ModelSource:
    """Raises: ModelError, one line."""
    metadata = GgufMetadata(GgufFile.open(path))
    architecture = metadata.architecture
    blueprint_of = GGUF_ARCHITECTURES.get(architecture)
    if blueprint_of is None:
        raise ModelError(
            f"{path}: the architecture {architecture!r} is not supported"
            f" (supported: {', '.join(sorted(GGUF_ARCHITECTURES))})"
        )
    try:
        blueprint = blueprint_of(metadata)
        blueprint.spec.check()
    except (ArithmeticError, ValueError) as error:
        raise ModelError(f"{path}: {error}") from None
    try:
        text = _read_text(metadata, blueprint.spec)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    num_tokens = len(string_list(metadata.file.metadata, "tokenizer.ggml.tokens"))
    check_num_tokens(num_tokens, blueprint.spec.vocab_size, path)
    return ModelSource(
        path=path,
        architecture=architecture,
        spec=blueprint.spec,
        weight_map=blueprint.weight_map,
        text=text,
        weights=metadata.file,
        identity_files=(path,),
    )


def _read_text(metadata: GgufMetadata, spec: DecoderSpec) -> TextAssets:
    tokenizer_json = build_tokenizer_json(metadata.file.metadata)
    template = metadata.get("tokenizer.chat_template")
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    return TextAssets(
        tokenizer_json=tokenizer_json,
        vocab_size=spec.vocab_size,
        eos_token_ids=_eos_token_ids(metadata),
        bos_token_id=bos if isinstance(bos, int) else None,
        add_bos=adds_bos(metadata.file.metadata),
        chat_template=template if isinstance(template, str) else None,
        max_position=spec.max_position,
        special_tokens=_special_tokens(metadata),
    )


def _eos_token_ids(metadata: GgufMetadata) -> tuple[int, ...]:
    ids = []
    for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"):
        token_id = metadata.get(key)
        if isinstance(token_id, int):
            ids.append(token_id)
    by_text = control_tokens(metadata.file.metadata)
    ids += [by_text[text] for text in END_OF_TURN_TOKENS if text in by_text]
    if not ids:
        raise ModelError("the vocabulary names no end-of-sequence token")
    return tuple(dict.fromkeys(ids))


def _special_tokens(metadata: GgufMetadata) -> dict[str, str]:
    tokens = string_list(metadata.file.metadata, "tokenizer.ggml.tokens")
    special = {}
    for name, gguf_name in _SPECIAL_TOKEN_KEYS.items():
        token_id = metadata.get(f"tokenizer.ggml.{gguf_name}_token_id")
        if isinstance(token_id, int) and token_id < len(tokens):
            special[name] = tokens[token_id]
    return special
