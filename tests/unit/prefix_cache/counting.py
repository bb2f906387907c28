"""Keys and sequences that count how often they are looked at: work without a clock."""

from collections.abc import Sequence
from typing import overload


class CountingBytes(bytes):
    """Bytes whose comparisons for their order are counted, for all of them together."""

    num_comparisons = 0

    def __lt__(self, other: bytes) -> bool:
        CountingBytes.num_comparisons += 1
        return bytes.__lt__(self, other)

    def __gt__(self, other: bytes) -> bool:
        CountingBytes.num_comparisons += 1
        return bytes.__gt__(self, other)


class CountingSequence(Sequence[int]):
    """A sequence that counts the items read from it."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = values
        self.num_read = 0

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        self.num_read += len(range(*index.indices(len(self)))) if isinstance(index, slice) else 1
        return self._values[index]
