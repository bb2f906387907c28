"""A sorted sequence that stays cheap to change at a hundred thousand items: short sorted lists. The
tree has its order of eviction in one, and the children of a node that has many."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

# A change in one list of 60,000 would move half of its places, some 10 us. Shorter buckets make
# more of the search run in `_lasts`, where keys lie together: 1 us at 60,000 items in all.
MAX_BUCKET = 64

T = TypeVar("T")


class SortedBuckets(Generic[T]):
    """Items in the order of their keys, which are distinct and do not change while they are in, but
    as `note_changed` allows.

    Finding a place takes O(log n) comparisons; an item takes 8 bytes, and a little for its bucket.
    """

    __slots__ = ("_buckets", "_key", "_lasts", "_num_items")

    def __init__(self, key: Callable[[T], Any], items: Iterable[T] = ()) -> None:
        """`items` are in order."""
        self._key = key
        self._buckets: list[list[T]] = []
        self._lasts: list[Any] = []  # The key of the last item of each bucket.
        self._num_items = 0
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return self._num_items

    def __iter__(self) -> Iterator[T]:
        for bucket in self._buckets:
            yield from bucket

    def every(self, stride: int) -> list[T]:
        """One in about `stride` items, in order; the others are not touched."""
        return [item for bucket in self._buckets for item in bucket[::stride]]

    def first(self) -> T | None:
        return self._buckets[0][0] if self._buckets else None

    def around(self, key: Any) -> tuple[T | None, T | None]:
        """The last item before the key, and the first that is not before it."""
        place = bisect_left(self._lasts, key)
        if place == len(self._buckets):
            return (self._buckets[-1][-1] if place else None), None
        bucket = self._buckets[place]
        index = bisect_left(bucket, key, key=self._key)
        if index:
            return bucket[index - 1], bucket[index]
        return (self._buckets[place - 1][-1] if place else None), bucket[0]

    def add(self, item: T) -> None:
        key = self._key(item)
        place = bisect_left(self._lasts, key)
        if place == len(self._buckets):
            self._append(item, key)
        else:
            bucket = self._buckets[place]
            bucket.insert(bisect_left(bucket, key, key=self._key), item)
            if len(bucket) > MAX_BUCKET:
                self._halve(place)
        self._num_items += 1

    def remove(self, item: T) -> None:
        bucket, place, index = self._buckets[0], 0, 0
        if bucket[0] is not item:
            place, index = self._find(item)
            bucket = self._buckets[place]
        del bucket[index]
        self._num_items -= 1
        if not bucket:
            del self._buckets[place], self._lasts[place]
        elif index == len(bucket):
            self._lasts[place] = self._key(bucket[-1])

    def replace(self, old: T, new: T) -> None:
        """Puts `new`, which sorts among the others like `old`, into its place."""
        place, index = self._find(old)
        self._buckets[place][index] = new
        self._lasts[place] = self._key(self._buckets[place][-1])

    def bucket_of(self, item: T) -> int:
        """Which bucket it is in, for `note_changed`."""
        return self._find(item)[0]

    def note_changed(self, bucket: int) -> None:
        """The key of an item in that bucket was changed, in a way that leaves the order as it is.
        No item may be looked for between the change and this call."""
        self._lasts[bucket] = self._key(self._buckets[bucket][-1])

    def check_invariants(self) -> None:
        """Raises AssertionError where the order is broken or the sizes are."""
        keys = [self._key(item) for item in self]
        assert len(keys) == self._num_items, "the counter of sorted items is wrong"
        assert all(a < b for a, b in zip(keys, keys[1:], strict=False)), "items are not sorted"
        assert self._lasts == [self._key(bucket[-1]) for bucket in self._buckets], "a wrong key"
        assert all(len(bucket) <= MAX_BUCKET for bucket in self._buckets), "a long bucket"

    def _append(self, item: T, key: Any) -> None:
        """Behind all others. A bucket that is full stays so, as most items come in order."""
        if self._buckets and len(self._buckets[-1]) < MAX_BUCKET:
            self._buckets[-1].append(item)
            self._lasts[-1] = key
        else:
            self._buckets.append([item])
            self._lasts.append(key)

    def _halve(self, place: int) -> None:
        bucket = self._buckets[place]
        middle = len(bucket) // 2
        self._buckets[place : place + 1] = [bucket[:middle], bucket[middle:]]
        self._lasts.insert(place, self._key(bucket[middle - 1]))

    def _find(self, item: T) -> tuple[int, int]:
        key = self._key(item)
        place = bisect_left(self._lasts, key)
        index = bisect_left(self._buckets[place], key, key=self._key)
        assert self._buckets[place][index] is item, "an item is not where its key says"
        return place, index
