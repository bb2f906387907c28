"""A client's schema as shapes: what each node allows, worked out when it is asked for.

Owns the table of nodes and the memory of their shapes. `shape_of` is exact but for the gaps that a
shape names.
"""

from collections.abc import Iterator
from typing import Any, assert_never

from grammar.errors import ConstraintTooExpensive, UnsupportedConstraint
from grammar.schema.applicators import APPLICATORS, Part, Site
from grammar.schema.container_keywords import array_cell, object_cell, subschema
from grammar.schema.dialect import Dialect, dialect_of
from grammar.schema.literal_shapes import literal_shape
from grammar.schema.locations import Locations
from grammar.schema.nodes import (
    ANY,
    NEVER,
    Either,
    Every,
    Literal,
    NodeId,
    NodeTable,
    Opposite,
    Place,
)
from grammar.schema.number_cells import NumberCell
from grammar.schema.scalar_keywords import number_cell, text_set, types_of
from grammar.schema.shapes import ANY_SHAPE, NO_SHAPE, Shape, ShapeAlgebra, TypedGap
from grammar.schema.text_sets import TextSet
from grammar.schema.wellformed import check_schemas
from grammar.schema_document import Json, child

MAX_NODES = 200_000
# How deep values are looked into to find out that a schema allows nothing.
MAX_PROOF_DEPTH = 5

Schema = dict[str, Any]


class _StillOpen(Exception):
    """A shape was asked for while it was being worked out."""


