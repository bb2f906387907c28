"""The parts of a context-free grammar of characters, as grammar.gbnf reads it. Immutable; equal
parts are equal values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from grammar.schema.characters import Ranges


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly this text, possibly none."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of the set."""

    members: Ranges


@dataclass(frozen=True, slots=True)
class Name:
    """What the rule of this name allows."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times in a row; None: without end."""

    node: "Node"
    low: int
    high: int | None


Node: TypeAlias = Text | Chars | Name | Sequence | Choice | Repeat
Rules: TypeAlias = Mapping[str, Node]
NOTHING = Text("")


def sequence(items: list[Node]) -> Node:
    """The items one after the other; texts that meet become one, a sequence inside is dissolved."""
    flat: list[Node] = []
    for item in items:
        for part in item.items if isinstance(item, Sequence) else (item,):
            if isinstance(part, Text) and flat and isinstance(last := flat[-1], Text):
                flat[-1] = Text(last.text + part.text)
            elif part != NOTHING:
                flat.append(part)
    if len(flat) == 1:
        return flat[0]
    return Sequence(tuple(flat)) if flat else NOTHING


def choice(items: list[Node]) -> Node:
    """One of the items; a choice inside is dissolved, what comes twice is there once."""
    flat: dict[Node, None] = {}
    for item in items:
        flat.update(dict.fromkeys(item.items if isinstance(item, Choice) else (item,)))
    return next(iter(flat)) if len(flat) == 1 else Choice(tuple(flat))


def repeat(node: Node, low: int, high: int | None) -> Node:
    if high == 0 or node == NOTHING:
        return NOTHING
    return node if (low, high) == (1, 1) else Repeat(node, low, high)


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Sequence() | Choice():
            return node.items
        case Repeat():
            return (node.node,)
    return ()


def names_in(node: Node) -> Iterator[str]:
    """The rules that the node refers to, in reading order."""
    if isinstance(node, Name):
        yield node.name
    for part in children(node):
        yield from names_in(part)


def size(node: Node) -> int:
    """How many parts the node has."""
    return 1 + sum(map(size, children(node)))


def is_nullable(node: Node) -> bool:
    """Whether a node without names allows the empty text."""
    match node:
        case Text():
            return not node.text
        case Sequence():
            return all(map(is_nullable, node.items))
        case Choice():
            return any(map(is_nullable, node.items))
        case Repeat():
            return node.low == 0 or is_nullable(node.node)
    return False
