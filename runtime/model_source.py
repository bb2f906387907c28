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
        return open_folder(path)
    if not path.exists():
        raise ModelError(f"{path}: there is no such model file or folder")
    return open_gguf(path)
