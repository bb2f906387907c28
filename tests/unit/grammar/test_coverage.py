"""The static check: what reaches an engine, what is refused and where."""

import json
from typing import Any

import pytest

from grammar.coverage import MAX_DEPTH, check_schema
from grammar.errors import UnsupportedConstraint
from grammar.keywords import ASSERTED_FORMATS, misspelled


def checked(schema: Any, engine: Any = "llguidance") -> Any:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return json.loads(check_schema(text, engine))


def refusal(schema: Any, engine: Any = "llguidance") -> UnsupportedConstraint:
    with pytest.raises(UnsupportedConstraint) as caught:
        checked(schema, engine)
    return caught.value


def test_annotations_and_unknown_formats_do_not_reach_the_engine() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/s",
        "title": "t",
        "description": "d",
        "default": 1,
        "examples": [1],
        "deprecated": True,
        "readOnly": True,
        "$comment": "c",
        "x-order": 3,
        "javaType": "String",
        "type": "string",
        "format": "color",
        "uniqueItems": False,
    }
    assert checked(schema) == {"type": "string"}


@pytest.mark.parametrize("name", sorted(ASSERTED_FORMATS))
def test_asserted_formats_reach_the_engine(name: str) -> None:
    assert checked({"type": "string", "format": name})["format"] == name


def test_engine_options_in_a_schema_do_not_reach_the_engine() -> None:
    assert "x-guidance" not in checked({"type": "object", "x-guidance": {"lenient": True}})


def test_the_order_of_keys_is_kept() -> None:
    schema = '{"type":"object","properties":{"z":{},"a":{},"m":{}},"required":["m","z"]}'
    rebuilt = checked(schema)
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


def test_keys_with_percent_signs_are_taken_as_they_are() -> None:
    schema = {
        "properties": {"50%25": {"$ref": "#/$defs/a%2525"}},
        "$defs": {"a%25": {"type": "null"}},
    }
    assert checked(schema)["$defs"] == {"d0": {"type": "null"}}


@pytest.mark.parametrize("target", [{"type": 3}, {"required": [[]]}, {"properties": 1}, [], "x"])
def test_a_malformed_target_of_a_reference_is_refused_where_it_stands(target: Any) -> None:
    branch = {"type": "object", "properties": {"k": {}}, "required": ["k"]}
    schema = {"oneOf": [{"$ref": "#/$defs/a"}, branch], "$defs": {"a": target}}
    assert refusal(schema).reason


def test_a_deeply_nested_literal_is_refused() -> None:
    error = refusal('{"const":' + "[" * 900 + "]" * 900 + "}")
    assert (error.pointer, "deep" in error.reason) == ("/const", True)


def test_definitions_that_nothing_refers_to_are_not_checked() -> None:
    assert checked({"type": "null", "$defs": {"odd": {"not": {}}}}) == {"type": "null"}


def test_older_drafts_take_their_new_form() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "items": [{"minimum": 3, "exclusiveMinimum": True}, {"type": "null"}],
        "additionalItems": {"maximum": 5, "exclusiveMaximum": False},
    }
    assert checked(schema) == {
        "prefixItems": [{"exclusiveMinimum": 3}, {"type": "null"}],
        "items": {"maximum": 5},
    }


@pytest.mark.parametrize(
    "branches",
    [
        [{"type": "string"}, {"type": "integer"}, {"type": ["null", "boolean"]}],
        [{"const": 1}, {"const": True}, {"enum": ["a", 2]}],
        [{"enum": [[1]]}, {"enum": [[2], {"a": 1}]}],
        [
            {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]},
        ],
        [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
        [
            {"type": "object", "required": ["a"]},
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
            {"properties": {"k": {"const": "a"}}, "required": ["k"]},
            {"properties": {"k": {"const": "b"}}, "required": ["k"]},
        ],
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
        ({"type": []}, "/type"),
        ({"type": ["string", "string"]}, "/type"),
        ({"properties": 3}, "/properties"),
        ({"properties": {"a~/b": 3}}, "/properties/a~0~1b"),
        ({"required": "a"}, "/required"),
        ({"required": [1]}, "/required"),
        ({"required": True}, "/required"),
        ({"enum": []}, "/enum"),
        ({"anyOf": []}, "/anyOf"),
        ({"anyOf": {}}, "/anyOf"),
        ({"anyOf": [{"type": "null"}, 1]}, "/anyOf/1"),
        ({"items": 1}, "/items"),
        ({"minLength": -1}, "/minLength"),
        ({"minLength": 1.5}, "/minLength"),
        ({"minItems": 10**6}, "/minItems"),
        ({"maximum": "3"}, "/maximum"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"type": "number", "multipleOf": 0.1}, "/multipleOf"),
        ({"pattern": 1}, "/pattern"),
        ({"pattern": "(?=a)"}, "/pattern"),
        ({"pattern": r"(a)\1"}, "/pattern"),
        ({"patternProperties": {"(?<!a)b": {}}}, "/patternProperties/(?<!a)b"),
        ({"$ref": "#/nope"}, "/$ref"),
        ({"$ref": 1}, "/$ref"),
        ({"$ref": "https://example.com/remote.json"}, "/$ref"),
        ({"$ref": "#anchor"}, "/$ref"),
        ({"$defs": []}, "/$defs"),
        ({"$schema": "https://example.com/dialect"}, "/$schema"),
        ({"$schema": 7}, "/$schema"),
        ({"not": {}}, "/not"),
        ({"items": {"uniqueItems": True}}, "/items/uniqueItems"),
        ({"if": True}, "/if"),
        ({"$dynamicRef": "#a"}, "/$dynamicRef"),
        ({"type": "object", "minProperties": 2}, "/minProperties"),
        ({"const": "a\u0001"}, "/const"),
        ({"minimum": 10**30}, "/minimum"),
        (
            {"properties": {"a": {"$id": "https://e.com/a", "items": {"$ref": "#/b"}, "b": {}}}},
            "/properties/a/items/$ref",
        ),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{}]},
            "/prefixItems",
        ),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [{}]}, "/items"),
    ],
)
def test_malformed_and_unsupported_schemas_are_refused_with_their_place(
    schema: Any, pointer: str
) -> None:
    assert refusal(schema).pointer == pointer


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [
        ("requried", "required"),
        ("minlength", "minLength"),
        ("additional_properties", "additionalProperties"),
        ("propertes", "properties"),
        ("anyof", "anyOf"),
        ("patterns", "pattern"),
        ("required:", "required"),
    ],
)
def test_a_misspelled_keyword_is_refused_by_name(keyword: str, meant: str) -> None:
    error = refusal({"type": "object", "properties": {"a": {keyword: 1}}})
    assert error.pointer == f"/properties/a/{keyword}"
    assert repr(meant) in error.reason


