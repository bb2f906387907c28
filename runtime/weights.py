"""Reads the weights of an opened model, tensor by tensor, under the names its files use.

What the names mean, and which must be there, is the business of runtime/models/.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtime.dequantize import dequantize, is_supported, supported_types
from runtime.errors import ModelError
from runtime.gguf_file import GgufFile, TensorInfo
from runtime.model_facts import ModelSource, WeightFolder
from runtime.weight_checks import find_damage, find_wrong_number

_FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as it lies in a GGUF file. `data`: [rows, row_bytes] uint8 (a vector is one row),
    shared with the file: not to be written to. A row holds whole blocks of `type_name`."""

    type_name: str
    shape: tuple[int, ...]
    data: Tensor


class WeightReader(Protocol):
    """All tensors of a model's files."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor in the files, by its name there."""

    def read(self, name: str) -> Tensor:
        """The weights in shape, in a floating dtype; may share memory with the file, so that
        the caller must copy. Raises: ModelError for an unreadable or unsupported tensor."""

    def read_rows(self, name: str, start: int, stop: int) -> Tensor:
        """[start, stop) of the first dimension, as `read` gives them: so that a large tensor
        need not be there in float32 as a whole. Raises: as `read`."""

    def stored(self, name: str) -> StoredTensor | None:
        """The tensor's own blocks, where the files hold ggml's; else None.
        Raises: ModelError for a type that cannot be read."""


def open_weights(source: ModelSource) -> WeightReader:
    """Raises: ModelError for a damaged shard."""
    if isinstance(source.weights, GgufFile):
        return GgufWeights(source.weights)
    return SafetensorsWeights(source.weights)


class GgufWeights:
    """Tensors of a GGUF file, dequantized when read."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._checked: set[str] = set()
        self.shapes = {name: info.shape for name, info in file.tensors.items()}

    def read(self, name: str) -> Tensor:
        stored = self.stored(name)
        return dequantize(stored.data.view(-1), stored.type_name).view(stored.shape)

    def read_rows(self, name: str, start: int, stop: int) -> Tensor:
        stored = self.stored(name)
        if len(stored.shape) == 1:
            return self.read(name)[start:stop]
        rows_in_each = stored.data.shape[0] // stored.shape[0]
        rows = stored.data[start * rows_in_each : stop * rows_in_each]
        return dequantize(rows.reshape(-1), stored.type_name).view(-1, *stored.shape[1:])

    def stored(self, name: str) -> StoredTensor:
        info = self._file.tensors[name]
        if not is_supported(info.type.name):
            raise ModelError(
                f"{self._file.path}: tensor {name!r} is stored as {info.type.name}, which is not"
                f" supported (supported: {', '.join(supported_types())})"
            )
        data = torch.frombuffer(self._file.tensor_bytes(info), dtype=torch.uint8)
        self._check(info, data)
        num_rows = math.prod(info.shape[:-1])
        return StoredTensor(info.type.name, info.shape, data.view(num_rows, -1))

    def _check(self, info: TensorInfo, data: Tensor) -> None:
        if info.name in self._checked:
            return
        damage = find_damage(
            data,
            info.type.name,
            block_bytes=info.type.block_bytes,
            is_matrix=len(info.shape) > 1,
        )
        if damage is not None:
            raise _damaged(self._file.path, info.name, damage)
        self._checked.add(info.name)


def _damaged(path: Path, name: str, damage: str) -> ModelError:
    return ModelError(f"{path}: tensor {name!r} {damage}: the file is damaged, download it again")


class SafetensorsWeights:
    """Tensors of a Hugging Face folder, one or several files."""

    def __init__(self, folder: WeightFolder) -> None:
        self._shards: dict[str, Any] = {}  # safe_open is untyped
        self._files: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file in folder.files:
            try:
                shard: Any = safe_open(file, framework="pt")
                shapes = {name: tuple(shard.get_slice(name).get_shape()) for name in shard.keys()}
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{file}: is damaged ({error}); download it again") from None
            for name in shapes.keys() & self.shapes.keys():
                raise ModelError(f"{file}: tensor {name!r} is in another file of the model too")
            for name, holder in folder.index.items():
                if holder == file.name and name not in shapes:
                    raise ModelError(
                        f"{file}: lacks tensor {name!r}, which the index says is in it"
                    )
            self.shapes |= shapes
            self._shards |= dict.fromkeys(shapes, shard)
            self._files |= dict.fromkeys(shapes, file)

    def read(self, name: str) -> Tensor:
        return self._checked(name, self._shards[name].get_tensor(name))

    def read_rows(self, name: str, start: int, stop: int) -> Tensor:
        return self._checked(name, self._shards[name].get_slice(name)[start:stop])

    def stored(self, name: str) -> None:  # noqa: ARG002
        return None

    def _checked(self, name: str, tensor: Tensor) -> Tensor:
        if tensor.dtype not in _FLOAT_DTYPES:
            raise ModelError(f"tensor {name!r} is stored as {tensor.dtype}, which is not supported")
        damage = find_wrong_number(tensor)
        if damage is not None:
            raise _damaged(self._files[name], name, damage)
        return tensor
