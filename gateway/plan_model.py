"""Finds the model that `radixgate plan` is asked about: a file, a folder, a known name, a hub id of
which only config.json is fetched, or sizes from flags."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planning.errors import PlanError
from planning.gguf_facts import StoredTensor, model_of_gguf, packed_bytes
from planning.known_models import KNOWN_MODELS, known_model
from planning.model_config import model_of_config
from planning.model_facts import (
    DecoderSizes,
    ModelFacts,
    StoredBytes,
    checked_layers,
    with_total_params,
)
from runtime.gguf_file import GgufFile
from runtime.hub_reference import HubReference, parse_hub_reference

_MAX_CONFIG_BYTES = 16 << 20
_MAX_NAME_CHARS = 100  # of one that is found nowhere


@dataclass(frozen=True, slots=True)
class FoundModel:
    """`weight_bits`: those that the model comes with. `packed`: of a GGUF file, what its weights
    take in this server's native step."""

    facts: ModelFacts
    weight_bits: float
    packed: StoredBytes | None = None


def find_model(options: argparse.Namespace) -> FoundModel:
    """Raises: PlanError; ModelError where a file or the hub is at fault."""
    if options.model is None:
        return FoundModel(_model_of_flags(options), 16.0)
    bits: float | None = options.weight_bits
    try:
        path = Path(options.model).expanduser()
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, RuntimeError) as error:  # too long, not to be looked at, nobody's home
        raise PlanError(f"{options.model[:_MAX_NAME_CHARS]}: {error}"[:300]) from None
    if is_folder:
        return _model_of_config_file(path / "config.json", path.resolve().name, weight_bits=bits)
    if exists and path.suffix == ".json":
        return _model_of_config_file(path, path.resolve().parent.name, weight_bits=bits)
    if exists:
        return _model_of_gguf_file(path)
    if options.model.lower() in KNOWN_MODELS:
        return FoundModel(known_model(options.model.lower()), 16.0)
    reference = parse_hub_reference(options.model)
    if reference is None:
        known = ", ".join(KNOWN_MODELS)
        raise PlanError(
            f"{options.model[:_MAX_NAME_CHARS]!r} is no file, no folder, no hub id (org/name) and"
            f" no known model; known: {known}"
        )
    return _model_of_hub(reference, weight_bits=bits)


def _model_of_hub(reference: HubReference, *, weight_bits: float | None) -> FoundModel:
    if reference.file is not None:
        raise PlanError(
            f"{reference}: its header is not read over the network; fetch the file and name it, or"
            f" name {reference.repo}"
        )
    # Imported late: the library takes half a second, and only a hub id needs it.
    from runtime.hub import fetch_config

    path = fetch_config(reference)
    return _model_of_config_file(path, str(reference), weight_bits=weight_bits)


def _model_of_config_file(path: Path, name: str, *, weight_bits: float | None) -> FoundModel:
    """`weight_bits` are those that the operator names, in place of the file's."""
    try:
        with path.open("rb") as file:
            entries: Any = json.loads(file.read(_MAX_CONFIG_BYTES))
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError):
        raise PlanError(f"{path}: is not JSON") from None
    if not isinstance(entries, dict):
        raise PlanError(f"{path}: must be a JSON object")
    found = model_of_config(entries, name=name, source="config.json", weight_bits=weight_bits)
    return FoundModel(found.facts, found.weight_bits)


def _model_of_gguf_file(path: Path) -> FoundModel:
    file = GgufFile.open(path)
    tensors = [
        StoredTensor(info.name, info.type.name, info.shape, info.num_bytes)
        for info in file.tensors.values()
    ]
    facts = model_of_gguf(file.metadata, tensors, name=path.name, source="GGUF header")
    assert facts.stored is not None
    return FoundModel(facts, float(facts.stored.bits), packed_bytes(tensors))


def _model_of_flags(options: argparse.Namespace) -> ModelFacts:
    """Of --layers and so on; what is not given follows from the others."""
    missing = [
        flag
        for flag, value in (
            ("--params", options.params),
            ("--layers", options.layers),
            ("--hidden", options.hidden),
            ("--heads", options.heads),
            ("--vocab", options.vocab),
        )
        if value is None
    ]
    if missing:
        raise PlanError(f"name a --model, or its sizes: {', '.join(missing)} missing")
    if options.hidden % options.heads and options.head_dim is None:
        raise PlanError(f"--head-dim is needed: {options.heads} heads do not divide --hidden")
    name = "a model of these sizes"
    sizes = DecoderSizes(
        hidden_size=options.hidden,
        num_layers=checked_layers(options.layers, name),
        num_heads=options.heads,
        num_kv_heads=options.kv_heads or options.heads,
        head_dim=options.head_dim or options.hidden // options.heads,
        ffn_size=0,
        vocab_size=options.vocab,
        max_context=options.context or 1 << 20,
        tied_embeddings=options.tied,
        num_experts=options.experts or 0,
        num_used=options.experts_used or 0,
        expert_ffn_size=options.expert_ffn or 0,
        windows=(options.window,) * options.layers if options.window else (),
    )
    experts = (options.experts, options.experts_used, options.expert_ffn)
    if any(experts) and not all(experts):
        raise PlanError("--experts, --experts-used and --expert-ffn belong together")
    return with_total_params(sizes, round(options.params), name=name)
