"""Which properties and items a schema has evaluated, where that does not depend on the value."""

from typing import TYPE_CHECKING, Any
from typing import Literal as Exactly

from grammar.schema.key_sets import EVERY_KEY, Others
from grammar.schema.scalar_keywords import pattern_set
from grammar.schema_document import child

if TYPE_CHECKING:
    from grammar.schema.model import SchemaModel
    from grammar.schema.text_sets import TextSet

Schema = dict[str, Any]

# Under these, what is evaluated depends on which branch holds.
CONDITIONAL = ("anyOf", "oneOf", "if", "dependentSchemas", "not", "$dynamicRef", "$recursiveRef")
MAX_DEPTH = 16


def evaluated_keys(
    model: "SchemaModel", schema: Schema, pointer: str
) -> Others | Exactly["all"] | None:
    """The properties that are left for `unevaluatedProperties`; "all" where none can be left; None
    where it depends on the value."""
    names: dict[str, None] = {}
    patterns: dict[TextSet, None] = {}
    for part, place in _static_parts(model, schema, pointer, depth=0):
        if part is None:
            return None
        is_inner = place != pointer
        if "additionalProperties" in part or (is_inner and "unevaluatedProperties" in part):
            return "all"
        names.update(dict.fromkeys(part.get("properties", ())))
        for pattern in part.get("patternProperties", ()):
            at = child(place, "patternProperties", pattern)
            patterns[pattern_set(pattern, at, "patternProperties")] = None
    if not names and not patterns:
        return EVERY_KEY
    return Others(frozenset(names), tuple(patterns))


def evaluated_items(
    model: "SchemaModel", schema: Schema, pointer: str
) -> int | Exactly["all"] | None:
    """How many first items are evaluated; "all"; None where it depends on the value."""
    num_items = 0
    for part, place in _static_parts(model, schema, pointer, depth=0):
        if part is None or "contains" in part:
            return None
        items = part.get("items")
        is_tuple = isinstance(items, list)
        if (items is not None and not is_tuple) or (is_tuple and "additionalItems" in part):
            return "all"
        if place != pointer and "unevaluatedItems" in part:
            return "all"
        first_items = items if isinstance(items, list) else part.get("prefixItems", ())
        num_items = max(num_items, len(first_items))
    return num_items


def _static_parts(
    model: "SchemaModel", schema: Schema, pointer: str, *, depth: int
) -> list[tuple[Schema | None, str]]:
    """The schema and those that apply in place whatever the value; (None, ..) for one that may."""
    if depth > MAX_DEPTH or any(keyword in schema for keyword in CONDITIONAL):
        return [(None, pointer)]
    parts: list[tuple[Schema | None, str]] = [(schema, pointer)]
    places = [child(pointer, "allOf", index) for index in range(len(schema.get("allOf", ())))]
    if "$ref" in schema:
        places.append(model.locations.resolve(schema["$ref"], pointer))
    for place in places:
        inner = model.locations.schema_at(place)
        if isinstance(inner, dict):
            parts += _static_parts(model, inner, place, depth=depth + 1)
    return parts
