"""What is known of a model on disk before its weights are read: its computation, where its
weights lie, text assets, identity.

Filled by runtime/gguf_source.py and runtime/huggingface_source.py; the weights themselves are
read by runtime/weights.py. No torch.
"""

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtime.decoder_spec import DecoderSpec
from runtime.errors import ModelError
from runtime.gguf_file import GgufFile
from runtime.text_assets import TextAssets
from runtime.weight_map import WeightMap

# Tokens by which models end a turn or a text; where the vocabulary has one as a control token,
# it ends the answer whatever the file names as the end of sequence.
END_OF_TURN_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>",
    "<|end|>", "<end_of_turn>",
)  # fmt: skip
_HASH_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WeightFolder:
    """The safetensors files of a Hugging Face folder, and what its index, if it has one, says of
    each tensor: the name of its file."""

    files: tuple[Path, ...]
    index: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class ModelSource:
    """A model on disk. Immutable but for the hash, which is computed on first use."""

    path: Path
    architecture: str
    spec: DecoderSpec
    weight_map: WeightMap
    text: TextAssets
    weights: GgufFile | WeightFolder
    identity_files: tuple[Path, ...]
    _hash: str | None = field(default=None, repr=False)
    _hash_lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def content_hash(self) -> str:
        """SHA-256 (hex) over the files that decide what the model computes."""
        with self._hash_lock:
            if self._hash is None:
                self._hash = _hash_files(self.identity_files)
            return self._hash


def check_num_tokens(num_tokens: int, vocab_size: int, path: Path) -> None:
    """Raises: ModelError where the embedding, of `vocab_size` rows, lacks rows for tokens."""
    if num_tokens > vocab_size:
        raise ModelError(
            f"{path}: the vocabulary has {num_tokens} tokens, but the embedding only {vocab_size}"
            " rows: the tokenizer belongs to another model"
        )


def _hash_files(files: tuple[Path, ...]) -> str:
    """One file: its plain SHA-256. Several: over (name, digest) of each, in order of name."""
    if len(files) == 1:
        return _hash_file(files[0])
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.name}\0{_hash_file(file)}\n".encode())
    return digest.hexdigest()


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
    return digest.hexdigest()
