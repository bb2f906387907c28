"""Grammars and tags broken in any way: refused or built, and never another error."""

import json
import random
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grammar.engines import load_engine
from grammar.errors import UnsupportedConstraint
from grammar.matcher import GrammarEngine, compile_constraint
from grammar.spec import ConstraintKind, ConstraintSpec
from tests.small_vocabulary import small_vocabulary

SEEDS: dict[ConstraintKind, str] = {
    "gbnf": (
        'root ::= "a"{2,3} [^b-\\x7a] (x | . y*)? # c\n'
        "x ::= 'd' root | \"\"\ny-1 ::= x\ny ::= x"
    ),
    "lark": (
        'start: a ("b" | /c+/i)~2..3 %json {"type":"null"} -> z\n'
        '?a[lazy]: [A] "x".."z"\nA: "q"{1,}'
    ),
    "structural_tag": json.dumps(
        {
            "structures": [{"begin": "<f>", "schema": {"type": "null"}, "end": "</f>"}],
            "triggers": ["<f"],
        }
    ),
    "tool_calls": json.dumps(
        {
            "calls": [
                {"begin": "f", "schema": {"type": "object"}, "end": "}"},
                {"begin": "g(", "schema": {"properties": {"a": {}}}, "end": ")",
                 "style": "keywords"},
            ],
            "opening": "<f>", "separator": ", ", "closing": "", "triggers": ["<f"],
            "tokens": {"<a>": 2}, "content": "text", "max_calls": 2,
        }
    ),
}  # fmt: skip
PIECES = [*'()[]{}"|*:^-~@,\\\n\x00\ud800 é', "::=", "%json", "<a>", "9999999", "root", "null"]


@cache
def engine() -> GrammarEngine:
    return load_engine("llguidance", small_vocabulary())


@pytest.mark.parametrize("kind", list(SEEDS))
@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), num_edits=st.integers(0, 6))
@example(seed=0, num_edits=0)
def test_any_text_is_refused_or_built(kind: ConstraintKind, seed: int, num_edits: int) -> None:
    rng = random.Random(seed)
    text = SEEDS[kind]
    for _ in range(num_edits):
        start = rng.randrange(len(text) + 1)
        text = text[:start] + rng.choice(["", *PIECES]) + text[start + rng.randrange(3) :]
    try:
        compile_constraint(engine(), ConstraintSpec(kind, text, "llguidance"))
    except UnsupportedConstraint:
        assert num_edits, "the text is a grammar as it stands"
