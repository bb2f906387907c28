"""Finds and opens a model, whichever kind it is: a GGUF file, a Hugging Face folder, or a hub id,
which is fetched into the cache first.

Needs no torch, as the gateway process uses it too.
"""

from pathlib import Path

from runtime.errors import ModelError
from runtime.gguf_source import open_gguf
from runtime.hub_reference import parse_hub_reference
from runtime.huggingface_source import open_folder
from runtime.model_facts import ModelSource

__all__ = ["ModelSource", "hub_name", "locate_model", "open_model"]


def locate_model(name: str) -> Path:
    """The file or folder of a model given as a path or as a hub id; a path that exists comes
    first. A hub model that is not in the cache yet is downloaded, which may take long.

    Raises: ModelError where a hub model cannot be had; a path is not looked at.
    """
    reference = parse_hub_reference(name)
    path = Path(name).expanduser()
    if reference is None or path.exists():
        return path
    # Imported late: the library takes half a second, and only a hub id needs it.
    from runtime.hub import fetch_model

    return fetch_model(reference)


def hub_name(name: str) -> str | None:
    """The model's own name where `name` is a hub id and no path; else None."""
    reference = parse_hub_reference(name)
    if reference is None or Path(name).expanduser().exists():
        return None
    return reference.repo if reference.file is None else Path(reference.file).stem.lower()


def open_model(path: str | Path) -> ModelSource:
    """Reads everything but the weights.

    Raises: ModelError, one line, for a model that is missing, damaged or not supported.
    """
    path = Path(path)
    if path.is_dir():
        return _checked(open_folder(path))
    if not path.exists():
        raise ModelError(f"{path}: there is no such model file or folder")
    return _checked(open_gguf(path))


def _checked(source: ModelSource) -> ModelSource:
    """The source. Raises: ModelError for a special token that the embedding has no row for."""
    text = source.text
    ids = (*text.eos_token_ids, text.bos_token_id or 0)
    wrong = [token_id for token_id in ids if not 0 <= token_id < text.vocab_size]
    if wrong:
        raise ModelError(
            f"{source.path}: token {wrong[0]} is to begin or end a text, but the vocabulary has"
            f" only {text.vocab_size}"
        )
    return source