@pytest.mark.parametrize(
    "keyword", ["x-required", "_format", "readonly", "javaType", "preferredOrder", "links", "note"]
)
def test_other_unknown_keywords_are_annotations(keyword: str) -> None:
    assert misspelled(keyword) is None
    assert checked({keyword: 1, "type": "null"}) == {"type": "null"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"a"',
        "1",
        "null",
        "false",
        '{"type":"null","type":"string"}',
        '{"const":NaN}',
        '{"const":1e999}',
        '{"const":"\\ud800"}',
        '{"maximum":' + "9" * 400 + "}",
        '{"items":' * 5000 + "{}" + "}" * 5000,
        '{"description":"' + "x" * 1_000_001 + '"}',
    ],
)
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    assert refusal(text).reason


def test_true_allows_anything() -> None:
    assert checked("true") == {}


def test_schemas_are_nested_only_so_deep() -> None:
    def nested(depth: int) -> Any:
        schema: Any = {"type": "null"}
        for _ in range(depth):
            schema = {"items": schema}
        return schema

    assert checked(nested(MAX_DEPTH))
    assert "nested" in refusal(nested(MAX_DEPTH + 1)).reason


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
        {"allOf": [{"type": "null"}, {"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, False]},
    ],
)
def test_recursion_without_a_base_case_is_refused(schema: Any) -> None:
    assert "no finite value" in refusal(schema).reason


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
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
        ("minimum", 0.1, 0.1),
    ],
)
def test_bounds_are_rounded_inwards(bound: str, given: float, kept: float) -> None:
    assert checked({"type": "number", bound: given})[bound] == kept
    assert kept <= given if bound == "maximum" else kept >= given


@pytest.mark.parametrize(
    ("pattern", "translated"),
    [
        (r"^a-b$", r"^a-b$"),
        (r"[^[&]", r"[^\[\&]"),
        (r"\d", "[[0-9]]"[1:-1]),
        (r"\.\<\>", r"\.<>"),
        (".", r"[^\n\r\x{2028}\x{2029}]"),
    ],
)
def test_patterns_keep_their_ecma_meaning(pattern: str, translated: str) -> None:
    assert checked({"type": "string", "pattern": pattern})["pattern"] == translated


@pytest.mark.parametrize("pattern", ["[]", "[^]", "[a", "a\\", "(?i)a", "a{,3}", r"\Aa", "[a--b]"])
def test_patterns_that_dialects_read_differently_are_refused(pattern: str) -> None:
    assert refusal({"pattern": pattern}).keyword == "pattern"


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
        ({"type": "string", "format": "date"}, "/format"),
        ({"type": "number", "minimum": 0.1234567}, "/minimum"),
        (
            {"type": "object", "properties": {"a": {}}, "additionalProperties": {}},
            "/additionalProperties",
        ),
        ({"allOf": [{}, {}]}, "/allOf"),
        ({"enum": [1], "minimum": 1}, "/enum"),
    ],
)
def test_xgrammar_is_given_only_what_it_enforces(schema: Any, pointer: str) -> None:
    assert refusal(schema, "xgrammar").pointer == pointer


def test_xgrammar_gets_open_objects_closed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}}
    assert checked(schema, "xgrammar")["additionalProperties"] is False
    assert "additionalProperties" not in checked(schema, "llguidance")
