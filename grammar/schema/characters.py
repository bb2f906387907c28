"""Sets of characters: ranges of code points, split by named Unicode classes where those occur.

A named class stays a name: nothing of Unicode is enumerated, membership asks `unicodedata`.
"""

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

Range = tuple[int, int]
LAST_CODE = 0x10FFFF
SURROGATES: Range = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Sorted, disjoint, not touching; both ends belong to a range. No surrogates."""

    bounds: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """`inside` for the characters of the class `name`, `outside` for all others."""

    name: str
    inside: "CharSet"
    outside: "CharSet"


CharSet: TypeAlias = Ranges | Split
Question = Callable[[str], bool]


def ranges(pairs: Iterable[Range]) -> Ranges:
    """The set of these inclusive ranges, in any order; surrogates are left out."""
    merged: list[Range] = []
    for low, high in sorted(_without_surrogates(pairs)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return Ranges(tuple(merged))


def characters(text: str) -> Ranges:
    return ranges((ord(character), ord(character)) for character in text)


def named(name: str) -> CharSet:
    """The characters of a general category, as "L" or "Nd"."""
    return Split(name, EVERY, NO_CHARACTERS)


def joined(left: CharSet, right: CharSet) -> CharSet:
    return _combined(left, right, lambda a, b: ranges((*a.bounds, *b.bounds)))


def common(left: CharSet, right: CharSet) -> CharSet:
    return _combined(left, right, _common_ranges)


def inverted(members: CharSet) -> CharSet:
    if isinstance(members, Split):
        return _split(members.name, inverted(members.inside), inverted(members.outside))
    return inverted_ranges(members)


def inverted_ranges(members: Ranges) -> Ranges:
    edges = (-1, *(edge for pair in members.bounds for edge in pair), LAST_CODE + 1)
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return ranges((low + 1, high - 1) for low, high in gaps if low + 1 < high)


def without(members: CharSet, removed: CharSet) -> CharSet:
    return common(members, inverted(removed))


def contains(members: CharSet, code: int, *, is_named: Question | None = None) -> bool:
    """`is_named` answers for the named classes instead of `unicodedata`."""
    while isinstance(members, Split):
        name = members.name
        is_inside = is_named(name) if is_named else _category(code).startswith(name)
        members = members.inside if is_inside else members.outside
    return any(low <= code <= high for low, high in members.bounds)


def class_names(members: CharSet) -> frozenset[str]:
    if isinstance(members, Ranges):
        return frozenset()
    return class_names(members.inside) | class_names(members.outside) | {members.name}


def boundaries(members: CharSet) -> set[int]:
    """The code points at which membership may change, class names left aside."""
    if isinstance(members, Split):
        return boundaries(members.inside) | boundaries(members.outside)
    return {edge for low, high in members.bounds for edge in (low, high + 1)}


def single(members: CharSet) -> str | None:
    """The only character of the set."""
    match members:
        case Ranges(((low, high),)) if low == high:
            return chr(low)
    return None


def _combined(
    left: CharSet, right: CharSet, operation: Callable[[Ranges, Ranges], Ranges]
) -> CharSet:
    if isinstance(left, Ranges) and isinstance(right, Ranges):
        return operation(left, right)
    name = min(part.name for part in (left, right) if isinstance(part, Split))
    left_inside, left_outside = _halves(left, name)
    right_inside, right_outside = _halves(right, name)
    return _split(
        name,
        _combined(left_inside, right_inside, operation),
        _combined(left_outside, right_outside, operation),
    )


def _halves(members: CharSet, name: str) -> tuple[CharSet, CharSet]:
    if isinstance(members, Split) and members.name == name:
        return members.inside, members.outside
    return members, members


def _split(name: str, inside: CharSet, outside: CharSet) -> CharSet:
    return inside if inside == outside else Split(name, inside, outside)


def _common_ranges(left: Ranges, right: Ranges) -> Ranges:
    found: list[Range] = []
    i = j = 0
    while i < len(left.bounds) and j < len(right.bounds):
        (low, high), (other_low, other_high) = left.bounds[i], right.bounds[j]
        if max(low, other_low) <= min(high, other_high):
            found.append((max(low, other_low), min(high, other_high)))
        if high <= other_high:
            i += 1
        else:
            j += 1
    return ranges(found)


def _without_surrogates(pairs: Iterable[Range]) -> list[Range]:
    first, last = SURROGATES
    kept: list[Range] = []
    for low, high in pairs:
        if high < first or low > last:
            kept.append((low, high))
            continue
        kept += [(low, first - 1)] if low < first else []
        kept += [(last + 1, high)] if high > last else []
    return kept


@lru_cache(maxsize=4096)
def _category(code: int) -> str:
    return unicodedata.category(chr(code))


NO_CHARACTERS = Ranges(())
EVERY = ranges([(0, LAST_CODE)])
