"""Arrays in the form in which they are generated: item by item, or as an automaton where items are
counted for `contains`."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from grammar.schema.containers import ArrayCell, Contains
from grammar.schema.json_text import compact, number_text
from grammar.schema.model import SchemaModel
from grammar.schema.nodes import NEVER, NodeId
from grammar.schema.regex import finite_texts
from grammar.schema.shapes import Shape
from grammar.spec import Gap

MAX_STATES = 400
# Which values have occurred is kept in a parameter of 64 bits.
MAX_DISTINCT_VALUES = 64

NOT_DISTINCT = Gap("", "uniqueItems", "the mask cannot compare items that are not of a short list")
HAS_REPEATED = Gap("", "not", "the mask cannot see that two items are equal")
TOO_MANY_COUNTS = Gap("", "contains", "too many counts to keep")

State = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Step:
    """One item of `node` leads to `target`."""

    node: NodeId
    target: State


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """`states` is None where prefix, rest, low and high of the cell say it all. `distinct` are the
    texts of the values of which each may occur once."""

    cell: ArrayCell
    states: dict[State, tuple[Step, ...]] | None = None
    accepting: frozenset[State] = frozenset()
    start: State = (0, ())
    distinct: tuple[str, ...] | None = None
    gaps: tuple[Gap, ...] = field(default=())

    def nodes(self) -> Iterator[NodeId]:
        """All nodes of items."""
        yield from self.cell.prefix
        if self.cell.high is None or self.cell.high > len(self.cell.prefix):
            yield self.cell.rest
        for steps in (self.states or {}).values():
            yield from (step.node for step in steps)

    def has_way_through(self, alive: Collection[NodeId]) -> bool:
        """Whether an array can be finished with items of these nodes."""
        if self.states is None:
            needed = {self.cell.item(i) for i in range(min(self.cell.low, self._num_kinds))}
            enough = self.distinct is None or len(self.distinct) >= self.cell.low
            return enough and all(node in alive for node in needed)
        return self.start in self.useful_states(alive)

    def useful_states(self, alive: Collection[NodeId]) -> frozenset[State]:
        """The states from which an end can be reached."""
        assert self.states is not None
        useful = set(self.accepting)
        while True:
            more = {
                state
                for state, steps in self.states.items()
                if state not in useful
                and any(step.node in alive and step.target in useful for step in steps)
            }
            if not more:
                return frozenset(useful)
            useful |= more

    @property
    def _num_kinds(self) -> int:
        return len(self.cell.prefix) + 1


def array_plan(cell: ArrayCell, model: SchemaModel) -> ArrayPlan:
    """The plan of a cell."""
    if cell.is_distinct:
        texts = _distinct_texts(cell, model)
        if texts is not None:
            return ArrayPlan(cell, distinct=texts)
    gaps: tuple[Gap, ...] = ()
    if cell.is_distinct is not None:
        gaps = (NOT_DISTINCT if cell.is_distinct else HAS_REPEATED,)
    counted = tuple(one for one in cell.contains if one.low or one.high is not None)
    if not counted:
        return ArrayPlan(cell, gaps=gaps)
    states = _states(cell, counted, model)
    if states is None:
        return ArrayPlan(cell, gaps=(*gaps, TOO_MANY_COUNTS))
    accepting = frozenset(
        (index, counts)
        for index, counts in states
        if index >= cell.low and all(c >= one.low for c, one in zip(counts, counted, strict=True))
    )
    start = (0, (0,) * len(counted))
    return ArrayPlan(cell, states, accepting, start, gaps=gaps)


def _states(
    cell: ArrayCell, counted: tuple[Contains, ...], model: SchemaModel
) -> dict[State, tuple[Step, ...]] | None:
    """All states and steps; None where they are too many. Indices count as far as they matter."""
    last = max(len(cell.prefix), cell.low, *(one.start for one in counted), cell.high or 0)
    states: dict[State, tuple[Step, ...]] = {}
    waiting: list[State] = [(0, (0,) * len(counted))]
    while waiting:
        state = waiting.pop()
        if state in states:
            continue
        if len(states) > MAX_STATES:
            return None
        states[state] = tuple(_steps(state, cell, counted, model, last=last))
        waiting += [step.target for step in states[state]]
    return states


def _steps(
    state: State, cell: ArrayCell, counted: tuple[Contains, ...], model: SchemaModel, *, last: int
) -> Iterator[Step]:
    """An item counts for each subset of what it may count for. Where only "at least" is asked for,
    an item of the kind may as well go uncounted, which needs no complement."""
    index, counts = state
    if cell.high is not None and index >= cell.high:
        return
    open_ones = [
        i
        for i, one in enumerate(counted)
        if index >= one.start and not (one.high is None and counts[i] >= one.low)
    ]
    for size in range(len(open_ones) + 1):
        for chosen in combinations(open_ones, size):
            target = list(counts)
            nodes = [cell.item(index)]
            for i in open_ones:
                if i in chosen:
                    target[i] += 1
                    nodes.append(counted[i].node)
                elif counted[i].high is not None:
                    nodes.append(model.nodes.opposite(counted[i].node))
            if any(
                n > one.high for n, one in zip(target, counted, strict=True) if one.high is not None
            ):
                continue
            node = model.nodes.every(*nodes)
            if node != NEVER:
                yield Step(node, (min(index + 1, last), tuple(target)))


def _distinct_texts(cell: ArrayCell, model: SchemaModel) -> tuple[str, ...] | None:
    """The JSON texts of all values an item can have, if they are few and plain."""
    if cell.prefix or cell.contains:
        return None
    shape = model.shape_of(cell.rest)
    texts = _texts(shape)
    return None if texts is None or len(texts) > MAX_DISTINCT_VALUES else texts


def _texts(shape: Shape) -> tuple[str, ...] | None:
    if shape.arrays or shape.objects or shape.gaps:
        return None
    words = finite_texts(shape.texts.narrow, MAX_DISTINCT_VALUES + 1)
    values = [number.only_value for number in shape.numbers]
    if words is None or None in values:
        return None
    return (
        *(["null"] if shape.has_null else []),
        *(compact(one) for one in sorted(shape.booleans)),
        *(number_text(value) for value in dict.fromkeys(values) if value is not None),
        *(compact(word) for word in words),
    )
