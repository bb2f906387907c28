"""The nodes of a regular language over text. Equal nodes are one object: compare by identity.

Made by the constructors of grammar.schema.regex only.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from grammar.schema.characters import CharSet, Ranges


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class _Node:
    """`is_nullable`: has the empty text; `is_plain`: has neither And nor Not within."""

    is_nullable: bool
    is_plain: bool


@dataclass(frozen=True, slots=True, eq=False)
class Chars(_Node):
    """One character of the set."""

    members: CharSet


@dataclass(frozen=True, slots=True, eq=False)
class Text(_Node):
    """Exactly this text."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Cat(_Node):
    """`head` is never a Cat: longer sequences nest in `tail`."""

    head: "Regex"
    tail: "Regex"


@dataclass(frozen=True, slots=True, eq=False)
class Alt(_Node):
    items: tuple["Regex", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat(_Node):
    node: "Regex"
    low: int
    high: int | None


@dataclass(frozen=True, slots=True, eq=False)
class And(_Node):
    items: tuple["Regex", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Not(_Node):
    node: "Regex"


Regex: TypeAlias = Chars | Text | Cat | Alt | Repeat | And | Not
Node = TypeVar("Node", bound=_Node)
_nodes: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()


def interned(
    node_type: Callable[..., Node],
    *fields: object,
    is_nullable: bool,
    is_plain: bool,
    key: Hashable | None = None,
) -> Node:
    """The node of these fields; `key` says what makes it equal where the fields do not."""
    found: Node | None = _nodes.get(key := key or (node_type, *fields))
    if found is None:
        found = _nodes[key] = node_type(is_nullable, is_plain, *fields)
    return found


def sequence(node: Regex) -> Iterator[Regex]:
    """What stands one after the other in the node: itself, if it is no Cat."""
    while isinstance(node, Cat):
        yield node.head
        node = node.tail
    yield node


def plain_words(node: Regex) -> tuple[str, ...] | None:
    """The words of a Text or of alternatives of these."""
    if isinstance(node, Text):
        return (node.text,)
    if isinstance(node, Alt) and all(isinstance(item, Text) for item in node.items):
        return tuple(item.text for item in node.items if isinstance(item, Text))
    return None


def finite_texts(node: Regex, limit: int) -> tuple[str, ...] | None:
    """The words of the language, each once, if plainly at most `limit`; None otherwise."""
    words = _words(node, limit)
    return None if words is None or len(words) > limit else tuple(words)


def _words(node: Regex, limit: int) -> list[str] | None:
    match node:
        case Text():
            return [node.text]
        case Chars(members=Ranges(bounds)):
            size = sum(high - low + 1 for low, high in bounds)
            if size > limit:
                return None
            return [chr(code) for low, high in bounds for code in range(low, high + 1)]
        case Alt():
            parts = [_words(item, limit) for item in node.items]
            found = [word for part in parts if part is not None for word in part]
            return None if None in parts else list(dict.fromkeys(found))
        case Cat():
            return _products([_words(item, limit) for item in sequence(node)], limit)
        case Repeat(high=int(high)) if high <= limit:
            words = _words(node.node, limit)
            counts = range(node.low, high + 1)
            parts = [_products([words] * count, limit) for count in counts]
            found = [word for part in parts if part is not None for word in part]
            return None if None in parts else list(dict.fromkeys(found))
    return None


def _products(parts: list[list[str] | None], limit: int) -> list[str] | None:
    found = [""]
    for part in parts:
        if part is None or len(found) * len(part) > limit:
            return None
        found = [left + right for left, right in product(found, part)]
    return list(dict.fromkeys(found))
