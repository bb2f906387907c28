"""The unevaluated rest: what jsonschema says where it does not depend on the value, else a gap."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from grammar.schema.compiler import CompiledSchema, compile_schema

PROPERTIES: dict[str, Any] = {"properties": {"a": {"type": "integer"}}}
CLOSED: dict[str, Any] = {"unevaluatedProperties": False}
OBJECTS: list[Any] = [
    {}, {"a": 1}, {"a": "x"}, {"b": 1}, {"b": "x"}, {"a": 1, "b": 1}, {"a": 1, "b": "x"},
    {"bb": 1}, {"c": "x"}, {"a": 1, "b": "x", "c": 1}, [], 3,
]  # fmt: skip
ARRAYS: list[Any] = [
    [], [1], ["x"], [1, 1], [1, "x"], ["x", "x"], [1, 1, "x"], [1, "x", 1], {}, "x",
]  # fmt: skip


def compiled(schema: Any) -> CompiledSchema:
    return compile_schema(json.dumps(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {**CLOSED},
        {**PROPERTIES, **CLOSED},
        {**CLOSED, **PROPERTIES, "patternProperties": {"^b": {}}},
        {**PROPERTIES, "unevaluatedProperties": {"type": "string"}},
        {**PROPERTIES, "additionalProperties": {"type": "string"}, **CLOSED},
        {"allOf": [PROPERTIES, {"properties": {"b": {}}}], **CLOSED},
        {"allOf": [{"allOf": [PROPERTIES]}, True], "properties": {"b": {}}, **CLOSED},
        {"allOf": [{**PROPERTIES, **CLOSED}], "properties": {"b": {}}, **CLOSED},
        {"allOf": [{"unevaluatedProperties": {"type": "integer"}}], **CLOSED},
        {"$ref": "#/$defs/d", "$defs": {"d": PROPERTIES}, **CLOSED},
        {"$dynamicRef": "#d", "$defs": {"d": {"$dynamicAnchor": "d", **PROPERTIES}}, **CLOSED},
        {"$ref": "#/$defs/d", "$defs": {"d": {"$ref": "#/$defs/e"}, "e": PROPERTIES}, **CLOSED},
        {"not": {"properties": {"b": {"const": 1}}, "required": ["b"]}, **PROPERTIES, **CLOSED},
        {"properties": {"a": {**PROPERTIES, **CLOSED}}, **CLOSED},
        {"anyOf": [PROPERTIES, {}], "additionalProperties": {"type": "integer"}, **CLOSED},
    ],
)  # fmt: skip
def test_properties_that_nothing_has_evaluated_obey_the_keyword(schema: Any) -> None:
    validator, found = Draft202012Validator(schema), compiled(schema)
    assert found.gaps == ()
    for value in OBJECTS:
        assert found.allows(value) == validator.is_valid(value), value


@pytest.mark.parametrize(
    "schema",
    [
        {"unevaluatedItems": {"type": "integer"}},
        {"prefixItems": [{"type": "integer"}], "unevaluatedItems": False},
        {"prefixItems": [{}], "unevaluatedItems": {"type": "string"}},
        {"items": {"type": "integer"}, "unevaluatedItems": False},
        {"allOf": [{"prefixItems": [{}, {"type": "string"}]}, {"prefixItems": [{"const": 1}]}],
         "unevaluatedItems": False},
        {"allOf": [{"unevaluatedItems": {"type": "integer"}}], "unevaluatedItems": False},
        {"$ref": "#/$defs/d", "$defs": {"d": {"prefixItems": [{}]}}, "unevaluatedItems": False},
        {"contains": {"const": 1}, "items": True, "unevaluatedItems": False},
    ],
)  # fmt: skip
def test_items_that_nothing_has_evaluated_obey_the_keyword(schema: Any) -> None:
    validator, found = Draft202012Validator(schema), compiled(schema)
    assert found.gaps == ()
    for value in ARRAYS:
        assert found.allows(value) == validator.is_valid(value), value


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"anyOf": [PROPERTIES, {"properties": {"b": {}}}], **CLOSED}, "unevaluatedProperties"),
        ({"allOf": [{"oneOf": [PROPERTIES, False]}], **CLOSED}, "unevaluatedProperties"),
        ({"if": PROPERTIES, **CLOSED}, "unevaluatedProperties"),
        ({"dependentSchemas": {"b": PROPERTIES}, **CLOSED}, "unevaluatedProperties"),
        ({"contains": {"const": 1}, "unevaluatedItems": False}, "unevaluatedItems"),
        ({"anyOf": [{"prefixItems": [{}]}], "unevaluatedItems": False}, "unevaluatedItems"),
    ],
)
def test_what_depends_on_the_value_is_a_gap_that_allows_more(schema: Any, keyword: str) -> None:
    validator, found = Draft202012Validator(schema), compiled(schema)
    assert [(gap.pointer, gap.keyword) for gap in found.gaps] == [(f"/{keyword}", keyword)]
    for value in [*OBJECTS, *ARRAYS]:
        assert found.allows(value) or not validator.is_valid(value), value


def test_tuples_of_2019_have_no_prefix_items() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "type": "array",
        "items": [{}],
        "prefixItems": 3,
        "unevaluatedItems": False,
    }
    assert [compiled(schema).allows(value) for value in ([1], [1, 1])] == [True, False]
    del schema["items"]
    assert [compiled(schema).allows(value) for value in ([], [1])] == [True, False]


def test_schemas_that_share_parts_are_walked_once_each() -> None:
    """A walk along every path would take 10 ** 12 steps."""
    layers = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 10, "type": "object"}
        for i in range(12)
    }
    schema = {**CLOSED, "$ref": "#/$defs/d0", "$defs": {**layers, "d12": PROPERTIES}}
    found = compiled(schema)
    assert (found.allows({"a": 1}), found.allows({"b": 1})) == (True, False)
