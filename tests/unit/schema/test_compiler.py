"""The entry: what is compiled, what is refused, and which place a refusal names."""

import json
from typing import Any

import pytest

from grammar.errors import UnsupportedConstraint
from grammar.schema.compiler import CompiledSchema, compile_schema

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def compiled(schema: Any) -> CompiledSchema:
    return compile_schema(schema if isinstance(schema, str) else json.dumps(schema))


def refusal(schema: Any) -> UnsupportedConstraint:
    with pytest.raises(UnsupportedConstraint) as caught:
        compiled(schema)
    return caught.value


MALFORMED: list[tuple[Any, str]] = [
    ({"type": "strin"}, "/type"),
    ({"type": []}, "/type"),
    ({"type": ["string", "string"]}, "/type"),
    ({"type": [["string"]]}, "/type"),
    ({"properties": []}, "/properties"),
    ({"properties": {"a~/b": 3}}, "/properties/a~0~1b"),
    ({"patternProperties": 3}, "/patternProperties"),
    ({"patternProperties": {"(?<!a)(b": {}}}, "/patternProperties/(?<!a)(b"),
    ({"patternProperties": {"b": "x"}}, "/patternProperties/b"),
    ({"additionalProperties": "x"}, "/additionalProperties"),
    ({"propertyNames": 3}, "/propertyNames"),
    ({"required": "a"}, "/required"),
    ({"required": True}, "/required"),
    ({"required": [1]}, "/required"),
    ({"dependentRequired": {"a": 1}}, "/dependentRequired/a"),
    ({"dependentRequired": {"a": [1]}}, "/dependentRequired/a"),
    ({"dependentRequired": ["a"]}, "/dependentRequired"),
    ({"dependentSchemas": {"a/b": []}}, "/dependentSchemas/a~1b"),
    ({"dependencies": {"a": 1}}, "/dependencies/a"),
    ({"dependencies": {"a": [1]}}, "/dependencies/a"),
    ({"enum": {}}, "/enum"),
    ({"enum": []}, "/enum"),
    ({"const": 10**22 + 1}, "/const"),
    ({"allOf": {}}, "/allOf"),
    ({"anyOf": []}, "/anyOf"),
    ({"anyOf": [{"type": "null"}, 1]}, "/anyOf/1"),
    ({"oneOf": [None]}, "/oneOf/0"),
    ({"not": []}, "/not"),
    ({"if": 3}, "/if"),
    ({"if": {}, "then": "x"}, "/then"),
    ({"else": 3}, "/else"),
    ({"items": 5}, "/items"),
    ({"items": [{}, 5]}, "/items/1"),
    ({"items": [{}], "additionalItems": 3}, "/additionalItems"),
    ({"prefixItems": {}}, "/prefixItems"),
    ({"prefixItems": [3]}, "/prefixItems/0"),
    ({"contains": []}, "/contains"),
    ({"minContains": -1}, "/minContains"),
    ({"contains": {}, "maxContains": 1.5}, "/maxContains"),
    ({"uniqueItems": 1}, "/uniqueItems"),
    ({"unevaluatedItems": "x"}, "/unevaluatedItems"),
    ({"unevaluatedProperties": 3}, "/unevaluatedProperties"),
    ({"minLength": "3"}, "/minLength"),
    ({"minLength": -1}, "/minLength"),
    ({"maxLength": 1.5}, "/maxLength"),
    ({"minItems": 10**6}, "/minItems"),
    ({"maxProperties": True}, "/maxProperties"),
    ({"pattern": 3}, "/pattern"),
    ({"pattern": "a("}, "/pattern"),
    ({"pattern": r"(a)\1"}, "/pattern"),
    ({"format": ["date"]}, "/format"),
    ({"maximum": "3"}, "/maximum"),
    ({"exclusiveMinimum": None}, "/exclusiveMinimum"),
    ({"exclusiveMinimum": True}, "/exclusiveMinimum"),
    ({"multipleOf": 0}, "/multipleOf"),
    ({"multipleOf": -0.5}, "/multipleOf"),
    ({"$ref": 3}, "/$ref"),
    ({"$ref": "http://[x#a"}, "/$ref"),
    ({"$ref": "#/nope"}, "/$ref"),
    ({"$ref": "#anchor"}, "/$ref"),
    ({"$ref": "#/type", "type": "null"}, "/$ref"),
    ({"$ref": "https://example.com/remote.json"}, "/$ref"),
    ({"$dynamicRef": 3}, "/$dynamicRef"),
    ({"$dynamicRef": "#a"}, "/$dynamicRef"),
    ({"$recursiveRef": {}}, "/$recursiveRef"),
    ({"$id": 3}, "/$id"),
    ({"$id": "http://[x", "$ref": "#/$defs/a", "$defs": {"a": {}}}, "/$id"),
    ({"$anchor": {}}, "/$anchor"),
    ({"$defs": []}, "/$defs"),
]
# Parts of a schema that are read, but whose meaning does not matter for what is allowed.
AROUND: list[tuple[Any, str]] = [
    (..., ""),
    ({"not": {"properties": {"a": ...}}}, "/not/properties/a"),
    ({"if": ..., "then": False}, "/if"),
    ({"if": False, "then": ...}, "/then"),
    ({"anyOf": [True, ...]}, "/anyOf/1"),
    ({"allOf": [False, ...]}, "/allOf/1"),
    ({"type": "string", "items": ...}, "/items"),
    ({"type": "null", "dependentSchemas": {"x": ...}}, "/dependentSchemas/x"),
    ({"maxItems": 0, "prefixItems": [...]}, "/prefixItems/0"),
]


