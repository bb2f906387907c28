"""The unevaluated rest: exact where what is evaluated does not depend on the value."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from typing import Literal as Exactly

from grammar.schema.container_keywords import subschema
from grammar.schema.containers import ArrayCell, ObjectCell
from grammar.schema.key_sets import EVERY_KEY, Others
from grammar.schema.nodes import ANY
from grammar.schema.scalar_keywords import pattern_set
from grammar.schema.shapes import ANY_SHAPE, Shape
from grammar.schema_document import child
from grammar.spec import Gap

if TYPE_CHECKING:
    from grammar.schema.model import SchemaModel
    from grammar.schema.text_sets import TextSet

Schema = dict[str, Any]

# Under these, what is evaluated depends on which branch holds; `not` tells nothing to the outside.
CONDITIONAL = ("anyOf", "oneOf", "if", "dependentSchemas")
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
DEPENDS = "what is evaluated depends on the value"


def unevaluated_properties(model: "SchemaModel", schema: Schema, pointer: str) -> Shape:
    """What the keyword of that name says."""
    place = child(pointer, "unevaluatedProperties")
    node = subschema(schema["unevaluatedProperties"], place, model.nodes)
    keys = _evaluated_keys(model, schema, pointer)
    if keys is None:
        return _partly("object", Gap(place, "unevaluatedProperties", DEPENDS))
    rules = () if node == ANY or keys == "all" else ((keys, node),)
    return replace(ANY_SHAPE, objects=(ObjectCell(rules=rules),))


def unevaluated_items(model: "SchemaModel", schema: Schema, pointer: str) -> Shape:
    """What the keyword of that name says."""
    place = child(pointer, "unevaluatedItems")
    node = subschema(schema["unevaluatedItems"], place, model.nodes)
    num_items = _evaluated_items(model, schema, pointer)
    is_old_tuple = isinstance(schema.get("items"), list) and not model.dialect.is_declared
    if num_items is None or is_old_tuple:
        return _partly("array", Gap(place, "unevaluatedItems", DEPENDS))
    if num_items == "all":
        return ANY_SHAPE
    cell = ArrayCell(prefix=(ANY,) * num_items, rest=node).settled()
    return replace(ANY_SHAPE, arrays=() if cell is None else (cell,))


def _partly(type_name: str, gap: Gap) -> Shape:
    return replace(ANY_SHAPE, gaps=frozenset({(type_name, gap)}))


def _evaluated_keys(
    model: "SchemaModel", schema: Schema, pointer: str
) -> Others | Exactly["all"] | None:
    """The properties that are left for `unevaluatedProperties`; "all" where none can be left; None
    where it depends on the value."""
    names: dict[str, None] = {}
    patterns: dict[TextSet, None] = {}
    parts, depends = _parts_in_place(model, schema, pointer)
    for place, part in parts.items():
        is_inner = place != pointer
        if "additionalProperties" in part or (is_inner and "unevaluatedProperties" in part):
            return "all"
        names.update(dict.fromkeys(part.get("properties", ())))
        for pattern in part.get("patternProperties", ()):
            at = child(place, "patternProperties", pattern)
            patterns[pattern_set(pattern, at, "patternProperties")] = None
    if depends:
        return None
    if not names and not patterns:
        return EVERY_KEY
    return Others(frozenset(names), tuple(patterns))


def _evaluated_items(
    model: "SchemaModel", schema: Schema, pointer: str
) -> int | Exactly["all"] | None:
    """How many first items are evaluated; "all"; None where it depends on the value."""
    num_items = 0
    parts, depends = _parts_in_place(model, schema, pointer)
    for place, part in parts.items():
        depends = depends or "contains" in part
        items = part.get("items")
        is_tuple = isinstance(items, list)
        if (items is not None and not is_tuple) or (is_tuple and "additionalItems" in part):
            return "all"
        if place != pointer and "unevaluatedItems" in part:
            return "all"
        if isinstance(items, list):
            num_items = max(num_items, len(items))
        elif model.dialect.knows("prefixItems"):
            num_items = max(num_items, len(part.get("prefixItems", ())))
    return None if depends else num_items


def _parts_in_place(
    model: "SchemaModel", schema: Schema, pointer: str
) -> tuple[dict[str, Schema], bool]:
    """The schema and those that apply to the same value whatever it is, by their places; and
    whether others may apply."""
    parts: dict[str, Schema] = {}
    depends = False
    waiting: list[tuple[str, Any]] = [(pointer, schema)]
    while waiting:
        place, part = waiting.pop()
        if place in parts or not isinstance(part, dict):
            continue
        parts[place] = part
        depends = depends or any(keyword in part for keyword in CONDITIONAL)
        inner = [child(place, "allOf", index) for index in range(len(part.get("allOf", ())))]
        references = [one for one in model.dialect.keywords_of(part) if one in REFERENCES]
        targets = [model.locations.resolve(one, part[one], place) for one in references]
        depends = depends or None in targets
        inner += [target for target in targets if target is not None]
        waiting += [(one, model.locations.schema_at(one)) for one in reversed(inner)]
    return parts, depends
