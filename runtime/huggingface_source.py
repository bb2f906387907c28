"""What a Hugging Face folder says about its model: what it computes and text assets.

Called by open_model. Reads config.json, generation_config.json, tokenizer.json,
tokenizer_config.json and chat_template.jinja; only the names of the safetensors files.
"""

import json
from pathlib import Path
from typing import Any

from runtime.decoder_spec import DecoderSpec
from runtime.errors import ModelError
from runtime.model_facts import (
    END_OF_TURN_TOKENS,
    ModelSource,
    WeightFolder,
    check_num_tokens,
)
from runtime.models.model_config import ModelConfig
from runtime.models.registry import MODEL_TYPES
from runtime.text_assets import TextAssets

_JsonObject = dict[str, Any]

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def open_folder(path: Path) -> ModelSource:
    """Raises: ModelError, one line."""
    config = _read_json(path / "config.json")
    architecture = config.get("model_type")
    blueprint_of = MODEL_TYPES.get(str(architecture))
    if blueprint_of is None:
        raise ModelError(
            f"{path}: model_type {architecture!r} is not supported"
            f" (supported: {', '.join(sorted(MODEL_TYPES))})"
        )
    weights = _weight_folder(path)
    try:
        blueprint = blueprint_of(ModelConfig(config, weights.files))
        blueprint.spec.check()
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ModelError(f"{path / 'config.json'}: {error}") from None
    try:
        text = _read_text(path, config=config, spec=blueprint.spec)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: a file of the tokenizer is damaged ({type(error).__name__}: {error})"
        ) from None
    return ModelSource(
        path=path,
        architecture=str(architecture),
        spec=blueprint.spec,
        weight_map=blueprint.weight_map,
        text=text,
        weights=weights,
        identity_files=(path / "config.json", path / "tokenizer.json", *weights.files),
    )


def _read_json(path: Path, *, required: bool = True) -> _JsonObject:
    if not path.is_file() and not required:
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: must be a JSON object, it is a {type(content).__name__}")
    return content


def _weight_folder(path: Path) -> WeightFolder:
    """The shards that the index names, else the single file."""
    index_file = path / "model.safetensors.index.json"
    index: _JsonObject = {}
    if index_file.is_file():
        index = _read_json(index_file).get("weight_map") or {}
        if not isinstance(index, dict) or not index:
            raise ModelError(f"{index_file}: has no 'weight_map'")
    names = sorted({str(name) for name in index.values()}) or ["model.safetensors"]
    for name in names:
        if not name or Path(name).name != name:
            raise ModelError(f"{index_file}: {name!r} is not the name of a file beside it")
        if not (path / name).is_file():
            raise ModelError(f"{path / name}: this file of the model is missing")
    return WeightFolder(tuple(path / name for name in names), index)


def _read_text(path: Path, *, config: _JsonObject, spec: DecoderSpec) -> TextAssets:
    tokenizer = _read_json(path / "tokenizer.json")
    settings = _read_json(path / "tokenizer_config.json", required=False)
    special_tokens = _special_tokens(settings)
    ids = {str(t["content"]): int(t["id"]) for t in tokenizer.get("added_tokens", [])}
    vocabulary = _vocabulary(tokenizer)
    num_tokens = max((*ids.values(), *vocabulary.values()), default=-1) + 1
    check_num_tokens(num_tokens, spec.vocab_size, path / "tokenizer.json")
    ids |= {t: i for t, i in vocabulary.items() if t in special_tokens.values()}
    bos_id = ids.get(special_tokens.get("bos_token", ""), config.get("bos_token_id"))
    return TextAssets(
        tokenizer_json=json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")),
        vocab_size=spec.vocab_size,
        eos_token_ids=_eos_token_ids(path, config=config, added_tokens=ids),
        bos_token_id=bos_id if isinstance(bos_id, int) else None,
        add_bos=_adds_bos(settings, tokenizer, bos_token=special_tokens.get("bos_token")),
        chat_template=_chat_template(path, settings),
        max_position=spec.max_position,
        special_tokens=special_tokens,
    )


def _vocabulary(tokenizer: _JsonObject) -> dict[str, int]:
    vocabulary = tokenizer.get("model", {}).get("vocab")
    return vocabulary if isinstance(vocabulary, dict) else {}


def _special_tokens(settings: _JsonObject) -> dict[str, str]:
    """A special token is written as a string or as an object with its content."""
    special = {}
    for name in _SPECIAL_TOKENS:
        value = settings.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            special[name] = text
    return special


def _eos_token_ids(
    path: Path, *, config: _JsonObject, added_tokens: dict[str, int]
) -> tuple[int, ...]:
    generation = _read_json(path / "generation_config.json", required=False)
    ids: list[int] = []
    for value in (generation.get("eos_token_id"), config.get("eos_token_id")):
        found = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(token_id) is int for token_id in found):
            raise ModelError(f"{path}: eos_token_id must be a number or a list, it is {value!r}")
        ids += found
    ids += [added_tokens[text] for text in END_OF_TURN_TOKENS if text in added_tokens]
    if not ids:
        raise ModelError(f"{path}: no file of the folder names an end-of-sequence token")
    return tuple(dict.fromkeys(ids))


def _adds_bos(settings: _JsonObject, tokenizer: _JsonObject, *, bos_token: str | None) -> bool:
    """What tokenizer_config.json says, else whether the post-processor puts the token first."""
    if isinstance(settings.get("add_bos_token"), bool):
        return bool(settings["add_bos_token"])
    processor = tokenizer.get("post_processor") or {}
    for part in processor.get("processors", [processor]):
        first = (part.get("single") or [{}])[0]
        if bos_token is not None and first.get("SpecialToken", {}).get("id") == bos_token:
            return True
    return False


def _chat_template(path: Path, settings: _JsonObject) -> str | None:
    """A file of its own, else tokenizer_config.json: one text, or a list of named ones."""
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else None
