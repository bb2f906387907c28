"""The static check: what reaches xgrammar, what is refused and where."""

import json
from typing import Any

import pytest

from grammar.errors import UnsupportedConstraint
from grammar.schema.formats import ASSERTED_FORMATS
from grammar.xgrammar_coverage import MAX_DEPTH, check_schema
from grammar.xgrammar_rules import FORMATS


def checked(schema: Any) -> Any:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return json.loads(check_schema(text))


def refusal(schema: Any) -> UnsupportedConstraint:
    with pytest.raises(UnsupportedConstraint) as caught:
        checked(schema)
    return caught.value


def test_annotations_and_unknown_formats_do_not_reach_the_engine() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/s",
        "title": "t",
        "default": 1,
        "examples": [1],
        "readOnly": True,
        "x-order": 3,
        "requried": ["a"],
        "type": "string",
        "format": "color",
        "uniqueItems": False,
    }
    assert checked(schema) == {"type": "string"}


@pytest.mark.parametrize("name", ASSERTED_FORMATS)
def test_asserted_formats_reach_the_engine_if_it_is_sound_on_them(name: str) -> None:
    schema = {"type": "string", "format": name}
    if name in FORMATS:
        assert checked(schema) == schema
    else:
        assert refusal(schema).pointer == "/format"


def test_engine_options_in_a_schema_do_not_reach_the_engine() -> None:
    assert checked({"type": "object", "x-guidance": {"lenient": True}}) == {"type": "object"}


def test_the_order_of_keys_is_kept() -> None:
    properties = '"properties":{"z":{},"a":{},"m":{}}'
    rebuilt = checked(f'{{"type":"object",{properties},"required":["m","z","m"]}}')
    assert list(rebuilt["properties"]) == ["z", "a", "m"]
    assert rebuilt["required"] == ["m", "z"]


def test_references_lead_to_one_definition_each_wherever_they_point() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/components/schemas/S~1x"},
            "b": {"$ref": "#/components/schemas/S~1x"},
            "c": {"$ref": "#/properties/a"},
            "d": {"$ref": "#"},
        },
        "components": {"schemas": {"S/x": {"type": "string", "description": "dropped"}}},
    }
    rebuilt = checked(schema)
    assert [p["$ref"] for p in rebuilt["properties"].values()] == [
        "#/$defs/d0",
        "#/$defs/d0",
        "#/$defs/d1",
        "#",
    ]
    assert rebuilt["$defs"] == {"d0": {"type": "string"}, "d1": {"$ref": "#/$defs/d0"}}


def test_a_reference_by_the_schemas_own_id_is_local() -> None:
    schema = {
        "$id": "https://example.com/s.json",
        "$ref": "https://example.com/s.json#/$defs/a%20b",
        "$defs": {"a b": {"type": "null"}},
    }
    assert checked(schema)["$defs"] == {"d0": {"type": "null"}}


def test_properties_that_are_named_like_keywords_are_no_identifiers() -> None:
    inner = {"$id": {"type": "null"}, "properties": {"$ref": "#/properties/$id"}}
    assert checked({"type": "object", "properties": inner})["$defs"] == {"d0": {"type": "null"}}


def test_keys_with_percent_signs_are_taken_as_they_are() -> None:
    schema = {
        "type": "object",
        "properties": {"50%25": {"$ref": "#/$defs/a%2525"}},
        "$defs": {"a%25": {"type": "null"}},
    }
    assert checked(schema)["$defs"] == {"d0": {"type": "null"}}


@pytest.mark.parametrize("target", [{"type": 3}, {"required": [[]]}, {"properties": 1}, [], "x"])
def test_a_malformed_target_of_a_reference_is_refused(target: Any) -> None:
    branch = {"type": "object", "properties": {"k": {}}, "required": ["k"]}
    schema = {"oneOf": [{"$ref": "#/$defs/a"}, branch], "$defs": {"a": target}}
    assert refusal(schema).reason


