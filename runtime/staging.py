"""Small host arrays that travel to the device together, in one copy."""

from collections.abc import Sequence
from typing import NewType

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from runtime.hardware import to_device

Handle = NewType("Handle", int)


class Staging:
    """Arrays are added, then uploaded once; a handle finds its array's tensor among them."""

    def __init__(self) -> None:
        self._arrays: list[npt.NDArray[np.int32] | npt.NDArray[np.float32]] = []

    def add_ints(self, values: Sequence[int] | npt.NDArray[np.integer]) -> Handle:
        """Values of 32 bits, in the shape that they have."""
        self._arrays.append(np.asarray(values, dtype=np.int32))
        return Handle(len(self._arrays) - 1)

    def add_floats(self, values: Sequence[float] | npt.NDArray[np.floating]) -> Handle:
        self._arrays.append(np.asarray(values, dtype=np.float32))
        return Handle(len(self._arrays) - 1)

    def upload(self, device: torch.device) -> list[Tensor]:
        """int32 and float32 tensors, in the order of the handles."""
        if not any(array.size for array in self._arrays):
            return [torch.from_numpy(array).to(device) for array in self._arrays]
        flat = [array.reshape(-1).view(np.int32) for array in self._arrays]
        pieces = torch.split(to_device(np.concatenate(flat), device), [len(part) for part in flat])
        return [
            (piece.view(torch.float32) if array.dtype == np.float32 else piece).view(array.shape)
            for piece, array in zip(pieces, self._arrays, strict=True)
        ]
