"""Cuts a grammar of characters into lexemes that a greedy lexer reads without changing what is
allowed. Called for llguidance, whose parser is hundreds of times faster over long lexemes than
over single characters.

A greedy lexer ends a lexeme where it cannot go on. That is exact where no lexeme, followed by a
character that may follow it, begins a lexeme that could stand at the same place. Lexemes are
as long as possible at first; those that would be read too far are cut into their parts, down to
single characters, for which it always holds.
"""

from grammar import gbnf_nodes as nodes
from grammar.errors import ConstraintTooExpensive
from grammar.gbnf_nodes import Chars, Choice, Name, Node, Repeat, Rules, Sequence, Text
from grammar.lexeme_phrases import Cutter, Phrase
from grammar.lexeme_places import Places, PlaceSet, find_places, members
from grammar.schema import characters, regex
from grammar.schema.characters import LAST_CODE, NO_CHARACTERS, Range, Ranges
from grammar.schema.regex import ANY_TEXT, NOTHING, Regex

MAX_ROUNDS = 200
# Of automata walked, and of the steps of each: about a second in all.
MAX_WALKS = 1_500
MAX_STEPS = 2_000


def cut_into_lexemes(rules: Rules) -> dict[str, Phrase]:
    """The rules over lexemes; those that went into lexemes as a whole are gone."""
    cutter = Cutter(rules)
    lexer = _Lexer()
    try:
        for _ in range(MAX_ROUNDS):
            phrases = cutter.phrases()
            too_long = lexer.read_too_far(find_places(phrases))
            if not too_long:
                return phrases
            cutter.cut |= too_long
    except ConstraintTooExpensive:
        pass  # not worth the time: single characters are right as well, only slower
    cutter.cuts_all = True
    return cutter.phrases()


def language(node: Node) -> Regex:
    """The texts of a node without names."""
    match node:
        case Text():
            return regex.literal(node.text)
        case Chars():
            return regex.one_of(node.members)
        case Sequence():
            return regex.cat(*map(language, node.items))
        case Choice():
            return regex.union(*map(language, node.items))
        case Repeat():
            return regex.repeat(language(node.node), node.low, node.high)
        case Name():
            raise TypeError("a rule is no regular language")


class _Lexer:
    """Compares lexemes; remembers what it found, as each round asks for much the same."""

    def __init__(self) -> None:
        self._languages: dict[Node, Regex] = {}
        self._firsts: dict[Node, Ranges] = {}
        self._found: dict[tuple[Regex, Regex], bool] = {}

    def read_too_far(self, places: Places) -> set[Node]:
        """The lexemes in which the lexer may go on where another, or the same, should have ended.

        Raises: ConstraintTooExpensive where finding out takes too long.
        """
        lexemes = places.lexemes
        after = [self._leads(lexemes, following) for following in places.following]
        found = set()
        for one, other in places.together(self._meet):
            longer = lexemes[other]
            if longer in found or _is_character(longer) or after[one] is NOTHING:
                continue
            if self._starts_alike(lexemes[one], longer):
                begun = regex.cat(self._language(lexemes[one]), after[one], ANY_TEXT)
                if self._have_common(begun, self._language(longer)):
                    found.add(longer)
        return found

    def _meet(self, one: Node, other: Node) -> bool:
        if one == other:
            return True
        if not self._starts_alike(one, other):
            return False
        return self._have_common(self._language(one), self._language(other))

    def _have_common(self, one: Regex, other: Regex) -> bool:
        """Also where that cannot be told within some steps."""
        if (one, other) not in self._found:
            if len(self._found) == MAX_WALKS:
                raise ConstraintTooExpensive(f"{MAX_WALKS} comparisons of lexemes")
            is_empty = regex.is_empty(regex.both(one, other), max_steps=MAX_STEPS)
            self._found[one, other] = is_empty is not True
        return self._found[one, other]

    def _starts_alike(self, one: Node, other: Node) -> bool:
        return characters.common(self._first(one), self._first(other)) != NO_CHARACTERS

    def _leads(self, lexemes: list[Node], following: PlaceSet) -> Regex:
        """Characters that begin with a byte with which some lexeme of `following` begins: the
        lexer reads bytes, and cannot take back the first of a character."""
        bounds = [
            (_same_lead(low)[0], _same_lead(high)[1])
            for place in members(following)
            for low, high in self._first(lexemes[place]).bounds
        ]
        return regex.one_of(characters.ranges(bounds))

    def _first(self, node: Node) -> Ranges:
        if node not in self._firsts:
            self._firsts[node] = _first_characters(node)
        return self._firsts[node]

    def _language(self, node: Node) -> Regex:
        if node not in self._languages:
            self._languages[node] = language(node)
        return self._languages[node]


def _is_character(node: Node) -> bool:
    return isinstance(node, Chars) or (isinstance(node, Text) and len(node.text) == 1)


def _first_characters(node: Node) -> Ranges:
    match node:
        case Text():
            return characters.characters(node.text[:1])
        case Chars():
            return node.members
        case Sequence():
            first = NO_CHARACTERS
            for item in node.items:
                first = _joined(first, _first_characters(item))
                if not nodes.is_nullable(item):
                    break
            return first
    parts = [_first_characters(part) for part in nodes.children(node)]
    return characters.ranges(pair for part in parts for pair in part.bounds)


def _joined(one: Ranges, other: Ranges) -> Ranges:
    return characters.ranges((*one.bounds, *other.bounds))


def _same_lead(code: int) -> Range:
    """The characters whose UTF-8 form begins with the same byte."""
    if code < 0x80:
        return code, code
    shift = 6 if code < 0x800 else 12 if code < 0x10000 else 18
    low = code >> shift << shift
    return low, min(low + (1 << shift) - 1, LAST_CODE)
