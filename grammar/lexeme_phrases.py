"""A grammar as rules over lexemes: the shapes that grammar.lexemes asks for, and their making."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from grammar import gbnf_nodes as nodes
from grammar.gbnf import ROOT
from grammar.gbnf_nodes import Chars, Choice, Name, Node, Repeat, Rules, Sequence, Text

# A larger language is no lexeme: what several of them have in common is compiled as often.
MAX_LEXEME_SIZE = 2_000
MAX_LEXEME_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A language without the empty text and without names, read by the lexer as one."""

    node: Node


@dataclass(frozen=True, slots=True)
class Row:
    """One after the other; nothing, if there are none."""

    items: tuple["Phrase", ...]


@dataclass(frozen=True, slots=True)
class Options:
    """One of them."""

    items: tuple["Phrase", ...]


@dataclass(frozen=True, slots=True)
class Run:
    """`low` to `high` times in a row; None: without end."""

    item: "Phrase"
    low: int
    high: int | None


Phrase: TypeAlias = Lexeme | Name | Row | Options | Run


def parts(phrase: Phrase) -> tuple[Phrase, ...]:
    match phrase:
        case Row() | Options():
            return phrase.items
        case Run():
            return (phrase.item,)
    return ()


class Cutter:
    """Makes phrases of rules. `cut` holds the languages that must not be lexemes: they become
    phrases of their parts; with `cuts_all` each character is a lexeme."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._flat = _flattened(rules)
        self.cut: set[Node] = set()
        self.cuts_all = False

    def phrases(self) -> dict[str, Phrase]:
        """The rules that are left, `root` first."""
        found: dict[str, Phrase] = {}
        waiting = [ROOT]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = self._phrase(self._rules[name])
                waiting += _names(found[name])
        return found

    def _phrase(self, node: Node) -> Phrase:
        if all(name in self._flat for name in nodes.names_in(node)):
            flat = _inlined(node, self._flat)
            if nodes.size(flat) <= MAX_LEXEME_SIZE:
                return self._optional_lexeme(flat)
        match node:
            case Sequence():
                return self._row(node)
            case Choice():
                return self._options(node)
            case Repeat():
                return Run(self._phrase(node.node), node.low, node.high)
            case Text():
                return self._lexeme(node)
            case Name() | Chars():
                return node if isinstance(node, Name) else Lexeme(node)

    def _row(self, node: Sequence) -> Phrase:
        """Neighbours without recursion become one lexeme."""
        items: list[Phrase] = []
        flat: list[Node] = []
        for item in (*node.items, None):
            if item is not None and self._is_flat(item):
                flat.append(item)
                continue
            if flat:
                items.append(self._phrase(nodes.sequence(flat)))
                flat = []
            if item is not None:
                items.append(self._phrase(item))
        return Row(tuple(items))

    def _options(self, node: Choice) -> Phrase:
        """Alternatives without recursion become one lexeme."""
        flat = [item for item in node.items if self._is_flat(item)]
        others = [self._phrase(item) for item in node.items if not self._is_flat(item)]
        return Options((*((self._phrase(nodes.choice(flat)),) if flat else ()), *others))

    def _is_flat(self, node: Node) -> bool:
        return all(name in self._flat for name in nodes.names_in(node))

    def _optional_lexeme(self, node: Node) -> Phrase:
        if not nodes.is_nullable(node):
            return self._lexeme(node)
        full = _without_empty(node)
        return Row(()) if full is None else Run(self._lexeme(full), 0, 1)

    def _lexeme(self, node: Node) -> Phrase:
        if not self.cuts_all and node not in self.cut:
            return Lexeme(node)
        match node:
            case Text() if len(node.text) > 1:
                return Row((Lexeme(Text(node.text[0])), self._lexeme(Text(node.text[1:]))))
            case Sequence():
                rest = nodes.sequence(list(node.items[1:]))
                return Row((self._optional_lexeme(node.items[0]), self._optional_lexeme(rest)))
            case Choice():
                return Options(tuple(map(self._optional_lexeme, node.items)))
            case Repeat():
                return Run(self._optional_lexeme(node.node), node.low, node.high)
        return Lexeme(node)


def _flattened(rules: Rules) -> dict[str, Node]:
    """The rules without recursion, each with its names replaced, unless that makes it large."""
    missing = {name: set(nodes.names_in(node)) for name, node in rules.items()}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, used in missing.items():
        for other in used:
            users[other].append(name)
    flat: dict[str, Node] = {}
    ready = [name for name, used in missing.items() if not used]
    while ready:
        name = ready.pop()
        if _inlined_size(rules[name], flat) > MAX_LEXEME_SIZE:
            continue
        node = _inlined(rules[name], flat)
        if _depth(node) > MAX_LEXEME_DEPTH:
            continue
        flat[name] = node
        for user in users[name]:
            missing[user].discard(name)
            if not missing[user]:
                ready.append(user)
    return flat


def _inlined_size(node: Node, flat: dict[str, Node]) -> int:
    return nodes.size(node) + sum(nodes.size(flat[name]) for name in nodes.names_in(node))


def _inlined(node: Node, flat: dict[str, Node]) -> Node:
    match node:
        case Name():
            return flat[node.name]
        case Sequence():
            return nodes.sequence([_inlined(item, flat) for item in node.items])
        case Choice():
            return nodes.choice([_inlined(item, flat) for item in node.items])
        case Repeat():
            return nodes.repeat(_inlined(node.node, flat), node.low, node.high)
    return node


def _depth(node: Node) -> int:
    return 1 + max(map(_depth, nodes.children(node)), default=0)


def _without_empty(node: Node) -> Node | None:
    """The same language but for the empty text; None if that was all."""
    if not nodes.is_nullable(node):
        return node
    match node:
        case Sequence():
            ways = []
            for index, item in enumerate(node.items):
                if (first := _without_empty(item)) is not None:
                    ways.append(nodes.sequence([first, *node.items[index + 1 :]]))
            return nodes.choice(ways) if ways else None
        case Choice():
            full = [way for item in node.items if (way := _without_empty(item)) is not None]
            return nodes.choice(full) if full else None
        case Repeat():
            inner = _without_empty(node.node)
            return None if inner is None else nodes.repeat(inner, 1, node.high)
    return None


def _names(phrase: Phrase) -> Iterator[str]:
    if isinstance(phrase, Name):
        yield phrase.name
    for part in parts(phrase):
        yield from _names(part)
