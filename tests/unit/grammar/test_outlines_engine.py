"""What outlines-core alone has: its one regex, its table without measure."""

import json

import pytest

from grammar.engines import load_engine
from grammar.errors import UnsupportedConstraint
from grammar.matcher import GrammarEngine, compile_constraint
from grammar.spec import ConstraintSpec
from tests.grammar_walk import Texts
from tests.small_vocabulary import END, END_OF_TURN, small_vocabulary


@pytest.fixture(scope="module")
def outlines() -> GrammarEngine:
    return load_engine("outlines", small_vocabulary())


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        ("[^a]{0,200}", "transitions"),
        ("[^a]{0,5000}", "positions"),
        ("(?:(?:é|ab){100}[0-9]{2}){60}", "positions"),
    ],
)
def test_a_table_that_would_be_too_large_is_refused(
    outlines: GrammarEngine, monkeypatch: pytest.MonkeyPatch, pattern: str, limit: str
) -> None:
    monkeypatch.setattr("grammar.outlines_engine.MAX_TRANSITIONS", 50_000)
    with pytest.raises(UnsupportedConstraint, match=limit):
        compile_constraint(outlines, ConstraintSpec("regex", pattern, "outlines"))


@pytest.mark.parametrize(("num_padding", "is_full_word"), [(0, False), (19, True)])
def test_masks_are_as_wide_as_the_logits(num_padding: int, *, is_full_word: bool) -> None:
    vocabulary = small_vocabulary(num_padding=num_padding)
    assert (vocabulary.vocab_size % 32 == 0) == is_full_word
    texts = Texts(vocabulary)
    engine = load_engine("outlines", vocabulary)
    matcher = compile_constraint(engine, ConstraintSpec("regex", "[^a]*", "outlines"))
    allowed = texts.allowed(matcher)
    assert {END, END_OF_TURN} <= allowed
    assert max(allowed) < vocabulary.vocab_size
    for beyond in range(vocabulary.vocab_size, vocabulary.vocab_size + 4):
        assert matcher.accept([beyond]) == 0


@pytest.mark.parametrize(
    ("pattern", "forced"), [("x[0-9]", "x"), ("x", "x"), ("null", ""), ("xy?", "x")]
)
def test_a_text_is_forced_only_if_there_is_one_spelling(
    outlines: GrammarEngine, pattern: str, forced: str
) -> None:
    matcher = compile_constraint(outlines, ConstraintSpec("regex", pattern, "outlines"))
    assert Texts(small_vocabulary()).decode(matcher.forced_tokens()) == forced


def test_the_end_is_no_character(outlines: GrammarEngine) -> None:
    texts = Texts(small_vocabulary())
    matcher = compile_constraint(outlines, ConstraintSpec("regex", "[^a]{2}", "outlines"))
    assert texts.accepts(matcher, "日b")
    assert not texts.accepts(matcher, "b")
    assert not texts.accepts(matcher, "")
    for text in ("b\U0010ffff", "\U0010ffff", "\U00100000b"):
        assert matcher.fork().accept(texts.encode(text)) < len(texts.encode(text))


@pytest.mark.parametrize("pattern", ["[^a]{0,60}", "[b-z]{0,50}b{0,10}", "(?:[^a]{0,20}){3}"])
def test_counts_that_overlap_are_quick_to_compile(outlines: GrammarEngine, pattern: str) -> None:
    texts = Texts(small_vocabulary())
    matcher = compile_constraint(outlines, ConstraintSpec("regex", pattern, "outlines"))
    assert texts.accepts(matcher, "b" * 60)
    assert not texts.accepts(matcher, "b" * 61)


def test_masks_follow_a_rollback_and_a_fork(outlines: GrammarEngine) -> None:
    texts = Texts(small_vocabulary())
    matcher = compile_constraint(outlines, ConstraintSpec("regex", "x[0-9]z", "outlines"))
    start = texts.allowed(matcher)
    matcher.accept(texts.encode("x7"))
    assert texts.allowed(matcher) == set(texts.encode("z"))
    assert texts.allowed(matcher.fork()) == set(texts.encode("z"))
    matcher.rollback(2)
    assert texts.allowed(matcher) == start == set(texts.encode("x"))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array"}, "recursive"),
        ({"type": "integer", "multipleOf": 7}, "cannot be written in a regex"),
    ],
)
def test_schemas_that_are_no_regex_are_refused(
    outlines: GrammarEngine, schema: object, reason: str
) -> None:
    with pytest.raises(UnsupportedConstraint, match=reason):
        outlines.prepare(ConstraintSpec("json_schema", json.dumps(schema), "outlines"))
