"""Opens a model on disk, whichever kind it is: a GGUF file or a Hugging Face folder.

Needs no torch, as the gateway process uses it too.
"""

from pathlib import Path

from runtime.errors import ModelError
from runtime.gguf_source import open_gguf
from runtime.huggingface_source import open_folder
from runtime.model_facts import ModelSource

__all__ = ["ModelSource", "open_model"]


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
