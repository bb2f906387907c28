"""Every keyword alone, negated, and joined with every other, on each of a fixed list of values: the
model and the grammar that is made of it agree with jsonschema."""

import json
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from grammar.engines import load_engine
from grammar.errors import UnsupportedConstraint
from grammar.matcher import GrammarEngine
from grammar.schema.compiler import compile_schema
from grammar.spec import PreparedConstraint
from tests.grammar_walk import Texts
from tests.small_vocabulary import small_vocabulary

VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 3, 6, -1, 1.5, 2.5, "", "a", "b", "ab", "abc", "c1", "2024-02-29",
    [], [1], ["a"], [1, 1], [1, "a"], ["a", 1], [1, 2, 3], ["a", "b"], [[1], [1]],
    [None, 1, "a", 1],
    {}, {"a": 1}, {"b": 1}, {"a": "a"}, {"a": 1, "b": 1}, {"ab": 1}, {"zz": 1}, {"zz": "a", "a": 1},
    {"a": {"a": 1}}, {"a": 1, "b": "a", "c1": 2}, {"a": [1], "ab": None}, {"b": "b", "zz": 3},
    {"x": 1, "y": "a", "z": 2}, {"a": "a", "b": "b", "ab": "ab", "c1": "c"},
]  # fmt: skip

KEYWORDS: dict[str, Any] = {
    "type": {"type": ["string", "object"]},
    "integer": {"type": "integer"},
    "const": {"const": {"a": 1}},
    "enum": {"enum": [1, "a", [1], None, {"b": 1}]},
    "minimum": {"minimum": 1},
    "exclusiveMaximum": {"exclusiveMaximum": 2},
    "multipleOf": {"multipleOf": 3},
    "half": {"multipleOf": 0.5},
    "minLength": {"minLength": 2},
    "maxLength": {"maxLength": 1},
    "pattern": {"pattern": "^a"},
    "look-ahead": {"pattern": "^(?!ab)[a-c]"},
    "format": {"format": "date"},
    "items": {"items": {"type": "integer"}},
    "prefixItems": {"prefixItems": [{"type": "integer"}, {"type": "string"}]},
    "tuple": {"prefixItems": [{"const": 1}], "items": False},
    "two or three": {"prefixItems": [{"type": "integer"}, {}, {"const": 3}], "items": False,
                     "minItems": 2},
    "minItems": {"minItems": 2},
    "maxItems": {"maxItems": 1},
    "contains": {"contains": {"type": "string"}},
    "counted": {"contains": {"const": 1}, "minContains": 2, "maxContains": 2},
    "no contains": {"contains": {"type": "integer"}, "minContains": 0, "maxContains": 1},
    "distinct": {"items": {"enum": [1, "a", 2, 3]}, "uniqueItems": True},
    "properties": {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    "closed": {"properties": {"a": {}, "b": {}}, "additionalProperties": False},
    "rest": {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
    "patternProperties": {"patternProperties": {"^a": {"type": "integer"}, "b$": {"const": 1}}},
    "only patterns": {"patternProperties": {"^[ab]": {}}, "additionalProperties": False},
    "required": {"required": ["a", "b"]},
    "minProperties": {"minProperties": 1},
    "maxProperties": {"maxProperties": 2},
    "exactly two": {"properties": {"a": {}, "b": {}, "ab": {}, "zz": {}}, "minProperties": 2,
                    "maxProperties": 2, "additionalProperties": False},
    "propertyNames": {"propertyNames": {"maxLength": 1}},
    "dependentRequired": {"dependentRequired": {"a": ["b"]}},
    "dependentSchemas": {"dependentSchemas": {"zz": {"required": ["a"]}}},
    "if": {"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "object"}},
    "recursion": {"$defs": {"n": {"properties": {"a": {"anyOf": [{"$ref": "#/$defs/n"},
                  {"type": "integer"}]}}, "type": "object"}}, "$ref": "#/$defs/n"},
}  # fmt: skip


@cache
def engine() -> tuple[GrammarEngine, Texts]:
    return load_engine("llguidance", small_vocabulary()), Texts(small_vocabulary())


def with_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """References of the parts lead to the root, so their definitions have to stand there."""
    return {**schema, "$defs": KEYWORDS["recursion"]["$defs"]}


def assert_agrees(schema: Any) -> None:
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    expected = [validator.is_valid(value) for value in VALUES]
    try:
        compiled = compile_schema(json.dumps(schema))
    except UnsupportedConstraint as error:
        compiled, reason = None, error.reason
    if compiled is None:
        assert "no finite value" in reason, schema
        assert not any(expected), schema
        return
    library, texts = engine()
    matcher = library.build(PreparedConstraint("llguidance", "lark", compiled.lark))
    for value, is_valid in zip(VALUES, expected, strict=True):
        spellings = compiled.spellings(value)
        is_taken = any(texts.accepts(matcher, text) for text in spellings)
        if compiled.gaps:
            assert is_taken or not is_valid, (schema, value, spellings)
        else:
            assert (compiled.allows(value), is_taken) == (is_valid, is_valid), (schema, value)


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_keyword_and_its_negation(name: str) -> None:
    assert_agrees(with_definitions(KEYWORDS[name]))
    assert_agrees(with_definitions({"not": KEYWORDS[name]}))
    assert_agrees(with_definitions({"not": {"not": KEYWORDS[name]}}))


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_keyword_joined_with_every_other(name: str) -> None:
    for other in KEYWORDS:
        if other >= name:
            both = [KEYWORDS[name], KEYWORDS[other]]
            for schema in (
                {"allOf": both},
                {"oneOf": both},
                {"allOf": [both[0], {"not": both[1]}]},
                {"anyOf": [{"not": both[0]}, both[1]]},
            ):
                assert_agrees(with_definitions(schema))


def test_the_values_tell_all_keywords_apart() -> None:
    """Otherwise a keyword could stand for another without any test noticing."""
    verdicts = {}
    for name, schema in KEYWORDS.items():
        validator = Draft202012Validator(
            with_definitions(schema), format_checker=Draft202012Validator.FORMAT_CHECKER
        )
        verdicts[name] = tuple(validator.is_valid(value) for value in VALUES)
    for (one, found), (other, others) in combinations(verdicts.items(), 2):
        assert found != others, (one, other)
