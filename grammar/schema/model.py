"""A client's schema as shapes: what each node allows, worked out when it is asked for.

Owns the table of nodes and the memory of their shapes. `shape_of` is exact but for the gaps that a
shape names.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, assert_never

from grammar import keyword_values as values
from grammar.errors import ConstraintTooExpensive, UnsupportedConstraint
from grammar.keyword_values import refused, require_list, require_object
from grammar.schema.container_keywords import array_cell, object_cell, subschema
from grammar.schema.containers import ArrayCell, ObjectCell, closed_object
from grammar.schema.dialect import Dialect, dialect_of
from grammar.schema.key_sets import Matching, Name
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
from grammar.schema.number_cells import NumberCell, single_number
from grammar.schema.scalar_keywords import exact_number, number_cell, text_set, types_of
from grammar.schema.shapes import ANY_SHAPE, NO_SHAPE, Shape, ShapeAlgebra, TypedGap, any_but
from grammar.schema.text_sets import TextSet
from grammar.schema.unevaluated import evaluated_items, evaluated_keys
from grammar.schema_document import Json, child
from grammar.spec import Gap

MAX_NODES = 200_000
# How deep values are looked into to find out that a schema allows nothing.
MAX_PROOF_DEPTH = 5

Schema = dict[str, Any]
Part = Shape | NodeId


class _StillOpen(Exception):
    """A shape was asked for while it was being worked out."""


class SchemaModel:
    """One document. Raises: UnsupportedConstraint, at whatever is asked of it first."""

    def __init__(self, document: Json) -> None:
        self.nodes = NodeTable()
        self.dialect: Dialect = dialect_of(document)
        self.locations = Locations(document, self.dialect)
        self._algebra = ShapeAlgebra(self.nodes, is_never=self.is_never)
        self._shapes: dict[NodeId, Shape] = {ANY: ANY_SHAPE, NEVER: NO_SHAPE}
        self._open: set[NodeId] = set()
        self._is_known_never: dict[NodeId, bool] = {}
        self._proof_depth = 0
        self._num_cuts = 0
        self.read: dict[str, Schema] = {}
        # Place -> the keyword with which nothing was left of it.
        self.contradictions: dict[str, str] = {}
        self.root = subschema(document, "", self.nodes)

    def shape_of(self, node: NodeId) -> Shape:
        """What the node allows."""
        shape = self._shapes.get(node)
        if shape is not None:
            return shape
        if node in self._open:
            if self._proof_depth:
                raise _StillOpen
            raise UnsupportedConstraint(
                "the schema refers to itself without a property or an item in between",
                keyword="$ref",
            )
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

    def are_exclusive(self, one: NodeId, other: NodeId) -> bool:
        """Whether no value is of both nodes, as far as that can be proven."""
        return self.is_never(self.nodes.every(one, other))

    def _worked_out(self, node: NodeId) -> Shape:
        expression = self.nodes.expression(node)
        match expression:
            case Place(pointer):
                return self._schema_shape(pointer)
            case Every(nodes):
                shape = ANY_SHAPE
                for part in nodes:
                    shape = self._algebra.intersect(shape, self.shape_of(part))
                return shape
            case Either(nodes):
                return self._algebra.unite(self.shape_of(part) for part in nodes)
            case Opposite(inner):
                return self._algebra.complement(self.shape_of(inner))
            case Literal():
                return self._literal_shape(self.nodes.literal_value(node))
        assert_never(expression)

    def _schema_shape(self, pointer: str) -> Shape:
        schema = self.locations.schema_at(pointer)
        assert isinstance(schema, dict), "only objects become places"
        self.read[pointer] = schema
        shape = ANY_SHAPE
        for keyword, part in self._parts(schema, pointer):
            part_shape = part if isinstance(part, Shape) else self.shape_of(part)
            shape = self._algebra.intersect(shape, part_shape)
            if not shape.types():
                self.contradictions.setdefault(pointer, keyword)
        return shape

    def _parts(self, schema: Schema, pointer: str) -> Iterator[tuple[str, Part]]:
        """What each keyword says, in the order of the text; the type's own keywords together."""
        if "$ref" in schema:
            target = self.locations.resolve(schema["$ref"], pointer)
            node = self._target(target)
            if self.dialect.ref_hides_siblings:
                yield "$ref", node
                return
        has_base = False
        for keyword in schema:
            if keyword == "$ref":
                yield keyword, node
            elif keyword in APPLICATORS and self.dialect.knows(keyword):
                for part in APPLICATORS[keyword](self, schema, pointer):
                    yield keyword, part
            elif keyword in BASE_KEYWORDS and not has_base:
                has_base = True
                yield keyword, self._base_shape(schema, pointer)

    def _target(self, pointer: str) -> NodeId:
        return subschema(self.locations.schema_at(pointer), pointer, self.nodes)

    def _base_shape(self, schema: Schema, pointer: str) -> Shape:
        """Type, numbers, strings, arrays, objects: keywords that look at one type each."""
        types = types_of(schema, pointer)
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
        if array is not None and self._algebra.is_void(array):
            array = None
        if members is not None and self._algebra.is_void(members):
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

    def _literals(self, schema: Schema, pointer: str, keyword: str) -> Iterator[Part]:
        value = values.CHECKS[keyword](schema[keyword], child(pointer, keyword), keyword)
        literals = value if keyword == "enum" else [value]
        words = tuple(one for one in literals if isinstance(one, str))
        rest = [self._literal_shape(one) for one in literals if not isinstance(one, str)]
        yield self._algebra.unite([Shape(texts=TextSet.words(words)), *rest])

    def _literal_shape(self, value: Json) -> Shape:
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
            items = tuple(self._literal(one) for one in value)
            return Shape(arrays=(ArrayCell(items, NEVER, len(items), len(items)),))
        members = {name: self._literal(one) for name, one in value.items()}
        return Shape(objects=(closed_object(members),))

    def _literal(self, value: Json) -> NodeId:
        return self.nodes.literal(value, json.dumps(value, ensure_ascii=False))

    def _branches(self, schema: Schema, pointer: str, keyword: str) -> tuple[NodeId, ...]:
        place = child(pointer, keyword)
        require_list(schema[keyword], place, keyword)
        return tuple(
            subschema(one, child(place, index), self.nodes)
            for index, one in enumerate(schema[keyword])
        )

    def _all_of(self, schema: Schema, pointer: str) -> Iterator[Part]:
        yield self.nodes.every(*self._branches(schema, pointer, "allOf"))

    def _any_of(self, schema: Schema, pointer: str) -> Iterator[Part]:
        yield self.nodes.either(*self._branches(schema, pointer, "anyOf"))

    def _one_of(self, schema: Schema, pointer: str) -> Iterator[Part]:
        """Each branch without those of the others that it is not known to exclude."""
        branches = self._branches(schema, pointer, "oneOf")
        rivals: list[list[NodeId]] = [[] for _ in branches]
        for (i, one), (j, other) in combinations(enumerate(branches), 2):
            if not self.are_exclusive(one, other):
                rivals[i].append(other)
                rivals[j].append(one)
        yield self.nodes.either(
            *(
                self.nodes.every(branch, *map(self.nodes.opposite, others))
                for branch, others in zip(branches, rivals, strict=True)
            )
        )

    def _not(self, schema: Schema, pointer: str) -> Iterator[Part]:
        node = subschema(schema["not"], child(pointer, "not"), self.nodes)
        yield self.nodes.opposite(node)

    def _if(self, schema: Schema, pointer: str) -> Iterator[Part]:
        condition, yes, no = (
            subschema(schema.get(keyword, True), child(pointer, keyword), self.nodes)
            for keyword in ("if", "then", "else")
        )
        opposite = self.nodes.opposite(condition)
        yield self.nodes.every(
            self.nodes.either(opposite, yes),
            self.nodes.either(condition, no),
        )

    def _enum(self, schema: Schema, pointer: str) -> Iterator[Part]:
        yield from self._literals(schema, pointer, "enum")

    def _const(self, schema: Schema, pointer: str) -> Iterator[Part]:
        yield from self._literals(schema, pointer, "const")

    def _property_names(self, schema: Schema, pointer: str) -> Iterator[Part]:
        place = child(pointer, "propertyNames")
        shape = self.shape_of(subschema(schema["propertyNames"], place, self.nodes))
        excluded = shape.texts.complement()
        cell = ObjectCell(rules=((Matching(excluded), NEVER),))
        gaps = frozenset(("object", gap) for _, gap in shape.gaps_of("string"))
        yield replace(ANY_SHAPE, objects=(cell,), gaps=gaps)

    def _dependencies(self, schema: Schema, pointer: str, keyword: str) -> Iterator[Part]:
        place = child(pointer, keyword)
        require_object(schema[keyword], place, keyword)
        for name, wanted in schema[keyword].items():
            inner = child(place, name)
            absent = replace(ANY_SHAPE, objects=(ObjectCell(rules=((Name(name), NEVER),)),))
            present = Shape(objects=(ObjectCell(needs=((Name(name), ANY),)),))
            if isinstance(wanted, str) and keyword == "dependencies":
                wanted = [wanted]
            if isinstance(wanted, list):
                names = values.CHECKS["required"](wanted, inner, keyword)
                needs = tuple((Name(one), ANY) for one in names)
                condition = replace(ANY_SHAPE, objects=(ObjectCell(needs=needs),))
            elif keyword == "dependentRequired":
                raise refused("'dependentRequired' has arrays of strings", inner, keyword)
            else:
                condition = self.shape_of(subschema(wanted, inner, self.nodes))
            yield self._algebra.unite([absent, self._algebra.intersect(present, condition)])

    def _old_dependencies(self, schema: Schema, pointer: str) -> Iterator[Part]:
        yield from self._dependencies(schema, pointer, "dependencies")

    def _dependent_required(self, schema: Schema, pointer: str) -> Iterator[Part]:
        yield from self._dependencies(schema, pointer, "dependentRequired")

    def _dependent_schemas(self, schema: Schema, pointer: str) -> Iterator[Part]:
        yield from self._dependencies(schema, pointer, "dependentSchemas")

    def _dynamic_ref(self, schema: Schema, pointer: str) -> Iterator[Part]:
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword not in schema or not self.dialect.knows(keyword):
                continue
            target = self.locations.resolve_dynamic(keyword, schema[keyword], pointer)
            if target is None:
                reason = "where it leads depends on who refers here"
                yield any_but(Gap(child(pointer, keyword), keyword, reason))
            else:
                yield self._target(target)

    def _unevaluated(self, schema: Schema, pointer: str) -> Iterator[Part]:
        if "unevaluatedProperties" in schema:
            yield self._unevaluated_properties(schema, pointer)
        if "unevaluatedItems" in schema:
            yield self._unevaluated_items(schema, pointer)

    def _unevaluated_properties(self, schema: Schema, pointer: str) -> Shape:
        keyword = "unevaluatedProperties"
        node = subschema(schema[keyword], child(pointer, keyword), self.nodes)
        keys = evaluated_keys(self, schema, pointer)
        if keys is None:
            return _partly("object", Gap(child(pointer, keyword), keyword, DEPENDS))
        rules = () if node == ANY or keys == "all" else ((keys, node),)
        return replace(ANY_SHAPE, objects=(ObjectCell(rules=rules),))

    def _unevaluated_items(self, schema: Schema, pointer: str) -> Shape:
        keyword = "unevaluatedItems"
        node = subschema(schema[keyword], child(pointer, keyword), self.nodes)
        num_items = evaluated_items(self, schema, pointer)
        if num_items is None:
            return _partly("array", Gap(child(pointer, keyword), keyword, DEPENDS))
        if num_items == "all":
            return ANY_SHAPE
        cell = ArrayCell(prefix=(ANY,) * num_items, rest=node).settled()
        return replace(ANY_SHAPE, arrays=() if cell is None else (cell,))


DEPENDS = "what is evaluated depends on the value"


def _partly(type_name: str, gap: Gap) -> Shape:
    return replace(ANY_SHAPE, gaps=frozenset({(type_name, gap)}))


APPLICATORS = {
    "allOf": SchemaModel._all_of,
    "anyOf": SchemaModel._any_of,
    "oneOf": SchemaModel._one_of,
    "not": SchemaModel._not,
    "if": SchemaModel._if,
    "enum": SchemaModel._enum,
    "const": SchemaModel._const,
    "propertyNames": SchemaModel._property_names,
    "dependencies": SchemaModel._old_dependencies,
    "dependentRequired": SchemaModel._dependent_required,
    "dependentSchemas": SchemaModel._dependent_schemas,
    "$dynamicRef": SchemaModel._dynamic_ref,
    "$recursiveRef": SchemaModel._dynamic_ref,
    "unevaluatedProperties": SchemaModel._unevaluated,
    "unevaluatedItems": SchemaModel._unevaluated,
}
BASE_KEYWORDS = frozenset(
    "type minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern "
    "format items prefixItems additionalItems minItems maxItems uniqueItems contains properties "
    "patternProperties additionalProperties required minProperties maxProperties".split()
)
