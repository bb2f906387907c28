"""Where the values of a JSON text stand in it, and which of them to choose anew when one is wrong.

Used by validation.py for a text that is JSON but not what was asked for.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]  # the library's own C function
from typing import Any

# A bracket, the quote of a string, or a number or word; commas and colons say nothing new.
_TOKEN = re.compile(r'[\s,:]*(?:([{\[])|([}\]])|(")|([^\s,:{}\[\]"]+))')
# What is wrong with a container that ended too early.
ENDED_TOO_EARLY = frozenset(
    {
        "required",
        "minItems",
        "minProperties",
        "contains",
        "minContains",
        "dependentRequired",
        "dependencies",
    }
)
MAX_ANCHORS = 32


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a text. `path` leads to the value. `anchors` are characters of the text
    to go back to, the likeliest first; none where it is no JSON. `message` and `path` may quote the
    text; `pointer`, the place of the keyword in the schema, has no word of a client's in it."""

    message: str
    path: tuple[str | int, ...] = ()
    keyword: str = ""
    anchors: tuple[int, ...] = ()
    pointer: str = ""


@dataclass(eq=False, slots=True)
class Place:
    """The half-open range of a value's characters, of its key before it (none: start = end), and
    the values inside of it in the order of the text."""

    key: str | int
    key_start: int
    key_end: int
    start: int
    end: int
    members: list["Place"] = field(default_factory=list)

    def member(self, key: str | int) -> "Place | None":
        """Of a key that comes twice the last."""
        return next((place for place in reversed(self.members) if place.key == key), None)


def scan(text: str) -> Place:
    """The places of a text that is valid JSON. Does not recurse."""
    root = Place("", 0, 0, 0, len(text))
    open_places = [root]
    key: tuple[str, int, int] | None = None
    is_object = [False]
    for match in iter(_TokenReader(text)):
        kind, start, end, value = match
        holder = open_places[-1]
        if kind == "close":
            holder.end = end
            open_places.pop()
            is_object.pop()
            continue
        if kind == "string" and is_object[-1] and key is None:
            key = (value, start, end)
            continue
        name, key_start, key_end = key or (len(holder.members), start, start)
        key = None
        place = Place(name, key_start, key_end, start, end)
        holder.members.append(place)
        if kind == "open":
            open_places.append(place)
            is_object.append(value == "{")
    return root.members[0]


class _TokenReader:
    """Kind, start, end and text of each token."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __iter__(self) -> Iterator[tuple[str, int, int, str]]:
        position = 0
        while (match := _TOKEN.match(self._text, position)) is not None:
            group = match.lastindex or 0
            start, position = match.span(group)
            value = match[group]
            if group == 3:
                value, position = scanstring(self._text, position)
            yield ("", "open", "close", "string", "word")[group], start, position, value


def place_at(root: Place, path: Sequence[str | int]) -> Place:
    """The innermost place on the path that the text has."""
    place = root
    for step in path:
        inner = place.member(step)
        if inner is None:
            break
        place = inner
    return place


def anchors(root: Place, end: int, *, keyword: str) -> tuple[int, ...]:
    """Characters that belong to choices which may be to blame for what is wrong with a value that
    ends at `end`, the likeliest first: the end of a choice may be put off, or its start be another.

    From there backwards; the end of a container comes first where it came too early, and after
    its last member otherwise.
    """
    backwards = [
        position
        for choice in reversed(list(_choices(root)))
        if choice[0] < end
        for position in choice
    ]
    if backwards[:1] != [end - 1]:  # the value ends in a bracket
        backwards.insert(0 if keyword in ENDED_TOO_EARLY else min(2, len(backwards)), end - 1)
    return tuple(dict.fromkeys(backwards))[:MAX_ANCHORS]


def _choices(root: Place) -> Iterator[tuple[int, ...]]:
    """The characters that stand for each key, each value without members and each separator, in
    the order of the text."""
    waiting: list[tuple[Place, int | None]] = [(root, None)]
    while waiting:
        place, separator = waiting.pop()
        if separator is not None:
            yield (separator,)
        if place.key_start < place.key_end:
            yield _ends(place.key_start, place.key_end)
        if not place.members:
            yield _ends(place.start, place.end)
        separators = [None, *(member.end for member in place.members)]
        waiting += reversed(list(zip(place.members, separators, strict=False)))


def _ends(start: int, end: int) -> tuple[int, ...]:
    """The last character; that after the first, as a quote leaves no choice; and the first."""
    return tuple(dict.fromkeys((end - 1, min(start + 1, end - 1), start)))


def repeated_item(place: Place, items: Sequence[Any]) -> Place:
    """The first item that equals one before it; the whole array where there is none."""
    for index, item in enumerate(items):
        if index < len(place.members) and any(_is_equal(item, other) for other in items[:index]):
            return place.members[index]
    return place


def _is_equal(one: Any, other: Any) -> bool:
    """As JSON has it: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(one[k], other[k]) for k in one)
    return bool(one == other)
