"""What xgrammar 0.2 enforces of a schema whose keywords were checked one by one.

It ignores what it does not know, or combines keywords wrongly, and says so on standard error at
most. So a schema has to have one of the few shapes that it was proven to enforce.
"""

from typing import Any

from grammar.errors import UnsupportedConstraint
from grammar.keyword_values import refused
from grammar.keywords import TYPE_KEYWORDS, is_of_type
from grammar.number_bounds import tighten_bounds
from grammar.schema.formats import ASSERTED_FORMATS
from grammar.schema_document import child
from grammar.xgrammar_regex import check_anchors, check_string_pattern

Schema = dict[str, Any]

# Its other formats allow a 31st of June, a 60th second, ipv4 with leading zeros, labels of a
# host name that are too long.
FORMATS = frozenset({"duration", "email", "ipv6", "uri", "uuid"})
COMBINATIONS = ("$ref", "anyOf", "allOf", "oneOf")
# It computes float bounds to six decimals.
BOUND_DECIMALS = 6
MAX_FLOAT_BOUND = 2**31
MAX_MULTIPLE_OF = 1024


def xgrammar_rules(schema: Schema, pointer: str) -> Schema:
    """The schema as xgrammar gets it. Raises: UnsupportedConstraint."""
    for keyword in COMBINATIONS:
        if keyword in schema:
            return _combination(schema, keyword, pointer)
    if "enum" in schema or "const" in schema:
        return _literal(schema, pointer)
    settled = _without_foreign_keywords(schema, pointer)
    types = _types(settled)
    if "string" in types:
        _check_string(settled, pointer)
    if types & {"integer", "number"}:
        _check_number(settled, pointer, is_integer="number" not in types)
    if "object" in types:
        _check_object(settled, pointer)
    return settled


def _combination(schema: Schema, keyword: str, pointer: str) -> Schema:
    place = child(pointer, keyword)
    if keyword == "oneOf":
        raise refused("xgrammar cannot enforce oneOf here", place, keyword)
    if keyword == "allOf" and len(schema["allOf"]) > 1:
        raise refused("xgrammar cannot enforce several branches of allOf", place, keyword)
    siblings = [name for name in schema if name != keyword]
    if siblings:
        raise refused(f"xgrammar ignores {siblings[0]!r} beside {keyword!r}", place, keyword)
    return schema


def _literal(schema: Schema, pointer: str) -> Schema:
    """enum or const, with no sibling but a type that all values have."""
    keyword = "enum" if "enum" in schema else "const"
    place = child(pointer, keyword)
    for sibling in schema:
        if sibling not in (keyword, "type"):
            raise refused(f"xgrammar ignores {sibling!r} beside {keyword!r}", place, keyword)
    values = schema["enum"] if keyword == "enum" else [schema["const"]]
    types = _types(schema)
    for value in values:
        if types and not is_of_type(value, types):
            raise refused(f"the value {value!r} is not of the type given", place, keyword)
    return {keyword: schema[keyword]}


def _without_foreign_keywords(schema: Schema, pointer: str) -> Schema:
    """Keywords of other types bind nothing; keywords without a type would be ignored."""
    types = _types(schema)
    allowed = {"type"}
    for name, keywords in TYPE_KEYWORDS.items():
        if name in types or (name == "number" and "integer" in types):
            allowed |= keywords
    for keyword in schema:
        if not types and keyword not in allowed:
            raise refused(
                f"xgrammar enforces {keyword!r} only beside 'type'",
                child(pointer, keyword),
                keyword,
            )
    return {keyword: value for keyword, value in schema.items() if keyword in allowed}


def _check_string(schema: Schema, pointer: str) -> None:
    if schema.get("format") not in ASSERTED_FORMATS:
        schema.pop("format", None)
    elif schema["format"] not in FORMATS:
        place = child(pointer, "format")
        raise refused(f"xgrammar does not enforce {schema['format']!r} soundly", place, "format")
    present = [name for name in ("pattern", "format") if name in schema]
    lengths = [name for name in ("minLength", "maxLength") if name in schema]
    if len(present) > 1 or (present and lengths):
        other = (present[1:] + lengths)[0]
        raise refused(
            f"xgrammar ignores {other!r} beside {present[0]!r}", child(pointer, other), other
        )
    if "pattern" in schema:
        check_string_pattern(schema["pattern"], pointer=child(pointer, "pattern"))


def _check_number(schema: Schema, pointer: str, *, is_integer: bool) -> None:
    if "multipleOf" in schema:
        _check_multiple_of(schema, pointer, is_integer=is_integer)
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        bound = schema.get(keyword)
        if bound is None:
            continue
        place = child(pointer, keyword)
        if is_integer and not float(bound).is_integer():
            raise refused("xgrammar needs whole bounds for integers", place, keyword)
        if is_integer:
            schema[keyword] = int(bound)
        elif abs(bound) > MAX_FLOAT_BOUND or round(bound, BOUND_DECIMALS) != bound:
            raise refused("xgrammar rounds this bound", place, keyword)
    if ("minimum" in schema and "exclusiveMinimum" in schema) or (
        "maximum" in schema and "exclusiveMaximum" in schema
    ):
        raise refused("xgrammar takes one bound a side", child(pointer, "minimum"), "minimum")
    tighten_bounds(schema, pointer)


def _check_multiple_of(schema: Schema, pointer: str, *, is_integer: bool) -> None:
    bounds = set(schema) & {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    is_whole = isinstance(schema["multipleOf"], int) and schema["multipleOf"] <= MAX_MULTIPLE_OF
    if not is_integer or not is_whole or bounds not in (set(), {"minimum", "maximum"}):
        raise refused(
            "xgrammar enforces multipleOf up to 1024, for integers without bounds or with both",
            child(pointer, "multipleOf"),
            "multipleOf",
        )


def _check_object(schema: Schema, pointer: str) -> None:
    for keyword in ("patternProperties", "minProperties", "maxProperties"):
        if keyword in schema:
            raise refused(
                f"xgrammar does not enforce {keyword!r} soundly", child(pointer, keyword), keyword
            )
    properties = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in properties]
    if missing:
        raise refused(
            f"xgrammar does not require {missing[0]!r}, which has no entry in 'properties'",
            child(pointer, "required"),
            "required",
        )
    if not properties:
        return
    # Its strings may spell a declared key with \u escapes, and the last of two equal keys wins:
    # an open object is closed, which allows less; a schema for other keys cannot be kept.
    if not isinstance(schema.get("additionalProperties", True), bool):
        raise refused(
            "xgrammar does not enforce a schema of 'additionalProperties' beside 'properties'",
            child(pointer, "additionalProperties"),
            "additionalProperties",
        )
    schema["additionalProperties"] = False


def _types(schema: Schema) -> frozenset[str]:
    named = schema.get("type", [])
    return frozenset([named] if isinstance(named, str) else named)


def check_xgrammar_regex(pattern: str) -> str:
    """A regex constraint, if xgrammar takes all of it seriously."""
    misplaced = check_anchors(pattern)
    if misplaced is not None:
        raise UnsupportedConstraint(f"xgrammar ignores the anchor in {misplaced!r}")
    return pattern