def filled(around: Any, schema: Any) -> Any:
    if around is ...:
        return schema
    if isinstance(around, dict):
        return {key: filled(value, schema) for key, value in around.items()}
    return [filled(value, schema) for value in around] if isinstance(around, list) else around


@pytest.mark.parametrize(("schema", "pointer"), MALFORMED)
def test_a_malformed_keyword_is_refused_with_its_place_wherever_it_stands(
    schema: dict[str, Any], pointer: str
) -> None:
    keyword = next(k for k in reversed(schema) if pointer.startswith(f"/{k}"))
    for around, place in AROUND:
        document = filled(around, schema)
        error = refusal(document)
        assert (error.pointer, error.keyword) == (place + pointer, keyword), document


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"$schema": 7}, "/$schema"),
        ({"$schema": "https://example.com/dialect"}, "/$schema"),
        ({"$schema": DRAFT_2020, "items": [{}]}, "/items"),
        ({"$schema": DRAFT_7, "minimum": 1, "exclusiveMinimum": True}, "/exclusiveMinimum"),
        ({"$schema": DRAFT_4, "id": 3}, "/id"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"type": 3}}}}, "/$defs/a/items/type"),
        (
            {"properties": {"a": {"$id": "https://e.com/a", "items": {"$ref": "#/b"}}}, "b": {}},
            "/properties/a/items/$ref",
        ),
    ],
)
def test_drafts_and_references_are_looked_through(schema: Any, pointer: str) -> None:
    assert refusal(schema).pointer == pointer


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": DRAFT_7, "dependentRequired": 3, "prefixItems": "x", "$id": "a"},
        {"$schema": DRAFT_7, "$ref": "#/definitions/a", "type": 3, "definitions": {"a": {}}},
        {"$schema": DRAFT_4, "$id": 3, "const": 1, "minimum": 1, "exclusiveMinimum": True},
        {"id": 3, "title": [], "nullable": 7, "requried": 1, "x-any": {"type": 3}},
        {"$defs": {"unused": {"type": 3}}, "definitions": {"unused": 3}},
        {"properties": {"$ref": {"type": "null"}, "type": {}, "enum": True}},
        {"dependencies": {"a": "b", "c": ["d"]}},
        {"required": [], "multipleOf": 2.0, "minLength": 1.0},
    ],
)
def test_what_has_no_meaning_is_not_looked_at(schema: Any) -> None:
    assert compiled(schema).gaps == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"a"',
        "1",
        "null",
        '{"type":"null","type":"string"}',
        '{"const":NaN}',
        '{"minimum":-Infinity}',
        '{"const":1e999}',
        '{"const":"\\ud800"}',
        '{"maximum":' + "9" * 401 + "}",
        '{"items":' * 5000 + "{}" + "}" * 5000,
        '{"not":' * 500 + "{}" + "}" * 500,
        '{"description":"' + "x" * 1_000_001 + '"}',
    ],
)
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    assert refusal(text).reason


