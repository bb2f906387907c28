"""The part of a language whose texts begin, or end, with a character of a set."""

from collections.abc import Callable
from functools import lru_cache
from itertools import takewhile

from grammar.schema.characters import EVERY, CharSet, common, contains
from grammar.schema.regex import (
    ANY_TEXT,
    NOTHING,
    Alt,
    And,
    Cat,
    Chars,
    Not,
    Regex,
    Repeat,
    Text,
    both,
    cat,
    one_of,
    repeat,
    union,
)
from grammar.schema.regex_nodes import sequence

# Each item at the edge that may be empty is one more alternative, as long as the sequence.
MAX_NULLABLE_ITEMS = 32


def nonempty(node: Regex) -> Regex:
    return node if not node.is_nullable else starting_in(node, EVERY)


@lru_cache(maxsize=1024)
def starting_in(node: Regex, members: CharSet) -> Regex:
    """Only the texts whose first character is in the set."""
    match node:
        case Chars():
            return one_of(common(node.members, members))
        case Text():
            return node if node.text and contains(members, ord(node.text[0])) else NOTHING
        case Cat():
            items = list(sequence(node))
            if _nullable_items(items) > MAX_NULLABLE_ITEMS:
                return both(node, cat(one_of(members), ANY_TEXT))
            return _in_sequence(items, lambda item: starting_in(item, members), 1)
        case Alt():
            return union(*(starting_in(item, members) for item in node.items))
        case Repeat():
            return cat(starting_in(node.node, members), _one_less(node))
        case And() | Not():
            return both(node, cat(one_of(members), ANY_TEXT))


@lru_cache(maxsize=1024)
def ending_in(node: Regex, members: CharSet) -> Regex:
    """Only the texts whose last character is in the set."""
    match node:
        case Chars():
            return one_of(common(node.members, members))
        case Text():
            return node if node.text and contains(members, ord(node.text[-1])) else NOTHING
        case Cat():
            items = list(sequence(node))
            if _nullable_items(items[::-1]) > MAX_NULLABLE_ITEMS:
                return both(node, cat(ANY_TEXT, one_of(members)))
            return _in_sequence(items, lambda item: ending_in(item, members), -1)
        case Alt():
            return union(*(ending_in(item, members) for item in node.items))
        case Repeat():
            return cat(_one_less(node), ending_in(node.node, members))
        case And() | Not():
            return both(node, cat(ANY_TEXT, one_of(members)))


def _nullable_items(items: list[Regex]) -> int:
    """How many stand before the first that is not nullable."""
    return len([*takewhile(lambda item: item.is_nullable, items)])


def _in_sequence(items: list[Regex], edge: Callable[[Regex], Regex], step: int) -> Regex:
    """The first item counted from the edge that is not empty decides."""
    found: list[Regex] = []
    remaining = items[::step]
    while remaining:
        item, *remaining = remaining
        found.append(cat(*[edge(item), *remaining][::step]))
        if not item.is_nullable:
            break
    return union(*found)


def _one_less(node: Repeat) -> Regex:
    return repeat(node.node, max(node.low - 1, 0), None if node.high is None else node.high - 1)
