"""One small schema for each keyword of JSON Schema and for the combinations that engines are known
to get wrong, with instances that it allows and forbids. Data for grammar.coverage_table.
"""

from dataclasses import dataclass
from typing import Any

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


@dataclass(frozen=True, slots=True)
class KeywordCase:
    """`name` begins with the keyword that it is about. Without instances the schema is one that
    must be refused: nothing satisfies it, or its meaning cannot be known."""

    name: str
    schema: Any
    valid: tuple[Any, ...] = ()
    invalid: tuple[Any, ...] = ()

    @property
    def keyword(self) -> str:
        return self.name.split(" ", 1)[0].rstrip(",:")


def _string_format(name: str, valid: list[str], invalid: list[str]) -> KeywordCase:
    schema = {"type": "string", "format": name}
    return KeywordCase(f"format {name}", schema, tuple(valid), tuple(invalid))


C = KeywordCase
GENERAL = (
    C("type", {"type": "integer"}, (0, -7, 10**20), (1.5, "1", True, None, [], {})),
    C("type, several", {"type": ["string", "null"]}, ("a", None), (0, False)),
    C("type number", {"type": "number"}, (1, -0.5, 1e30), ("1", True)),
    C("enum", {"enum": ["a", 1, None, [1, 2], {"k": "v"}]}, ("a", 1, None, [1, 2], {"k": "v"}),
      ("b", 2, [1], {"k": "w"}, True)),
    C("enum against type", {"type": "string", "enum": ["a", 1]}, ("a",), (1,)),
    C("enum of thousands", {"enum": [f"name {n}" for n in range(3000)]}, ("name 0", "name 2999"),
      ("name", "name 3000")),
    C("const", {"const": {"a": [1, "é\n"]}}, ({"a": [1, "é\n"]},), ({"a": [1]}, {})),
    C("const with a control character", {"const": "\x01"}, ("\x01",), ("\x02",)),
    C("const beyond doubles", {"const": 2**53 + 1}, (), (2**53,)),
    C("true", True, (1, "a", None, {"a": [1]}), ()),
    C("false", False),
    C("false inside", {"properties": {"a": False}}, ({}, {"b": 1}, 3), ({"a": 1},)),
    C("title and other annotations", {"title": "t", "default": 3, "examples": [1], "type": "null",
      "readOnly": True, "deprecated": True, "$comment": "c"}, (None,), (3,)),
    C("x-unknown keyword", {"x-order": 1, "type": "null"}, (None,), (1,)),
    C("nullable", {"type": "string", "nullable": False}, ("a",), (None,)),
    C("contentEncoding", {"type": "string", "contentEncoding": "base64"}, ("a", "%"), (1,)),
)  # fmt: skip
STRINGS = (
    C("minLength", {"type": "string", "minLength": 2}, ("ab", "éé", "😀a"), ("", "a", "😀")),
    C("maxLength", {"type": "string", "maxLength": 2}, ("", "ab", "😀😀"), ("abc",)),
    C("maxLength, untyped", {"maxLength": 1}, ("a", 12, ["ab"]), ("ab",)),
    C("minLength above maxLength", {"type": "string", "minLength": 3, "maxLength": 2}),
    C("pattern", {"type": "string", "pattern": "^[a-c]+$"}, ("a", "cab"), ("", "d", "abd")),
    C("pattern, unanchored", {"type": "string", "pattern": "b+c"}, ("bc", "abbcd"), ("ac", "b")),
    C("pattern with length", {"type": "string", "pattern": "^a*b", "maxLength": 3},
      ("b", "aab", "abc"), ("aaab", "a")),
    C("pattern with anchors in branches", {"type": "string", "pattern": "^a|b$"},
      ("ax", "xb", "a"), ("xa", "bx")),
    C("pattern with look-ahead", {"type": "string", "pattern": "^(?!foo)[a-z]+$"},
      ("bar", "fo"), ("foo", "foobar", "")),
    C("pattern with classes", {"type": "string", "pattern": "^\\d{2}-\\w\\S$"}, ("12-ab", "00-_!"),
      ("1a-ab", "12- b", "12-a")),
    C("pattern of Unicode letters", {"type": "string", "pattern": "^\\p{L}+$"}, ("aé日",),
      ("a1", "")),
    C("pattern, untyped", {"pattern": "^a$"}, ("a", 1, None), ("b",)),
    C("pattern with a backreference", {"type": "string", "pattern": "^(a|b)\\1$"}, ("aa",),
      ("ab", "ba")),
    C("format unknown", {"type": "string", "format": "color"}, ("red", ""), (1,)),
    C("format with pattern", {"type": "string", "format": "date", "pattern": "^2024"},
      ("2024-02-29",), ("2023-01-01", "2024-02-30")),
)  # fmt: skip
FORMATS = (
    _string_format("date", ["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-13-01", "24-1-1"]),
    _string_format("time", ["10:00:00Z", "23:59:59.5+01:00"], ["24:00:00Z", "10:00Z", "10:61:00Z"]),
    _string_format(
        "date-time", ["2024-01-31T10:00:00Z"], ["2024-01-32T10:00:00Z", "2024-01-31 10:00"]
    ),
    _string_format("duration", ["P1D", "PT1H30M", "P2W"], ["P", "1D", "P1DT"]),
    _string_format("email", ["joe.b@example.com"], ["joe", "@example.com", "a b@example.com"]),
    _string_format("hostname", ["example.com", "a-b"], ["-a.com", "a..b", "a_b"]),
    _string_format("ipv4", ["127.0.0.1"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    _string_format("ipv6", ["::1", "fe80::1:2", "1:2:3:4:5:6:7:8"], ["1::2::3", "12345::", ":"]),
    _string_format(
        "uuid", ["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08-aa98-11ea-b4aa73b441d16380"]
    ),
    _string_format("uri", ["http://a.b/c?d#e", "urn:a:b"], ["a.b/c", "http://a b", "http://é"]),
    _string_format("uri-reference", ["/a?b", "http://a.b"], ["\\a", "a b"]),
    _string_format("json-pointer", ["", "/a/~0~1"], ["a", "/~2"]),
)
NUMBERS = (
    C("minimum", {"type": "integer", "minimum": -3}, (-3, 0, 12), (-4, -30)),
    C("maximum", {"type": "number", "maximum": 2.5}, (2.5, -9, 0.25), (2.51, 3, 30)),
    C("maximum, untyped", {"maximum": 1}, (1, "2", [3]), (2,)),
    C("exclusiveMinimum", {"type": "number", "exclusiveMinimum": 0}, (0.001, 1), (0, -1)),
    C("exclusiveMinimum next to maximum", {"type": "number", "exclusiveMinimum": 0,
      "maximum": 0.5}, (0.25, 0.5), (0, 0.75)),
    C("exclusiveMaximum", {"type": "integer", "exclusiveMaximum": 10}, (9, -1), (10, 11)),
    C("exclusiveMinimum of draft 4", {"$schema": DRAFT_4, "type": "integer", "minimum": 3,
      "exclusiveMinimum": True}, (4,), (3, 2)),
    C("minimum above maximum", {"type": "number", "minimum": 3, "maximum": 2}),
    C("maximum beyond doubles", {"type": "integer", "maximum": 2**53 + 1}, (5,), (2**53 + 2,)),
    C("multipleOf of an integer", {"type": "integer", "multipleOf": 7}, (0, 14, -21), (1, 20)),
    C("multipleOf a fraction", {"type": "number", "multipleOf": 0.5}, (0, 1.5, -2), (0.3, 1.25)),
    C("multipleOf a hundredth", {"type": "number", "multipleOf": 0.01}, (0.25, 3), (0.255,)),
    C("multipleOf with one bound", {"type": "integer", "minimum": 1, "multipleOf": 3},
      (3, 12), (0, 4, -3)),
    C("multipleOf with both bounds", {"type": "integer", "minimum": 10, "maximum": 50,
      "multipleOf": 12}, (12, 48), (0, 13, 60)),
    C("multipleOf twice", {"allOf": [{"type": "integer", "multipleOf": 4}, {"multipleOf": 6}]},
      (12, 24), (4, 6, 8)),
)  # fmt: skip
OBJECTS = (
    C("properties", {"properties": {"a": {"type": "null"}}}, ({"a": None}, {"b": 1}, {}, 3),
      ({"a": 1},)),
    C("required", {"type": "object", "properties": {"a": {}, "b": {"type": "null"}},
      "required": ["b"]}, ({"b": None}, {"a": 1, "b": None}), ({"a": 1}, {})),
    C("required, undeclared", {"type": "object", "required": ["a"]}, ({"a": 1},),
      ({}, {"b": 1})),
    C("required alone", {"required": ["a"]}, ({"a": 1}, 3, []), ({},)),
    C("additionalProperties false", {"type": "object", "properties": {"a": {}},
      "additionalProperties": False}, ({}, {"a": 1}), ({"b": 1}, {"a": 1, "b": 1})),
    C("additionalProperties as a schema", {"type": "object", "properties": {"a": {}},
      "additionalProperties": {"type": "integer"}}, ({"a": "x", "b": 1},), ({"b": "x"},)),
    C("patternProperties", {"type": "object", "patternProperties": {"^x-": {"type": "string"}}},
      ({"x-a": "s", "b": 1}, {}), ({"x-a": 1},)),
    C("patternProperties in a closed object", {"type": "object", "properties": {"a": {}},
      "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
      ({"a": 1, "x1": 2}, {}), ({"b": 1}, {"x1": "s"})),
    C("patternProperties over properties", {"type": "object", "properties": {"ab":
      {"type": "integer"}}, "patternProperties": {"^a": {"minimum": 3}}},
      ({"ab": 3},), ({"ab": 2}, {"ab": "x"}, {"ac": 1})),
    C("propertyNames", {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}},
      ({"a": 1, "bc": 2}, {}), ({"A": 1}, {"a": 1, "1": 2})),
    C("propertyNames as an enum", {"type": "object", "propertyNames": {"enum": ["a", "b"]}},
      ({"a": 1}, {"b": 2}), ({"c": 1},)),
    C("minProperties of one", {"type": "object", "minProperties": 1}, ({"a": 1},), ({},)),
    C("minProperties in an open object", {"type": "object", "minProperties": 2},
      ({"a": 1, "b": 2},), ({}, {"a": 1})),
    C("minProperties in a closed object", {"type": "object", "properties": {"a": {}, "b": {},
      "c": {}}, "additionalProperties": False, "minProperties": 2},
      ({"a": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}), ({}, {"b": 1})),
    C("maxProperties in an open object", {"type": "object", "maxProperties": 1}, ({}, {"a": 1}),
      ({"a": 1, "b": 2},)),
    C("maxProperties with optional keys", {"type": "object", "properties": {"a": {}, "b": {}},
      "maxProperties": 1}, ({"a": 1}, {"c": 1}, {}), ({"a": 1, "b": 1}, {"a": 1, "c": 1})),
    C("dependentRequired", {"type": "object", "properties": {"a": {}, "b": {}},
      "dependentRequired": {"a": ["b"]}}, ({}, {"b": 1}, {"a": 1, "b": 1}), ({"a": 1},)),
    C("dependentSchemas", {"type": "object", "properties": {"a": {}, "b": {}},
      "dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}}}},
      ({"b": 1}, {"a": 1, "b": None}), ({"a": 1, "b": 1},)),
    C("dependencies", {"$schema": DRAFT_7, "type": "object", "properties": {"a": {}, "b": {}},
      "dependencies": {"a": ["b"]}}, ({"b": 1}, {"a": 1, "b": 1}), ({"a": 1},)),
    C("dependencies as a schema", {"$schema": DRAFT_4, "type": "object", "properties": {"a": {}},
      "dependencies": {"a": {"maxProperties": 1}}}, ({"a": 1}, {"b": 1, "c": 1}),
      ({"a": 1, "b": 1},)),
    C("unevaluatedProperties", {"type": "object", "allOf": [{"properties": {"a": {}}}],
      "unevaluatedProperties": False}, ({"a": 1}, {}), ({"b": 1},)),
    C("unevaluatedProperties after if", {"type": "object", "if": {"properties": {"a":
      {"const": 1}}, "required": ["a"]}, "then": {"properties": {"b": {}}},
      "unevaluatedProperties": False}, ({"a": 1, "b": 2}, {}), ({"b": 1}, {"a": 2}, {"c": 1})),
)  # fmt: skip
ARRAYS = (
    C("items", {"type": "array", "items": {"type": "integer"}}, ([], [1, 2]), (["a"], [1, "a"])),
    C("items, untyped", {"items": {"type": "null"}}, ([None], 3, {"a": 1}), ([1],)),
    C("prefixItems", {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}]},
      ([], ["a"], ["a", None, 3]), ([1], ["a", 1])),
    C("prefixItems with items", {"type": "array", "prefixItems": [{}], "items": False},
      ([], [1]), ([1, 2],)),
    C("items as a tuple", {"$schema": DRAFT_7, "items": [{"type": "string"}]},
      (["a"], ["a", 1], []), ([1],)),
    C("additionalItems", {"$schema": DRAFT_7, "items": [{}], "additionalItems":
      {"type": "null"}}, ([1], [1, None]), ([1, 2],)),
    C("minItems", {"type": "array", "minItems": 2}, ([1, 2], [1, 2, 3]), ([], [1])),
    C("maxItems", {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
      ([], [True, False]), ([True, True, True],)),
    C("uniqueItems over an enum", {"type": "array", "items": {"enum": ["a", "b", "c"]},
      "uniqueItems": True}, ([], ["c", "a"], ["a", "b", "c"]), (["a", "a"], ["a", "b", "a"])),
    C("uniqueItems over free strings", {"type": "array", "items": {"type": "string"},
      "uniqueItems": True}, (["a", "b"], []), (["a", "a"],)),
    C("uniqueItems of one", {"type": "array", "uniqueItems": True, "maxItems": 1}, ([], [1]),
      ([1, 1],)),
    C("contains", {"type": "array", "contains": {"const": 1}}, ([1], [0, 1, 2]), ([], [2])),
    C("contains beside items", {"type": "array", "items": {"enum": [1, 2]}, "contains":
      {"const": 1}}, ([2, 1], [1]), ([2], [1, 3])),
    C("minContains", {"type": "array", "contains": {"type": "null"}, "minContains": 2},
      ([None, 1, None],), ([None], [])),
    C("minContains of zero", {"type": "array", "contains": {"type": "null"}, "minContains": 0},
      ([], [1], [None]), (3,)),
    C("maxContains", {"type": "array", "contains": {"type": "null"}, "maxContains": 1},
      ([None], [1, None]), ([None, None], [])),
    C("unevaluatedItems", {"type": "array", "allOf": [{"prefixItems": [{"type": "null"}]}],
      "unevaluatedItems": False}, ([None], []), ([None, 1], [1])),
)  # fmt: skip
PET = {
    kind: {"properties": {"kind": {"const": kind}, "n": {"type": of}}, "required": ["kind", "n"]}
    for kind, of in (("cat", "integer"), ("dog", "string"))
}
COMBINED = (
    C("allOf", {"allOf": [{"type": "string"}, {"maxLength": 1}]}, ("a", ""), ("ab", 1)),
    C("allOf over properties", {"allOf": [{"type": "object", "properties": {"a": {}},
      "required": ["a"]}, {"properties": {"b": {"type": "null"}}, "required": ["b"]}]},
      ({"a": 1, "b": None},), ({"a": 1}, {"a": 1, "b": 1})),
    C("anyOf", {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]}, ("a", 5),
      (4, None)),
    C("anyOf with siblings", {"anyOf": [{"type": "string"}, {"type": "null"}], "minLength": 2},
      ("ab", None), ("a", 1)),
    C("anyOf over required", {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf":
      [{"required": ["a"]}, {"required": ["b"]}]}, ({"a": 1}, {"b": 1}), ({}, {"c": 1})),
    C("oneOf by type", {"oneOf": [{"type": "string"}, {"type": "null"}]}, ("a", None), (1,)),
    C("oneOf by a constant", {"type": "object", "oneOf": [PET["cat"], PET["dog"]]},
      ({"kind": "cat", "n": 1}, {"kind": "dog", "n": "x"}), ({"kind": "cat", "n": "x"}, {})),
    C("oneOf by required keys", {"type": "object", "properties": {"a": {}, "b": {}},
      "additionalProperties": False, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
      ({"a": 1}, {"b": 1}), ({}, {"a": 1, "b": 1})),
    C("oneOf, overlapping numbers", {"oneOf": [{"type": "integer"}, {"minimum": 2,
      "type": "number"}]}, (1, 2.5), (3, 0.5)),
    C("oneOf of integer and number", {"oneOf": [{"type": "integer"}, {"type": "number"}]},
      (1.5,), (1,)),
    C("oneOf, overlapping patterns", {"type": "string", "oneOf": [{"pattern": "^a"},
      {"pattern": "b$"}]}, ("ac", "cb"), ("ab", "c")),
    C("not of a type", {"not": {"type": "string"}}, (1, None, {"a": "b"}), ("a",)),
    C("not of an enum", {"type": "string", "not": {"enum": ["a", "bc"]}}, ("b", "abc", ""),
      ("a", "bc")),
    C("not of a pattern", {"type": "string", "not": {"pattern": "^x"}}, ("a", ""), ("x", "xy")),
    C("not of required", {"type": "object", "properties": {"a": {}, "b": {}}, "not":
      {"required": ["a"]}}, ({"b": 1}, {}), ({"a": 1}, {"a": 1, "b": 1})),
    C("not of anyOf", {"not": {"anyOf": [{"type": "object"}, {"minimum": 0}]}}, (-1,),
      ({}, 1, "a")),
    C("not twice", {"not": {"not": {"type": "null"}}}, (None,), (1,)),
    C("not of everything", {"not": {}}),
    C("if then", {"if": {"type": "string"}, "then": {"maxLength": 1}}, ("a", 12), ("ab",)),
    C("if then else", {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {}},
      "if": {"properties": {"a": {"const": True}}, "required": ["a"]}, "then": {"required":
      ["b"]}, "else": {"properties": {"b": False}}},
      ({"a": True, "b": 1}, {"a": False}, {}), ({"a": True}, {"a": False, "b": 1}, {"b": 1})),
    C("then without if", {"then": {"type": "null"}, "type": "integer"}, (1,), (None,)),
)  # fmt: skip
TREE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}},
        "required": ["v"], "additionalProperties": False}  # fmt: skip
