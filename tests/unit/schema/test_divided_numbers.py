"""Multiples that no short regex describes, numbers beyond doubles: what a grammar takes of them."""

import json
from typing import Any

import pytest

from grammar.engines import load_engine
from grammar.schema.compiler import compile_schema
from grammar.spec import PreparedConstraint
from grammar.validation import AnswerValidator
from tests.grammar_walk import Texts
from tests.small_vocabulary import small_vocabulary


def takes(schema: dict[str, Any], text: str) -> bool:
    engine = load_engine("llguidance", small_vocabulary())
    lark = compile_schema(json.dumps(schema)).lark
    matcher = engine.build(PreparedConstraint("llguidance", "lark", lark))
    return Texts(small_vocabulary()).accepts(matcher, text)


@pytest.mark.parametrize("step", [1.5, 0.75])
def test_fractional_multiples_alone_are_a_gap(step: float) -> None:
    schema = {"type": "number", "multipleOf": step, "not": {"type": "integer"}}
    assert [gap.keyword for gap in compile_schema(json.dumps(schema)).gaps] == ["not"]


@pytest.mark.parametrize(
    "text", ["41131023397393735.5", "9007199254740994.5", "8429007053821363527.0"]
)
def test_no_multiple_is_taken_that_a_double_does_not_keep(text: str) -> None:
    assert not takes({"multipleOf": 1.5}, text)


@pytest.mark.parametrize("text", ["0", "1.5", "-4.5", "3", "99999999999997.5"])
def test_multiples_are_taken_and_validate(text: str) -> None:
    schema = {"multipleOf": 1.5}
    assert takes(schema, text)
    assert AnswerValidator(json.dumps(schema)).problem(text) is None


def test_bounds_inside_of_the_limits_are_kept() -> None:
    schema = {"type": "number", "multipleOf": 1.5, "minimum": 3, "exclusiveMaximum": 6}
    assert [takes(schema, text) for text in ("1.5", "3", "4.5", "6")] == [False, True, True, False]


@pytest.mark.parametrize("number", [1e23, 1e30, 1e63, -1e30, 12345678901234567890.5])
def test_a_literal_beyond_whole_doubles_is_the_double(number: float) -> None:
    schema = {"const": number}
    assert takes(schema, str(int(number)))
    assert AnswerValidator(json.dumps(schema)).problem(str(int(number))) is None


def test_a_literal_of_many_digits_is_written_with_an_exponent() -> None:
    assert takes({"const": 1e300}, "1e+300")
    assert compile_schema('{"const":1e300}').spellings(1e300) == ["1e+300"]
