"""Ints and sequences that count how often they are looked at: work without a clock."""

from collections.abc import Iterable, Sequence
from typing import overload


class CountingInt(int):
    """An int whose comparisons are counted for all of them together."""

    num_comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountingInt.num_comparisons += 1
        return int.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        CountingInt.num_comparisons += 1
        return int.__ne__(self, other) is True

    def __lt__(self, other: int) -> bool:
        CountingInt.num_comparisons += 1
        return int.__lt__(self, other)

    __hash__ = int.__hash__


def counting(values: Iterable[int]) -> list[int]:
    return [CountingInt(value) for value in values]


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
