"""How values are written, and whether a schema allows them at all."""

import json
from typing import Any

import pytest

from grammar.schema.compiler import CompiledSchema, compile_schema

NAMES: dict[str, Any] = {"type": "object", "properties": {"z": {}, "a": {}}}


def compiled(schema: Any) -> CompiledSchema:
    return compile_schema(json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (NAMES, {"a": 1, "z": 2}, '{"z":2,"a":1}'),
        (NAMES, {"x": 1, "a": 1, "z": 2}, '{"z":2,"a":1,"x":1}'),
        ({**NAMES, "required": ["q"]}, {"q": 1, "a": 1}, '{"a":1,"q":1}'),
        ({"items": NAMES}, [{"a": 1, "z": [True, None]}], '[{"z":[true,null],"a":1}]'),
        ({}, "a\u0001\n\"é/", '"a\\u0001\\n\\"é/"'),
        ({}, 1.0, "1"),
        ({}, 1e-7, "0.0000001"),
        ({}, -2.50, "-2.5"),
        ({}, 1e300, "1e+300"),
        ({"type": "object", "contains": {}}, {"b": 1, "a": 2}, '{"b":1,"a":2}'),
        (
            {"type": "object", "not": {"additionalProperties": {"not": {"const": 1}}}},
            {"one": 1, "two": 2},
            '{"two":2,"one":1}',  # the property that has to be there comes last
        ),
    ],
)  # fmt: skip
def test_a_value_has_the_spelling_of_the_grammar(schema: Any, value: Any, text: str) -> None:
    assert compiled(schema).spellings(value) == [text]


def test_alternatives_with_orders_of_their_own_are_told_apart() -> None:
    first = {"type": "object", "properties": {"k": {"const": 1}, "v": {}}, "required": ["k"]}
    second = {"type": "object", "properties": {"v": {}, "k": {"const": 2}}, "required": ["k"]}
    schema = compiled({"anyOf": [first, second]})
    assert schema.spellings({"v": 0, "k": 1}) == ['{"k":1,"v":0}']
    assert schema.spellings({"k": 2, "v": 0}) == ['{"v":0,"k":2}']


def test_a_value_that_is_not_allowed_is_spelled_in_every_order() -> None:
    schema = compiled({**NAMES, "additionalProperties": False})
    assert schema.spellings({"x": 1, "a": 2, "z": 3}) == [
        '{"z":3,"a":2,"x":1}',
        '{"x":1,"a":2,"z":3}',
    ]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "array", "uniqueItems": True}, [[1, True, "1"], [1, 2]], [[1, 1.0], [{}, {}]]),
        ({"not": {"uniqueItems": True}}, [[1, 1], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]],
         [[1, True]]),
        ({"contains": {"const": 1}, "minContains": 2, "maxContains": 2}, [[1, 2, 1]],
         [[1], [1, 1, 1]]),
        ({"prefixItems": [{"type": "null"}], "minItems": 1, "maxItems": 2}, [[None, 1]], [[], [1]]),
        ({"type": "object", "minProperties": 1, "maxProperties": 1}, [{"a": 1}],
         [{}, {"a": 1, "b": 1}]),
        ({"patternProperties": {"^a": {"type": "null"}}}, [{"a": None, "b": 1}], [{"ab": 1}]),
        ({"type": "number", "multipleOf": 0.5}, [1, 2.5, -0.5], [0.25, True, "1"]),
        ({"type": ["boolean", "null"]}, [True, None], [0, "null"]),
        ({"enum": [{"a": [1]}, "b"]}, [{"a": [1.0]}, "b"], [{"a": [1], "b": 1}, {"a": [1, 1]}, {}]),
    ],
)  # fmt: skip
def test_values_are_allowed_as_the_schema_says(
    schema: Any, good: list[Any], bad: list[Any]
) -> None:
    found = compiled(schema)
    assert [value for value in good if not found.allows(value)] == []
    assert [value for value in bad if found.allows(value)] == []
