"""Proof that no value fits two of several schemas, so that `oneOf` over them is `anyOf`."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

from grammar.keywords import TYPES, is_of_type, type_of
from grammar.schema_document import Json

Resolve = Callable[[Json], Json]

MAX_PROOF_DEPTH = 4
MAX_BRANCHES = 64


def are_disjoint(schemas: list[Json], resolve: Resolve) -> bool:
    """True only where it is certain; False says nothing."""
    if len(schemas) > MAX_BRANCHES:
        return False
    followed = [_followed(schema, resolve) for schema in schemas]
    return all(_exclude(a, b, resolve, depth=0) for a, b in combinations(followed, 2))


def _followed(schema: Json, resolve: Resolve) -> Json:
    """The schema behind references. Siblings of a $ref are left out: drafts differ on them."""
    for _ in range(MAX_PROOF_DEPTH):
        if not (isinstance(schema, dict) and "$ref" in schema):
            return schema
        schema = resolve(schema["$ref"])
    return True


def _exclude(one: Json, other: Json, resolve: Resolve, *, depth: int) -> bool:
    if one is False or other is False:
        return True
    if not isinstance(one, dict) or not isinstance(other, dict) or depth > MAX_PROOF_DEPTH:
        return False
    literals, other_literals = _literals(one), _literals(other)
    if literals is not None and other_literals is not None:
        return not any(equal(a, b) for a in literals for b in other_literals)
    shared = _types(one) & _types(other)
    if not shared:
        return True
    if shared != {"object"}:
        return False
    return any(_key_excludes(a, b, resolve, depth=depth) for a, b in ((one, other), (other, one)))


def _key_excludes(
    one: dict[str, Any], other: dict[str, Any], resolve: Resolve, *, depth: int
) -> bool:
    """Whether a key that `one` requires can have no value that `other` allows for it."""
    properties, other_properties = _mapping(one, "properties"), _mapping(other, "properties")
    required = one.get("required")
    if not isinstance(required, list):
        return False
    is_closed = other.get("additionalProperties") is False and "patternProperties" not in other
    for key in filter(lambda name: isinstance(name, str), required):
        if key not in other_properties:
            if is_closed:
                return True
            continue
        if key not in properties:
            continue
        value, other_value = (
            _followed(found[key], resolve) for found in (properties, other_properties)
        )
        if _exclude(value, other_value, resolve, depth=depth + 1):
            return True
    return False


def _mapping(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _literals(schema: dict[str, Any]) -> list[Json] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """The types a value of the schema may have; integer stands apart from other numbers."""
    literals = _literals(schema)
    if literals is not None:
        return frozenset(map(type_of, literals))
    named = schema.get("type")
    names = frozenset(TYPES)
    if isinstance(named, str):
        named = [named]
    if isinstance(named, list):  # a malformed one proves nothing; it is refused elsewhere
        names = frozenset(name for name in TYPES if name in named)
    return names | {"integer"} if "number" in names else names


def equal(one: Json, other: Json) -> bool:
    """Equality of JSON values: 1 is 1.0, true is not 1."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(one == other) and is_of_type(one, frozenset({type_of(other)}))
