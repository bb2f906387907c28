"""What a node allows, one level deep: for each JSON type a union of cells. Values inside arrays and
objects are node numbers, so that a shape of a recursive schema is finite.

Where a keyword cannot be kept exactly, the shape allows more and says so in `gaps`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from grammar.schema.containers import (
    ALL_ARRAYS,
    ALL_OBJECTS,
    ArrayCell,
    ObjectCell,
    without_absorbed,
)
from grammar.schema.nodes import NodeId, NodeTable
from grammar.schema.number_cells import ALL_NUMBERS, NumberCell
from grammar.schema.text_sets import TextSet
from grammar.spec import Gap

# More alternatives of one type than this are not multiplied out.
MAX_CELLS = 256

Cell = TypeVar("Cell")
TypedGap = tuple[str, Gap]


@dataclass(frozen=True, slots=True)
class Shape:
    """`gaps` are (type, gap): values of that type may be allowed that the schema does not allow."""

    has_null: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: tuple[NumberCell, ...] = ()
    texts: TextSet = TextSet.NONE
    arrays: tuple[ArrayCell, ...] = ()
    objects: tuple[ObjectCell, ...] = ()
    gaps: frozenset[TypedGap] = frozenset()

    def types(self) -> frozenset[str]:
        """The JSON types of which some value may be allowed."""
        found = {
            "null": self.has_null,
            "boolean": bool(self.booleans),
            "number": bool(self.numbers),
            "string": not self.texts.is_surely_empty,
            "array": bool(self.arrays),
            "object": bool(self.objects),
        }
        return frozenset(name for name, is_there in found.items() if is_there)

    def gaps_of(self, name: str) -> frozenset[TypedGap]:
        return frozenset(one for one in self.gaps if one[0] == name) if self.gaps else frozenset()


NO_SHAPE = Shape()
ANY_SHAPE = Shape(
    has_null=True,
    booleans=frozenset({False, True}),
    numbers=(ALL_NUMBERS,),
    texts=TextSet.ALL,
    arrays=(ALL_ARRAYS,),
    objects=(ALL_OBJECTS,),
)
TYPE_NAMES = ("null", "boolean", "number", "string", "array", "object")


def any_but(gap: Gap) -> Shape:
    """Every value, with a note that the keyword excludes some."""
    return replace(ANY_SHAPE, gaps=frozenset((name, gap) for name in TYPE_NAMES))


class ShapeAlgebra:
    """Conjunction, disjunction, complement. `is_never` tells nodes that allow nothing; it may say
    False where it cannot tell."""

    def __init__(self, nodes: NodeTable, *, is_never: Callable[[NodeId], bool]) -> None:
        self._nodes = nodes
        self._is_never = is_never

    def is_void(self, cell: ArrayCell | ObjectCell) -> bool:
        """Whether something that has to be there cannot be."""
        if isinstance(cell, ArrayCell):
            return self._lacks_items(cell)
        return self._lacks(cell, cell.required_names)

    def _lacks(self, cell: ObjectCell, names: tuple[str, ...]) -> bool:
        return any(self._is_never(cell.value_node(name, self._nodes)) for name in names)

    def _lacks_items(self, cell: ArrayCell) -> bool:
        items = {cell.item(index) for index in range(min(cell.low, len(cell.prefix) + 1))}
        return any(self._is_never(item) for item in items)

    def intersect(self, one: Shape, other: Shape) -> Shape:
        if one is ANY_SHAPE or other is ANY_SHAPE:
            return other if one is ANY_SHAPE else one
        gaps = set(one.gaps | other.gaps)
        shape = Shape(
            has_null=one.has_null and other.has_null,
            booleans=one.booleans & other.booleans,
            numbers=_common_numbers(one.numbers, other.numbers, gaps),
            texts=one.texts.intersect(other.texts),
            arrays=self._common_arrays(one.arrays, other.arrays, gaps),
            objects=self._common_objects(one.objects, other.objects, gaps),
        )
        return _with_gaps(shape, gaps)

    def unite(self, shapes: Iterable[Shape]) -> Shape:
        united = NO_SHAPE
        for shape in shapes:
            united = Shape(
                has_null=united.has_null or shape.has_null,
                booleans=united.booleans | shape.booleans,
                numbers=_distinct(united.numbers, shape.numbers, full=ALL_NUMBERS),
                texts=united.texts.unite(shape.texts),
                arrays=_distinct(united.arrays, shape.arrays, full=ALL_ARRAYS),
                objects=_distinct(united.objects, shape.objects, full=ALL_OBJECTS),
                gaps=united.gaps | shape.gaps,
            )
        return _with_gaps(united, set(united.gaps))

    def complement(self, shape: Shape) -> Shape:
        """Exact but for the types with gaps: of those every value is let through."""
        gaps = set(shape.gaps)
        inexact = {name for name, _ in gaps}
        texts = TextSet.ALL if "string" in inexact else shape.texts.complement()
        complement = Shape(
            has_null=not shape.has_null or "null" in inexact,
            booleans=frozenset({False, True} - (set() if "boolean" in inexact else shape.booleans)),
            numbers=(ALL_NUMBERS,) if "number" in inexact else _other_numbers(shape.numbers, gaps),
            texts=texts,
            arrays=(ALL_ARRAYS,) if "array" in inexact else self._other_arrays(shape.arrays, gaps),
            objects=(ALL_OBJECTS,)
            if "object" in inexact
            else self._other_objects(shape.objects, gaps),
        )
        return _with_gaps(complement, gaps)

    def _common_arrays(
        self, one: tuple[ArrayCell, ...], other: tuple[ArrayCell, ...], gaps: set[TypedGap]
    ) -> tuple[ArrayCell, ...]:
        def join(a: ArrayCell, b: ArrayCell) -> ArrayCell | None:
            cell = a.intersect(b, self._nodes)
            return None if cell is None or self._lacks_items(cell) else cell

        return _product(one, other, join, full=ALL_ARRAYS, gaps=gaps, type_name="array")

    def _common_objects(
        self, one: tuple[ObjectCell, ...], other: tuple[ObjectCell, ...], gaps: set[TypedGap]
    ) -> tuple[ObjectCell, ...]:
        def join(a: ObjectCell, b: ObjectCell) -> ObjectCell | None:
            cell = a.intersect(b)
            if cell is None or self._lacks(cell, cell.doubtful_names(a, b)):
                return None
            return cell

        cells = _product(one, other, join, full=ALL_OBJECTS, gaps=gaps, type_name="object")
        return without_absorbed(cells) if len(cells) > 1 else cells

    def _other_arrays(
        self, cells: tuple[ArrayCell, ...], gaps: set[TypedGap]
    ) -> tuple[ArrayCell, ...]:
        rest: tuple[ArrayCell, ...] = (ALL_ARRAYS,)
        for cell in cells:
            rest = self._common_arrays(rest, cell.complement(self._nodes), gaps)
        return rest

    def _other_objects(
        self, cells: tuple[ObjectCell, ...], gaps: set[TypedGap]
    ) -> tuple[ObjectCell, ...]:
        rest: tuple[ObjectCell, ...] = (ALL_OBJECTS,)
        for cell in cells:
            rest = self._common_objects(rest, cell.complement(self._nodes), gaps)
        return rest


def _product(
    one: tuple[Cell, ...],
    other: tuple[Cell, ...],
    join: Callable[[Cell, Cell], Cell | None],
    *,
    full: Cell,
    gaps: set[TypedGap],
    type_name: str,
) -> tuple[Cell, ...]:
    """All pairs, or the shorter side with a gap where there would be too many."""
    if one == (full,) or other == (full,):
        return other if one == (full,) else one
    if len(one) * len(other) > MAX_CELLS * 16:
        gaps.add((type_name, TOO_MANY))
        return min(one, other, key=len)
    joined = [cell for a in one for b in other if (cell := join(a, b)) is not None]
    cells = tuple(dict.fromkeys(joined))
    if len(cells) > MAX_CELLS and len(cells) > max(len(one), len(other)):
        gaps.add((type_name, TOO_MANY))
        return min(one, other, key=len)
    return cells


TOO_MANY = Gap("", "allOf", f"more than {MAX_CELLS} combinations of alternatives")


def _common_numbers(
    one: tuple[NumberCell, ...], other: tuple[NumberCell, ...], gaps: set[TypedGap]
) -> tuple[NumberCell, ...]:
    for cells, others in ((one, other), (other, one)):
        values = [cell.only_value for cell in cells]
        if cells and None not in values:  # an enumeration is filtered, not multiplied out
            return tuple(
                cell
                for cell, value in zip(cells, values, strict=True)
                if value is not None and any(o.has(value) for o in others)
            )
    return _product(
        one,
        other,
        lambda a, b: a.intersect(b),
        full=ALL_NUMBERS,
        gaps=gaps,
        type_name="number",
    )


def _other_numbers(cells: tuple[NumberCell, ...], gaps: set[TypedGap]) -> tuple[NumberCell, ...]:
    rest: tuple[NumberCell, ...] = (ALL_NUMBERS,)
    for cell in cells:
        rest = _common_numbers(rest, cell.complement(), gaps)
    return rest


def _distinct(one: tuple[Cell, ...], other: tuple[Cell, ...], *, full: Cell) -> tuple[Cell, ...]:
    if not one or not other:
        return one or other
    if full in one or full in other:
        return (full,)
    return tuple(dict.fromkeys((*one, *other)))


def _with_gaps(shape: Shape, gaps: set[TypedGap]) -> Shape:
    """A gap of a type of which no value is left is none."""
    if not gaps:
        return shape
    types = shape.types()
    return replace(shape, gaps=frozenset(one for one in gaps if one[0] in types))
