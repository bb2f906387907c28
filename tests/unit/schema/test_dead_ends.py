"""What no value can satisfy is found before a grammar leads into it."""

import json
from typing import Any

import pytest

from grammar.errors import UnsatisfiableConstraint, UnsupportedConstraint
from grammar.schema.compiler import compile_schema

NOWHERE: list[dict[str, Any]] = [
    {"type": "string", "format": "date", "maxLength": 3},
    {"type": "string", "format": "date", "minLength": 11},
    {"type": "string", "format": "date-time", "maxLength": 5},
    {"type": "string", "pattern": "^a", "not": {"pattern": "^a"}},
    {"allOf": [{"pattern": "^[ab]{3}$"}, {"maxLength": 2}], "type": "string"},
    {"type": "integer", "minimum": 4, "maximum": 5, "multipleOf": 3},
    {"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "uniqueItems": True},
    {"type": "object", "required": ["a", "b"], "maxProperties": 1},
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
]


@pytest.mark.parametrize("schema", NOWHERE)
def test_a_schema_that_nothing_satisfies_is_refused_as_such(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsatisfiableConstraint):
        compile_schema(json.dumps(schema))


@pytest.mark.parametrize("schema", NOWHERE)
def test_an_optional_property_that_nothing_satisfies_is_never_begun(schema: dict[str, Any]) -> None:
    whole = {"type": "object", "properties": {"xyz": schema, "b": {}}}
    grammar = compile_schema(json.dumps(whole)).lark
    assert '"\\"b\\"" ":"' in grammar
    assert '"\\"xyz\\"" ":"' not in grammar


@pytest.mark.parametrize("literal", ["x" * 20_000, ["x" * 10_000] * 2])
def test_a_literal_that_would_hold_up_a_step_is_refused(literal: Any) -> None:
    for schema in ({"const": literal}, {"enum": [1, literal]}):
        with pytest.raises(UnsupportedConstraint, match="16384 characters"):
            compile_schema(json.dumps(schema))


@pytest.mark.parametrize(
    "counts", [{"maxProperties": 1}, {"maxProperties": 3}, {"minProperties": 2}]
)
def test_thousands_of_counted_properties_are_a_gap_and_no_chain(counts: dict[str, int]) -> None:
    properties = {f"p{number}": {"type": "integer"} for number in range(3000)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False, **counts}
    assert [gap.keyword for gap in compile_schema(json.dumps(schema)).gaps] == ["maxProperties"]


@pytest.mark.parametrize(
    ("inner", "keyword"),
    [
        ({"type": "string", "minLength": 5, "maxLength": 4}, "maxLength"),
        ({"type": "array", "minItems": 2, "maxItems": 1}, "maxItems"),
        ({"const": 1, "type": "string"}, "type"),
    ],
)
def test_what_cannot_be_is_named_where_it_stands(inner: dict[str, Any], keyword: str) -> None:
    schema = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    with pytest.raises(UnsatisfiableConstraint) as caught:
        compile_schema(json.dumps(schema))
    assert caught.value.pointer == f"/properties/a/{keyword}"