def test_a_deeply_nested_literal_is_refused() -> None:
    error = refusal('{"const":' + "[" * 900 + "]" * 900 + "}")
    assert (error.pointer, "deep" in error.reason) == ("/const", True)


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, 2**53 + 2, 1e300])
def test_numbers_at_the_edges_of_double_precision_are_kept(value: float) -> None:
    schema = compiled({"type": "number", "minimum": value})
    assert (schema.allows(value), schema.allows(-1.7e308)) == (True, False)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"$ref": "#"}, "/$ref"),
        ({"allOf": [{"type": "null"}, {"$ref": "#"}]}, "/allOf/1/$ref"),
        ({"anyOf": [{"$ref": "#"}, False]}, "/anyOf/0/$ref"),
        ({"$recursiveRef": "#"}, "/$recursiveRef"),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#"}}},
            },
            "/$defs/b/not/$ref",
        ),
    ],
)
def test_a_schema_that_refers_to_itself_in_place_is_refused(schema: Any, pointer: str) -> None:
    error = refusal(schema)
    assert (error.pointer, "itself without a property" in error.reason) == (pointer, True)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
        {"type": "array", "contains": {"$ref": "#"}},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"not": {}},
        False,
    ],
)
def test_a_schema_without_a_finite_value_is_refused(schema: Any) -> None:
    assert "no finite value" in refusal(schema).reason


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, {"a": {"a": {}}}),
        ({"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
         {"a": {"a": None}}),
        ({"anyOf": [{"type": "array", "items": {"$ref": "#"}, "minItems": 1}, {"type": "null"}]},
         [[None], None]),
        ({"type": "array", "prefixItems": [{"$ref": "#"}]}, [[[]], 1]),
    ],
)  # fmt: skip
def test_recursion_with_a_base_case_is_kept(schema: Any, value: Any) -> None:
    schema = compiled(schema)
    assert (schema.allows(value), schema.allows({"a": 1}), schema.allows([1])) == (
        True,
        False,
        False,
    )


def test_a_contradiction_is_refused_at_the_keyword_that_completes_it() -> None:
    assert refusal({"properties": {"a": {"type": "null"}}, "enum": [{"a": 1}]}).pointer == "/enum"
    assert refusal({"enum": [1], "type": "string"}).pointer == "/type"


def test_a_gap_names_the_place_of_its_keyword() -> None:
    (gap,) = compiled({"properties": {"a": {"type": "array", "uniqueItems": True}}}).gaps
    assert (gap.pointer, gap.keyword) == ("/properties/a/uniqueItems", "uniqueItems")


def test_the_rules_can_be_embedded_under_another_name() -> None:
    schema = compiled({"properties": {"a": {"const": "x"}}, "type": "object"})
    rules = schema.rules("answer")
    assert "start" in {line.partition(":")[0] for line in schema.lark.splitlines()}
    names = {line.partition(":")[0] for line in rules.splitlines()}
    assert "answer" in names
    assert all(name.lower().startswith("answer") for name in names)


def test_whitespace_is_allowed_only_where_it_is_asked_for() -> None:
    schema = '{"type":"array","items":{"const":1}}'
    assert r"\t" not in compile_schema(schema).lark
    assert r"\t" in compile_schema(schema, whitespace=True).lark
