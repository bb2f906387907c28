"""What a schema object says of arrays and objects. Subschemas become nodes of their places."""

from typing import Any

from grammar.schema.containers import ArrayCell, Contains, ObjectCell
from grammar.schema.dialect import Dialect
from grammar.schema.key_sets import KeySet, Matching, Name, Others
from grammar.schema.nodes import ANY, NEVER, NodeId, NodeTable
from grammar.schema.scalar_keywords import count_range, pattern_set
from grammar.schema_document import Json, child

Schema = dict[str, Any]


def subschema(schema: Json, pointer: str, nodes: NodeTable) -> NodeId:
    """The node of a schema inside another."""
    if isinstance(schema, bool):
        return ANY if schema else NEVER
    return nodes.place(pointer) if schema else ANY


def array_cell(
    schema: Schema, pointer: str, *, nodes: NodeTable, dialect: Dialect
) -> ArrayCell | None:
    """None where no array fits."""
    prefix, rest = _items(schema, pointer, nodes=nodes, dialect=dialect)
    low, high = count_range(schema, "minItems", "maxItems")
    contains: tuple[Contains, ...] = ()
    if "contains" in schema and dialect.knows("contains"):
        contains = (_contains(schema, pointer, nodes=nodes, dialect=dialect),)
    cell = ArrayCell(prefix, rest, low, high, contains, schema.get("uniqueItems") or None)
    return cell.settled()


def _items(
    schema: Schema, pointer: str, *, nodes: NodeTable, dialect: Dialect
) -> tuple[tuple[NodeId, ...], NodeId]:
    """The nodes of a tuple's items, and of those behind."""
    items = schema.get("items", True)
    place = child(pointer, "items")
    if isinstance(items, list):
        prefix = _tuple(items, place, nodes)
        rest = schema.get("additionalItems", True)
        return prefix, subschema(rest, child(pointer, "additionalItems"), nodes)
    if "prefixItems" not in schema or not dialect.knows("prefixItems"):
        return (), subschema(items, place, nodes)
    place_of_tuple = child(pointer, "prefixItems")
    return _tuple(schema["prefixItems"], place_of_tuple, nodes), subschema(items, place, nodes)


def _tuple(items: list[Json], place: str, nodes: NodeTable) -> tuple[NodeId, ...]:
    return tuple(subschema(item, child(place, i), nodes) for i, item in enumerate(items))


def _contains(schema: Schema, pointer: str, *, nodes: NodeTable, dialect: Dialect) -> Contains:
    node = subschema(schema["contains"], child(pointer, "contains"), nodes)
    if not dialect.knows("minContains"):
        return Contains(0, node, 1, None)
    low, high = count_range(schema, "minContains", "maxContains", least=1)
    return Contains(0, node, low, high)


def object_cell(schema: Schema, pointer: str, nodes: NodeTable) -> ObjectCell | None:
    """None where no object fits."""
    rules: list[tuple[KeySet, NodeId]] = []
    properties = schema.get("properties", {})
    for name, inner in properties.items():
        place = child(pointer, "properties", name)
        rules.append((Name(name), subschema(inner, place, nodes)))
    patterns = []
    for pattern, inner in schema.get("patternProperties", {}).items():
        place = child(pointer, "patternProperties", pattern)
        texts = pattern_set(pattern, place, "patternProperties")
        patterns.append(texts)
        rules.append((Matching(texts), subschema(inner, place, nodes)))
    if "additionalProperties" in schema:
        place = child(pointer, "additionalProperties")
        node = subschema(schema["additionalProperties"], place, nodes)
        if node != ANY:
            rules.append((Others(frozenset(properties), tuple(patterns)), node))
    low, high = count_range(schema, "minProperties", "maxProperties")
    needs = tuple((Name(name), ANY) for name in dict.fromkeys(schema.get("required", ())))
    cell = ObjectCell(tuple(rules), needs, low, high)
    return None if high is not None and max(low, len(needs)) > high else cell
