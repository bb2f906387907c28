"""Whatever a mask lets through validates: random walks through random schemas, both engines."""

import json
import random
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from grammar.engines import load_engine
from grammar.errors import UnsupportedConstraint
from grammar.matcher import GrammarEngine, Matcher, compile_constraint
from grammar.spec import EngineName
from tests.grammar_walk import Texts, json_schema
from tests.property.grammar_schemas import schemas
from tests.small_vocabulary import small_vocabulary

ENGINES: list[EngineName] = ["llguidance", "xgrammar", "outlines"]
SETTINGS = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@cache
def loaded(name: EngineName) -> tuple[GrammarEngine, Texts]:
    return load_engine(name, small_vocabulary()), Texts(small_vocabulary())


def compiled(name: EngineName, schema: Any) -> Matcher:
    """A matcher, where the engine enforces the schema; other examples are skipped."""
    try:
        return compile_constraint(loaded(name)[0], json_schema(schema, name))
    except UnsupportedConstraint:
        assume(False)
        raise


@pytest.mark.parametrize("name", ENGINES)
@SETTINGS
@given(schema=schemas(), seed=st.integers(0, 2**32))
def test_what_the_mask_allows_validates(name: EngineName, schema: Any, seed: int) -> None:
    matcher = compiled(name, schema)
    texts = loaded(name)[1]
    rng = random.Random(seed)
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    for _ in range(4):
        output = texts.walk(matcher, rng)
        if output:
            text = texts.decode(output)
            assert [e.message for e in validator.iter_errors(json.loads(text))] == [], text
            assert texts.accepts(matcher, text), "another tokenization of the same text"


@pytest.mark.parametrize("name", ENGINES)
@SETTINGS
@given(schema=schemas(), seed=st.integers(0, 2**32))
def test_fork_and_rollback_restore_the_mask(name: EngineName, schema: Any, seed: int) -> None:
    matcher = compiled(name, schema)
    texts = loaded(name)[1]
    rng = random.Random(seed)
    output = texts.walk(matcher, rng, max_tokens=40)
    split = rng.randint(0, len(output))
    matcher.accept(output[:split])
    before = texts.row(matcher)
    fork = matcher.fork()
    assert matcher.accept(output[split:]) == len(output) - split
    np.testing.assert_array_equal(texts.row(fork), before)
    matcher.rollback(len(output) - split)
    np.testing.assert_array_equal(texts.row(matcher), before)
    assert matcher.is_accepting() == fork.is_accepting()


@pytest.mark.parametrize("name", ENGINES)
@SETTINGS
@given(schema=schemas(), seed=st.integers(0, 2**32))
def test_forced_tokens_are_allowed_and_accept_agrees_with_the_mask(
    name: EngineName, schema: Any, seed: int
) -> None:
    matcher = compiled(name, schema)
    texts = loaded(name)[1]
    rng = random.Random(seed)
    for token_id in texts.walk(matcher, rng, max_tokens=40):
        probe = matcher.fork()
        for forced in matcher.forced_tokens():
            assert forced in texts.allowed(probe)
            assert probe.accept([forced]) == 1
        stranger = rng.randrange(texts.vocabulary.vocab_size)
        is_accepted = matcher.fork().accept([stranger]) == 1
        # Where the text is forced llguidance's mask has only the tokenizer's own spelling of it.
        is_other_spelling = is_accepted and bool(matcher.forced_tokens())
        assert is_accepted == (stranger in texts.allowed(matcher)) or is_other_spelling
        matcher.accept([token_id])