def test_definitions_that_nothing_refers_to_are_not_checked() -> None:
    assert checked({"type": "null", "$defs": {"odd": {"not": {}}}}) == {"type": "null"}


def test_older_drafts_take_their_new_form() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "array",
        "items": [
            {"type": "integer", "minimum": 3, "exclusiveMinimum": True, "maximum": 9},
            {"type": "null"},
        ],
        "additionalItems": {"type": "number", "maximum": 5, "exclusiveMaximum": False},
    }
    first, second = checked(schema)["prefixItems"]
    assert first == {"type": "integer", "maximum": 9, "exclusiveMinimum": 3}
    assert (second, checked(schema)["items"]) == (
        {"type": "null"},
        {"type": "number", "maximum": 5},
    )


DISCRIMINATED = {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]}


@pytest.mark.parametrize(
    "branches",
    [
        [{"type": "string"}, {"type": "integer"}, {"type": ["null", "boolean"]}],
        [{"const": 1}, {"const": True}, {"enum": ["a", 2]}],
        [{"enum": [[1]]}, {"enum": [[2], {"a": 1}]}],
        [DISCRIMINATED, {**DISCRIMINATED, "properties": {"k": {"const": "b"}}}],
        [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
        [
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {}}, "additionalProperties": False},
        ],
    ],
)
def test_one_of_over_exclusive_branches_is_any_of(branches: list[Any]) -> None:
    kind = {"properties": {"k": {"enum": ["a"]}}, "required": ["k"], "type": "object"}
    other = {"properties": {"k": {"enum": ["b"]}}, "required": [], "type": "object"}
    rebuilt = checked({"oneOf": branches, "$defs": {"A": kind, "B": other}})
    assert len(rebuilt["anyOf"]) == len(branches)
    assert "oneOf" not in rebuilt


@pytest.mark.parametrize(
    "branches",
    [
        [{"type": "integer"}, {"type": "number"}],
        [{"const": 1}, {"const": 1.0}],
        [{}, {"type": "null"}],
        [{"type": "string"}, {"type": "string"}],
        [{"type": "array", "items": {"const": 1}}, {"type": "array", "items": {"const": 2}}],
        [
            {"type": "object", "properties": {"k": {"const": "a"}}},
            {"type": "object", "properties": {"k": {"const": "b"}}},
        ],
    ],
)
def test_one_of_over_branches_that_may_overlap_is_refused(branches: list[Any]) -> None:
    error = refusal({"type": "object", "properties": {"p": {"oneOf": branches}}})
    assert (error.pointer, error.keyword) == ("/properties/p/oneOf", "oneOf")


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "banana"}, "/type"),
        ({"properties": {"a~/b": 3}}, "/properties/a~0~1b"),
        ({"required": [1]}, "/required"),
        ({"enum": []}, "/enum"),
        ({"anyOf": [{"type": "null"}, 1]}, "/anyOf/1"),
        ({"type": "array", "minItems": 10**6}, "/minItems"),
        ({"type": "string", "pattern": "(?=a)"}, "/pattern"),
        ({"$ref": "#/nope"}, "/$ref"),
        ({"$ref": "https://example.com/remote.json"}, "/$ref"),
        ({"$ref": "#anchor"}, "/$ref"),
        ({"$defs": []}, "/$defs"),
        ({"$schema": "https://example.com/dialect"}, "/$schema"),
        ({"not": {}}, "/not"),
        ({"type": "array", "items": {"uniqueItems": True}}, "/items/uniqueItems"),
        ({"if": True}, "/if"),
        ({"$dynamicRef": "#a"}, "/$dynamicRef"),
        ({"type": "integer", "minimum": 10**30}, "/minimum"),
        (
            {
                "type": "object",
                "properties": {"a": {"$id": "https://e.com/a", "items": {"$ref": "#/b"}}},
                "b": {},
            },
            "/properties/a/items/$ref",
        ),
        (
            {
                "type": "object",
                "properties": {"properties": {"$id": "https://e.com/a", "$ref": "#/b"}},
                "b": {},
            },
            "/properties/properties/$ref",
        ),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{}]},
            "/prefixItems",
        ),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [{}]}, "/items"),
        (
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "exclusiveMinimum": True},
            "/exclusiveMinimum",
        ),
    ],
)
def test_malformed_and_unsupported_schemas_are_refused_with_their_place(
    schema: Any, pointer: str
) -> None:
    assert refusal(schema).pointer == pointer


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"minLength": 1}, "/minLength"),
        ({"type": "string", "pattern": '["]'}, "/pattern"),
        ({"type": "string", "pattern": r"\\"}, "/pattern"),
        ({"type": "string", "pattern": "[A-z]"}, "/pattern"),
        ({"type": "string", "pattern": "[ -~]"}, "/pattern"),
        ({"type": "string", "pattern": "[a-z-~]"}, "/pattern"),
        ({"type": "string", "pattern": "a^b"}, "/pattern"),
        ({"type": "string", "pattern": "a", "format": "uuid"}, "/format"),
        ({"type": "number", "minimum": 0.1234567}, "/minimum"),
        (
            {"type": "object", "properties": {"a": {}}, "additionalProperties": {}},
            "/additionalProperties",
        ),
        ({"type": "object", "patternProperties": {"a": {}}}, "/patternProperties"),
        ({"type": "object", "minProperties": 1}, "/minProperties"),
        ({"type": "object", "required": ["a"]}, "/required"),
        ({"allOf": [{}, {}]}, "/allOf"),
        ({"anyOf": [{}], "oneOf": [False]}, "/anyOf"),
        ({"enum": [1], "minimum": 1}, "/enum"),
    ],
)
def test_xgrammar_is_given_only_what_it_enforces(schema: Any, pointer: str) -> None:
    assert refusal(schema).pointer == pointer


