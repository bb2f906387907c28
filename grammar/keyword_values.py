"""Checks of single keywords' values, for every reader of schemas."""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from grammar.errors import UnsupportedConstraint
from grammar.keywords import TYPES
from grammar.schema_document import MAX_INTEGER, Json, child

Schema = dict[str, Any]
Check = Callable[[Json, str, str], Any]

MAX_ENUM = 20_000
MAX_REPEAT = 65_536
MAX_LITERAL_DEPTH = 64
# What a grammar forces is tokenized between two steps of all streams: 60,000 characters take 65 ms.
MAX_LITERAL_CHARS = 16_384


def refused(reason: str, place: str, keyword: str) -> UnsupportedConstraint:
    return UnsupportedConstraint(reason, pointer=place, keyword=keyword)


def require_object(value: Json, place: str, keyword: str) -> None:
    if not isinstance(value, dict):
        raise refused(f"{keyword!r} is an object", place, keyword)


def require_list(value: Json, place: str, keyword: str) -> None:
    if not isinstance(value, list) or not value:
        raise refused(f"{keyword!r} is a non-empty array", place, keyword)


def _types(value: Json, place: str, keyword: str) -> Json:
    names = value if isinstance(value, list) else [value]
    if not names:
        raise refused("'type' names at least one type", place, keyword)
    for name in names:
        if name not in TYPES:
            raise refused(f"unknown type {name!r}: one of {', '.join(TYPES)}", place, keyword)
    if len(set(names)) != len(names):
        raise refused("'type' names a type twice", place, keyword)
    return value


def _enum(value: Json, place: str, keyword: str) -> Json:
    require_list(value, place, keyword)
    if len(value) > MAX_ENUM:
        raise refused(f"an enum has at most {MAX_ENUM} values", place, keyword)
    return _literal(value, place, keyword)


def _literal(value: Json, place: str, keyword: str) -> Json:
    for literal in value if keyword == "enum" else [value]:
        if _is_long(literal):
            raise refused(f"a literal has at most {MAX_LITERAL_CHARS} characters", place, keyword)
    level = [value]
    for _ in range(MAX_LITERAL_DEPTH):
        for number in level:
            if isinstance(number, int) and abs(number) > MAX_INTEGER and float(number) != number:
                raise refused(f"no double equals the integer {number}", place, keyword)
        level = [inner for outer in level for inner in _members(outer)]
        if not level:
            return value
    raise refused(f"a literal is nested at most {MAX_LITERAL_DEPTH} deep", place, keyword)


def _is_long(literal: Json) -> bool:
    if isinstance(literal, dict | list):
        return len(json.dumps(literal, ensure_ascii=False)) > MAX_LITERAL_CHARS
    return isinstance(literal, str) and len(literal) > MAX_LITERAL_CHARS


def _members(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _string(value: Json, place: str, keyword: str) -> str:
    if not isinstance(value, str):
        raise refused(f"{keyword!r} is a string", place, keyword)
    return value


def _number(value: Json, place: str, keyword: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(f"{keyword!r} is a number", place, keyword)
    return value


def _exclusive(value: Json, place: str, keyword: str) -> bool | int | float:
    return value if isinstance(value, bool) else _number(value, place, keyword)


def _positive(value: Json, place: str, keyword: str) -> int | float:
    number = _number(value, place, keyword)
    if number <= 0:
        raise refused(f"{keyword!r} is greater than 0", place, keyword)
    return int(number) if float(number).is_integer() and number < 2**53 else number


def count(value: Json, place: str, keyword: str) -> int:
    number = _number(value, place, keyword)
    if number < 0 or math.floor(number) != number:
        raise refused(f"{keyword!r} is a whole number of at least 0", place, keyword)
    if keyword.startswith("min") and number > MAX_REPEAT:
        raise refused(f"{keyword!r} is at most {MAX_REPEAT}", place, keyword)
    return int(number)


def _boolean(value: Json, place: str, keyword: str) -> bool:
    if not isinstance(value, bool):
        raise refused(f"{keyword!r} is a boolean", place, keyword)
    return value


def _uri(value: Json, place: str, keyword: str) -> str:
    text = _string(value, place, keyword)
    try:
        urlsplit(text)
    except ValueError as error:
        raise refused(f"{keyword!r} is no URI: {error}", place, keyword) from error
    return text


def _names(value: Json, place: str, keyword: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise refused(f"{keyword!r} is an array of strings", place, keyword)
    return list(dict.fromkeys(value))


def _lists_of_names(value: Json, place: str, keyword: str) -> Json:
    require_object(value, place, keyword)
    for name, wanted in value.items():
        if not isinstance(wanted, list) or not all(isinstance(one, str) for one in wanted):
            raise refused(f"{keyword!r} has arrays of strings", child(place, name), keyword)
    return value


def _dependencies(value: Json, place: str, keyword: str) -> Json:
    """Of each property a schema, or names; draft 3 also had a single name."""
    require_object(value, place, keyword)
    lists = {name: wanted for name, wanted in value.items() if isinstance(wanted, list)}
    _lists_of_names(lists, place, keyword)
    return value


CHECKS: dict[str, Check] = {
    "type": _types,
    "enum": _enum,
    "const": _literal,
    "required": _names,
    "pattern": _string,
    "format": _string,
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _exclusive,
    "exclusiveMaximum": _exclusive,
    "multipleOf": _positive,
    "minLength": count,
    "maxLength": count,
    "minItems": count,
    "maxItems": count,
    "minProperties": count,
    "maxProperties": count,
    "minContains": count,
    "maxContains": count,
    "uniqueItems": _boolean,
    "properties": require_object,
    "patternProperties": require_object,
    "dependencies": _dependencies,
    "dependentRequired": _lists_of_names,
    "dependentSchemas": require_object,
    "$defs": require_object,
    "definitions": require_object,
    "allOf": require_list,
    "anyOf": require_list,
    "oneOf": require_list,
    "prefixItems": require_list,
    "$ref": _uri,
    "$dynamicRef": _uri,
    "$recursiveRef": _uri,
    "$id": _uri,
    "id": _uri,
    "$anchor": _string,
    "$dynamicAnchor": _string,
}
