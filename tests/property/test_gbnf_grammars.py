"""GBNF through every engine against a plain reading of the rules, text by text."""

from functools import cache
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from grammar import gbnf_nodes as nodes
from grammar.engines import load_engine
from grammar.errors import UnsupportedConstraint
from grammar.gbnf import parse_gbnf
from grammar.gbnf_nodes import Chars, Choice, Name, Node, Repeat, Sequence, Text
from grammar.matcher import GrammarEngine, Matcher, compile_constraint
from grammar.schema.characters import contains
from grammar.spec import ConstraintSpec, EngineName
from tests.grammar_walk import Texts
from tests.small_vocabulary import small_vocabulary

# é and è begin with the same byte, a and b do not.
LETTERS = "abéè"
TEXTS = ["".join(letters) for length in range(5) for letters in product(LETTERS, repeat=length)]
RULES = ("root", "r1", "r2")

atoms = st.sampled_from(
    ['"a"', '"ab"', '"b"', '"éb"', "[ab]", "[^b]", "[è]", '""', "[aé]", *RULES[1:]]
)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}"])
    groups = inner.map("({})".format)
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(" ".join),
        st.lists(inner, min_size=2, max_size=3).map(" | ".join).map("({})".format),
        st.tuples(groups, counts).map("".join),
    )


bodies = st.recursive(atoms, _combined, max_leaves=6)
grammars = st.tuples(bodies, bodies, bodies).map(
    lambda parts: "\n".join(f"{name} ::= {body}" for name, body in zip(RULES, parts, strict=True))
)


class Reader:
    """Which spans of one text each rule covers: grown from nothing until nothing is new."""

    def __init__(self, rules: dict[str, Node], text: str) -> None:
        self._rules = rules
        self._text = text
        self._spans: dict[tuple[str, int], frozenset[int]] = {}

    def accepts(self) -> bool:
        before = None
        while before != self._spans:
            before = dict(self._spans)
            for name, node in self._rules.items():
                for start in range(len(self._text) + 1):
                    self._spans[name, start] = self._ends(node, start)
        return len(self._text) in self._spans["root", 0]

    def _ends(self, node: Node, start: int) -> frozenset[int]:
        match node:
            case Text():
                is_here = self._text.startswith(node.text, start)
                return frozenset((start + len(node.text),) if is_here else ())
            case Chars():
                letter = self._text[start : start + 1]
                is_in = letter and contains(node.members, ord(letter))
                return frozenset((start + 1,) if is_in else ())
            case Name():
                return self._spans.get((node.name, start), frozenset())
            case Sequence():
                ends = frozenset((start,))
                for item in node.items:
                    ends = self._all_ends(item, ends)
                return ends
            case Choice():
                return frozenset().union(*(self._ends(item, start) for item in node.items))
            case Repeat():
                return self._repeated(node, start)

    def _all_ends(self, node: Node, starts: frozenset[int]) -> frozenset[int]:
        return frozenset().union(*(self._ends(node, start) for start in starts))

    def _repeated(self, node: Repeat, start: int) -> frozenset[int]:
        high = node.low + len(self._text) + 1 if node.high is None else node.high
        ends = frozenset((start,))
        found = ends if node.low == 0 else frozenset[int]()
        for count in range(1, high + 1):
            ends = self._all_ends(node.node, ends)
            found |= ends if count >= node.low else frozenset()
        return found


@cache
def loaded(name: EngineName) -> tuple[GrammarEngine, Texts]:
    vocabulary = small_vocabulary()
    return load_engine(name, vocabulary), Texts(vocabulary)


def compiled(name: EngineName, grammar: str) -> Matcher:
    return compile_constraint(loaded(name)[0], ConstraintSpec("gbnf", grammar, name))


@pytest.mark.parametrize("name", ["llguidance", "xgrammar", "outlines"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(grammar=grammars)
def test_an_engine_allows_the_texts_of_the_grammar_and_no_others(
    name: EngineName, grammar: str
) -> None:
    try:
        matcher = compiled(name, grammar)
    except UnsupportedConstraint:
        assume(False)
    texts = loaded(name)[1]
    rules = parse_gbnf(grammar).rules
    allowed = {text for text in TEXTS if Reader(rules, text).accepts()}
    assert {text for text in TEXTS if texts.accepts(matcher, text)} == allowed


def test_the_plain_reading_knows_recursion_and_counts() -> None:
    rules = parse_gbnf('root ::= "a" root "b" | x{2}\nx ::= [é]?').rules
    accepted = {text for text in TEXTS if Reader(rules, text).accepts()}
    assert accepted == {"", "é", "éé", "ab", "aéb", "aabb", "aééb"}
    assert set(nodes.names_in(rules["root"])) == {"root", "x"}
