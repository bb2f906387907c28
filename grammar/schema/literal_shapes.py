"""The shape of one JSON value; values inside arrays and objects become nodes of their own."""

import json

from grammar.schema.containers import ArrayCell, closed_object
from grammar.schema.json_text import exact_number
from grammar.schema.nodes import NEVER, NodeId, NodeTable
from grammar.schema.number_cells import single_number
from grammar.schema.shapes import Shape
from grammar.schema.text_sets import TextSet
from grammar.schema_document import Json


def literal_shape(value: Json, nodes: NodeTable) -> Shape:
    """Exactly this value."""
    if value is None:
        return Shape(has_null=True)
    if isinstance(value, bool):
        return Shape(booleans=frozenset({value}))
    if isinstance(value, int | float):
        return Shape(numbers=(single_number(exact_number(value)),))
    if isinstance(value, str):
        return Shape(texts=TextSet.words((value,)))
    if isinstance(value, list):
        items = tuple(_literal(one, nodes) for one in value)
        return Shape(arrays=(ArrayCell(items, NEVER, len(items), len(items)),))
    members = {name: _literal(one, nodes) for name, one in value.items()}
    return Shape(objects=(closed_object(members),))


def _literal(value: Json, nodes: NodeTable) -> NodeId:
    return nodes.literal(value, json.dumps(value, ensure_ascii=False))
