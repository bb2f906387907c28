"""Refuses recursion that never ends: a schema of which no finite value exists."""

from typing import Any

from grammar.errors import UnsupportedConstraint
from grammar.schema_document import Json

REFERENCE_PREFIX = "#/$defs/"


def require_base_case(root: dict[str, Any]) -> None:
    """`root` is a rebuilt schema (grammar.xgrammar_coverage).

    Raises: UnsupportedConstraint where the root or a referenced schema has no finite value.
    """
    definitions: dict[str, Json] = {"#": root}
    for name, schema in root.get("$defs", {}).items():
        definitions[REFERENCE_PREFIX + name] = schema
    finite: set[str] = set()
    while True:  # the least fixed point: each round proves at least one more, or it is the last
        proven = {
            name
            for name, schema in definitions.items()
            if name not in finite and _has_finite_value(schema, finite)
        }
        if not proven:
            break
        finite |= proven
    if len(finite) < len(definitions):
        raise UnsupportedConstraint(
            "the schema has no finite value: its recursion has no base case or it is contradictory",
            keyword="$ref" if len(definitions) > 1 else None,
        )


def _has_finite_value(schema: Json, finite: set[str]) -> bool:
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and schema["$ref"] not in finite:
        return False
    if not all(_has_finite_value(branch, finite) for branch in schema.get("allOf", ())):
        return False
    if not any(_has_finite_value(branch, finite) for branch in schema.get("anyOf", (True,))):
        return False
    if "enum" in schema or "const" in schema:
        return True
    return any(_type_has_value(name, schema, finite) for name in _types(schema))


def _types(schema: dict[str, Any]) -> list[str]:
    named = schema.get("type", "null")
    return [named] if isinstance(named, str) else named


def _type_has_value(name: str, schema: dict[str, Any], finite: set[str]) -> bool:
    if name == "object":
        required = schema.get("required", ())  # xgrammar_rules: all have an entry
        return all(_has_finite_value(schema["properties"][key], finite) for key in required)
    if name == "array":
        first = schema.get("prefixItems", [])
        needed = [*first, *[schema.get("items", True)] * max(0, _min_items(schema) - len(first))]
        return all(_has_finite_value(item, finite) for item in needed[: _min_items(schema)])
    return True


def _min_items(schema: dict[str, Any]) -> int:
    count = schema.get("minItems", 0)
    return min(int(count), 1 + len(schema.get("prefixItems", ())))
