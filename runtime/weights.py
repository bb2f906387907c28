"""Reads the weights of an opened model, tensor by tensor, under the names its files use.

What the names mean, and which must be there, is the business of runtime/models/.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtime.dequantize import dequantize, is_supported
from runtime.errors import ModelError
from runtime.gguf_file import GgufFile
from runtime.model_facts import ModelSource, WeightFolder

_FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class WeightReader(Protocol):
    """All tensors of a model's files."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor in the files, by its name there."""

    def read(self, name: str) -> Tensor:
        """The weights in shape, in a floating dtype; may share memory with the file, so that
        the caller must copy. Raises: ModelError for an unreadable or unsupported tensor."""


def open_weights(source: ModelSource) -> WeightReader:
    """Raises: ModelError for a damaged shard."""
    if isinstance(source.weights, GgufFile):
        return GgufWeights(source.weights)
    return SafetensorsWeights(source.weights)


class GgufWeights:
    """Tensors of a GGUF file, dequantized when read."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self.shapes = {name: info.shape for name, info in file.tensors.items()}

    def read(self, name: str) -> Tensor:
        info = self._file.tensors[name]
        if not is_supported(info.type.name):
            raise ModelError(
                f"{self._file.path}: tensor {name!r} is stored as {info.type.name}, which is not"
                " supported (supported: F32, F16, BF16, Q4_0, Q4_1, Q8_0)"
            )
        stored = torch.frombuffer(self._file.tensor_bytes(info), dtype=torch.uint8)
        return dequantize(stored, info.type.name).view(info.shape)


class SafetensorsWeights:
    """Tensors of a Hugging Face folder, one or several files."""

    def __init__(self, folder: WeightFolder) -> None:
        self._shards: dict[str, Any] = {}  # safe_open is untyped
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file in folder.files:
            try:
                shard: Any = safe_open(file, framework="pt")
                shapes = {name: tuple(shard.get_slice(name).get_shape()) for name in shard.keys()}
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{file}: is damaged ({error}); download it again") from None
            for name in shapes.keys() & self.shapes.keys():
                raise ModelError(f"{file}: tensor {name!r} is in another file of the model too")
            self.shapes |= shapes
            self._shards |= dict.fromkeys(shapes, shard)

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._shards[name].get_tensor(name)
        if tensor.dtype not in _FLOAT_DTYPES:
            raise ModelError(f"tensor {name!r} is stored as {tensor.dtype}, which is not supported")
        return tensor
