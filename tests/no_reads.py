"""Finds operations that would make a GPU's step wait, on the CPU."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class NoReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails where an operation's result or its shape depends on values: the host has to read them
    from the device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        reads = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
        assert reads.isdisjoint(func.tags) or _picks_by_number(func, args), (
            f"{func} reads from the device"
        )
        return func(*args, **(kwargs or {}))


def _picks_by_number(func: Any, args: Any) -> bool:
    """Indexing has a shape that depends on values for masks only."""
    if func is not torch.ops.aten.index.Tensor:
        return False
    return all(index is None or index.dtype in (torch.int32, torch.int64) for index in args[1])
