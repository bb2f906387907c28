"""Damaged schemas: whatever is thrown at the check, it answers, and an engine takes the rest."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from grammar.errors import UnsupportedConstraint
from grammar.matcher import compile_constraint
from tests.grammar_walk import json_schema
from tests.property.grammar_schemas import schemas
from tests.property.test_grammar_soundness import loaded

JUNK: list[Any] = [None, True, -1, 2.5, "", "#/nope", "(", [], [[]], {}, {"$ref": "#"}, [{}, 3]]
KEYWORDS = ["type", "$ref", "items", "required", "properties", "oneOf", "minimum", "pattern", "$id"]


def damage(schema: Any, rng: random.Random) -> Any:
    """The schema with something replaced by what does not belong there."""
    if isinstance(schema, dict) and rng.random() < 0.8:
        damaged = {key: damage(value, rng) for key, value in schema.items()}
        if rng.random() < 0.3:
            damaged[rng.choice(KEYWORDS)] = rng.choice(JUNK)
        return damaged
    if isinstance(schema, list) and rng.random() < 0.8:
        return [damage(value, rng) for value in schema]
    return rng.choice(JUNK) if rng.random() < 0.15 else schema


@settings(max_examples=300, deadline=None, derandomize=True)
@given(schema=schemas(), seed=st.integers(0, 2**32))
def test_a_damaged_schema_is_compiled_or_refused_and_never_anything_else(
    schema: Any, seed: int
) -> None:
    engine, texts = loaded("llguidance")
    try:
        matcher = compile_constraint(engine, json_schema(damage(schema, random.Random(seed))))
    except UnsupportedConstraint as error:
        refusal: UnsupportedConstraint | None = error
    else:
        refusal = None
        assert texts.allowed(matcher)
    assert refusal is None or refusal.reason