class SchemaModel:
    """One document. Raises: UnsupportedConstraint, at whatever is asked of it first."""

    def __init__(self, document: Json) -> None:
        self.nodes = NodeTable()
        self.dialect: Dialect = dialect_of(document)
        self.locations = Locations(document, self.dialect)
        self.algebra = ShapeAlgebra(self.nodes, is_never=self.is_never)
        self._shapes: dict[NodeId, Shape] = {ANY: ANY_SHAPE, NEVER: NO_SHAPE}
        self._open: set[NodeId] = set()
        self._is_known_never: dict[NodeId, bool] = {}
        self._proof_depth = 0
        self._num_cuts = 0
        self.read: dict[str, Schema] = {}
        # Place -> the keyword with which nothing was left of it.
        self.contradictions: dict[str, str] = {}
        check_schemas(document, self.locations, self.dialect)
        self.root = subschema(document, "", self.nodes)

    def shape_of(self, node: NodeId) -> Shape:
        """What the node allows."""
        shape = self._shapes.get(node)
        if shape is not None:
            return shape
        if node in self._open:
            raise _StillOpen
        if len(self.nodes) > MAX_NODES:
            raise ConstraintTooExpensive(f"{MAX_NODES} subschemas")
        self._open.add(node)
        try:
            shape = self._shapes[node] = self._worked_out(node)
        finally:
            self._open.discard(node)
        return shape

    def is_never(self, node: NodeId) -> bool:
        """Whether the node allows nothing, as far as a bounded look into it tells."""
        if node in (ANY, NEVER):
            return node == NEVER
        known = self._is_known_never.get(node)
        if known is not None:
            return known
        if self._proof_depth >= MAX_PROOF_DEPTH:
            self._num_cuts += 1
            return False
        return self._proven_never(node)

    def _proven_never(self, node: NodeId) -> bool:
        """What was found without giving up anywhere is remembered."""
        num_cuts = self._num_cuts
        self._proof_depth += 1
        try:
            is_never = not self.shape_of(node).types()
        except _StillOpen:
            self._num_cuts += 1
            return False
        finally:
            self._proof_depth -= 1
        if is_never or self._num_cuts == num_cuts:
            self._is_known_never[node] = is_never
        return is_never

    def are_exclusive(self, one: NodeId, other: NodeId, *, within: NodeId) -> bool:
        """Whether no value of `within` is of both nodes, as far as that can be proven."""
        nodes = self.nodes
        return self.is_never(nodes.every(one, other)) or (
            within != ANY and self.is_never(nodes.every(within, one, other))
        )

    def _worked_out(self, node: NodeId) -> Shape:
        expression = self.nodes.expression(node)
        match expression:
            case Place(pointer, without):
                return self._schema_shape(pointer, without)
            case Every(nodes):
                shape = ANY_SHAPE
                for part in nodes:
                    shape = self.algebra.intersect(shape, self.shape_of(part))
                return shape
            case Either(nodes):
                return self.algebra.unite(self.shape_of(part) for part in nodes)
            case Opposite(inner):
                return self.algebra.complement(self.shape_of(inner))
            case Literal():
                return literal_shape(self.nodes.literal_value(node), self.nodes)
        assert_never(expression)

    def _schema_shape(self, pointer: str, without: str | None) -> Shape:
        schema = self.locations.schema_at(pointer)
        assert isinstance(schema, dict), "only objects become places"
        self.read[pointer] = schema
        shape = ANY_SHAPE
        for keyword, part in self._parts(schema, pointer, without):
            part_shape = (
                part if isinstance(part, Shape) else self._shape_through(part, pointer, keyword)
            )
            shape = self.algebra.intersect(shape, part_shape)
            if not shape.types():
                self.contradictions.setdefault(pointer, keyword)
        return shape

    def _shape_through(self, node: NodeId, pointer: str, keyword: str) -> Shape:
        """The shape of a keyword's node, which leads back here only through references."""
        try:
            return self.shape_of(node)
        except _StillOpen:
            if self._proof_depth:
                raise
            raise UnsupportedConstraint(
                "the schema refers to itself without a property or an item in between",
                pointer=child(pointer, keyword),
                keyword=keyword,
            ) from None

    def _parts(
        self, schema: Schema, pointer: str, without: str | None
    ) -> Iterator[tuple[str, Part]]:
        """What each keyword says, in the order of the text; the type's own keywords together."""
        has_base = False
        for keyword in self.dialect.keywords_of(schema):
            if keyword == without:
                continue
            if keyword in APPLICATORS:
                yield keyword, APPLICATORS[keyword](self, Site(schema, pointer, keyword))
            elif keyword in BASE_KEYWORDS and not has_base:
                has_base = True
                yield keyword, self._base_shape(schema, pointer)

    def _base_shape(self, schema: Schema, pointer: str) -> Shape:
        """Type, numbers, strings, arrays, objects: keywords that look at one type each."""
        types = types_of(schema)
        numbers: tuple[NumberCell, ...] = ()
        gaps: set[TypedGap] = set()
        cell, number_gaps = number_cell(schema, pointer)
        if cell is not None and not types.isdisjoint({"number", "integer"}):
            if "number" not in types:
                cell = cell.intersect(NumberCell(is_whole=True))
            numbers = () if cell is None else (cell,)
            gaps.update(("number", gap) for gap in number_gaps if numbers)
        array = array_cell(schema, pointer, nodes=self.nodes, dialect=self.dialect)
        members = object_cell(schema, pointer, self.nodes)
        texts, text_gaps = text_set(schema, pointer)
        if "string" in types:
            gaps.update(("string", gap) for gap in text_gaps)
        if array is not None and self.algebra.is_void(array):
            array = None
        if members is not None and self.algebra.is_void(members):
            members = None
        return Shape(
            has_null="null" in types,
            booleans=frozenset({False, True}) if "boolean" in types else frozenset(),
            numbers=numbers,
            texts=texts if "string" in types else TextSet.NONE,
            arrays=(array,) if array is not None and "array" in types else (),
            objects=(members,) if members is not None and "object" in types else (),
            gaps=frozenset(gaps),
        )


BASE_KEYWORDS = frozenset(
    "type minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern "
    "format items prefixItems additionalItems minItems maxItems uniqueItems contains properties "
    "patternProperties additionalProperties required minProperties maxProperties".split()
)