REFERENCES = (
    C("$ref", {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, (None,), (1,)),
    C("$ref to any place", {"properties": {"a": {"type": "null"}, "b": {"$ref":
      "#/properties/a"}}}, ({"b": None},), ({"b": 1},)),
    C("$ref with siblings", {"$ref": "#/$defs/s", "$defs": {"s": {"type": "string"}},
      "minLength": 2}, ("ab",), ("a", 1)),
    C("$ref with siblings in draft 7", {"$schema": DRAFT_7, "definitions": {"s": {"type":
      "string"}}, "allOf": [{"$ref": "#/definitions/s", "minLength": 2}]}, ("a",), (1,)),
    C("$ref, recursive", TREE, ({"v": 1}, {"v": 1, "next": {"v": 2, "next": {"v": 3}}}),
      ({"v": 1, "next": {}}, {"v": 1, "next": {"v": 2, "w": 1}})),
    C("$ref without a base case", {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object",
      "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}}),
    C("$ref to itself", {"$ref": "#"}),
    C("$ref to nowhere", {"$ref": "#/$defs/none"}),
    C("$ref to another document", {"$ref": "https://example.com/schema.json"}),
    C("$ref to an escaped name", {"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"const": 1}}},
      (1,), (2,)),
    C("$anchor", {"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "null"}}},
      (None,), (1,)),
    C("$id", {"$id": "https://example.com/a", "$ref": "b", "$defs": {"x": {"$id": "b",
      "type": "null"}}}, (None,), (1,)),
    C("$dynamicRef", {"$dynamicRef": "#node", "$defs": {"a": {"$dynamicAnchor": "node",
      "type": "null"}}}, (None,), (1,)),
    C("$recursiveRef", {"$schema": DRAFT_2019, "type": "object", "properties": {"a":
      {"$recursiveRef": "#"}}, "additionalProperties": False}, ({}, {"a": {"a": {}}}),
      ({"b": 1}, {"a": {"b": 1}})),
)  # fmt: skip

CASES = (*GENERAL, *STRINGS, *FORMATS, *NUMBERS, *OBJECTS, *ARRAYS, *COMBINED, *REFERENCES)
