"""Where the lexemes of a grammar stand: which may follow which, and which the lexer may have to
choose from at one place. Called by grammar.lexemes.

What a rule was called from is left out of account, so that more seems possible than is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from grammar.errors import ConstraintTooExpensive
from grammar.gbnf import ROOT
from grammar.gbnf_nodes import Name, Node
from grammar.lexeme_phrases import Lexeme, Options, Phrase, Row, Run, parts

MAX_PLACES = 600
MAX_PAIRS = 150_000

# A set of places, as the bits of a number.
PlaceSet = int
Meets = Callable[[Node, Node], bool]


@dataclass(frozen=True, slots=True)
class Places:
    """`lexemes[i]` stands at place i; `following[i]` may come after it; `first` at the start."""

    lexemes: list[Node]
    following: list[PlaceSet]
    first: PlaceSet

    def together(self, meets: Meets) -> Iterator[tuple[int, int]]:
        """The pairs of places, both ways round, that may be expected at one position of a text.
        `meets` says whether two lexemes have a text in common.

        Raises: ConstraintTooExpensive for too many.
        """
        known: list[PlaceSet] = [0] * len(self.lexemes)
        waiting: list[tuple[int, int]] = []
        self._join(known, waiting, self.first, self.first)
        for _ in range(MAX_PAIRS):
            if not waiting:
                return
            one, other = waiting.pop()
            yield one, other
            if one == other or meets(self.lexemes[one], self.lexemes[other]):
                self._join(known, waiting, self.following[one], self.following[other])
        raise ConstraintTooExpensive(f"{MAX_PAIRS} pairs of lexemes")

    def _join(
        self,
        known: list[PlaceSet],
        waiting: list[tuple[int, int]],
        left: PlaceSet,
        right: PlaceSet,
    ) -> None:
        for one, others in ((left, right), (right, left)):
            for place in members(one):
                fresh = others & ~known[place]
                known[place] |= fresh
                waiting += ((place, other) for other in members(fresh))


def members(places: PlaceSet) -> Iterator[int]:
    while places:
        lowest = places & -places
        yield lowest.bit_length() - 1
        places ^= lowest


def find_places(phrases: Mapping[str, Phrase]) -> Places:
    """Raises: ConstraintTooExpensive for a grammar of too many lexemes."""
    return _Finder(phrases).places()


@dataclass(frozen=True, slots=True)
class _Edge:
    """The places that a phrase may begin with, and whether it may be empty."""

    first: PlaceSet
    is_nullable: bool


class _Finder:
    """Numbers the lexemes, then settles what follows each. A lexeme object stands at one place."""

    def __init__(self, phrases: Mapping[str, Phrase]) -> None:
        self._phrases = phrases
        self._lexemes = [lexeme for phrase in phrases.values() for lexeme in _lexemes(phrase)]
        if len(self._lexemes) > MAX_PLACES:
            raise ConstraintTooExpensive(f"{MAX_PLACES} places of lexemes")
        self._numbers = {id(lexeme): number for number, lexeme in enumerate(self._lexemes)}
        self._following = [0] * len(self._lexemes)
        self._edges = dict.fromkeys(phrases, _Edge(0, is_nullable=False))
        self._after_rule: dict[str, PlaceSet] = dict.fromkeys(phrases, 0)

    def places(self) -> Places:
        while self._settle_edges():
            pass
        while self._settle_following():
            pass
        nodes = [lexeme.node for lexeme in self._lexemes]
        return Places(nodes, self._following, self._edges[ROOT].first)

    def _settle_edges(self) -> bool:
        """One round over the rules; whether it brought anything new."""
        before = dict(self._edges)
        for name, phrase in self._phrases.items():
            self._edges[name] = self._edge(phrase)
        return before != self._edges

    def _settle_following(self) -> bool:
        before = dict(self._after_rule)
        for name, phrase in self._phrases.items():
            self._follow(phrase, self._after_rule[name])
        return before != self._after_rule

    def _edge(self, phrase: Phrase) -> _Edge:
        match phrase:
            case Lexeme():
                return _Edge(1 << self._numbers[id(phrase)], is_nullable=False)
            case Name():
                return self._edges[phrase.name]
            case Row():
                first = 0
                for item in phrase.items:
                    edge = self._edge(item)
                    first |= edge.first
                    if not edge.is_nullable:
                        return _Edge(first, is_nullable=False)
                return _Edge(first, is_nullable=True)
            case Options():
                edges = [self._edge(item) for item in phrase.items]
                first = 0
                for edge in edges:
                    first |= edge.first
                return _Edge(first, is_nullable=any(edge.is_nullable for edge in edges))
            case Run():
                edge = self._edge(phrase.item)
                return _Edge(edge.first, is_nullable=phrase.low == 0 or edge.is_nullable)

    def _follow(self, phrase: Phrase, after: PlaceSet) -> None:
        """Notes that `after` may come after the phrase, in the phrase and in the rules it names."""
        match phrase:
            case Lexeme():
                self._following[self._numbers[id(phrase)]] |= after
            case Name():
                self._after_rule[phrase.name] |= after
            case Row():
                for item in reversed(phrase.items):
                    self._follow(item, after)
                    edge = self._edge(item)
                    after = edge.first | (after if edge.is_nullable else 0)
            case Options():
                for item in phrase.items:
                    self._follow(item, after)
            case Run():
                is_repeated = phrase.high is None or phrase.high > 1
                again = self._edge(phrase.item).first if is_repeated else 0
                self._follow(phrase.item, after | again)


def _lexemes(phrase: Phrase) -> Iterator[Lexeme]:
    if isinstance(phrase, Lexeme):
        yield phrase
    for part in parts(phrase):
        yield from _lexemes(part)