def test_open_objects_are_closed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}}
    assert checked(schema)["additionalProperties"] is False


@pytest.mark.parametrize("text", ["", "[]", "null", "false", '{"const":NaN}'])
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    assert refusal(text).reason


def test_true_allows_anything() -> None:
    assert checked("true") == {}


def test_schemas_are_nested_only_so_deep() -> None:
    def nested(depth: int) -> Any:
        schema: Any = {"type": "null"}
        for _ in range(depth):
            schema = {"type": "array", "items": schema}
        return schema

    assert checked(nested(MAX_DEPTH))
    assert "nested" in refusal(nested(MAX_DEPTH + 1)).reason


NEEDED = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        NEEDED,
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, False]},
    ],
)
def test_recursion_without_a_base_case_is_refused(schema: Any) -> None:
    assert "no finite value" in refusal(schema).reason


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {**NEEDED, "type": ["object", "null"]},
        {"anyOf": [{"type": "array", "items": {"$ref": "#"}, "minItems": 1}, {"type": "null"}]},
        {"type": "array", "prefixItems": [{"$ref": "#"}]},
    ],
)
def test_recursion_with_a_base_case_is_kept(schema: Any) -> None:
    assert checked(schema)


@pytest.mark.parametrize(
    ("bound", "given", "kept"),
    [
        ("maximum", 2**53 + 1, 2**53),
        ("minimum", 2**53 + 1, 2**53 + 2),
        ("maximum", -(2**53) - 1, -(2**53) - 2),
        ("maximum", 2**63 - 1, 2**63 - 1024),
        ("maximum", 1e300, 2**63 - 1024),
        ("minimum", -1e300, -(2**63) + 1024),
    ],
)
def test_bounds_are_rounded_inwards(bound: str, given: float, kept: float) -> None:
    assert checked({"type": "integer", bound: given})[bound] == kept
    assert kept <= given if bound == "maximum" else kept >= given


def test_an_integer_is_given_the_bounds_of_64_bits() -> None:
    schema = {"type": "integer", "minimum": 3}
    assert checked(schema) == {**schema, "maximum": 2**63 - 1024}
