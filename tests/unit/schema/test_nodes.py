"""The table of expressions: equal ones have one number, and trivial ones vanish."""

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_equal_expressions_have_the_same_number() -> None:
    nodes = NodeTable()
    a, b = nodes.place("/a"), nodes.place("/b")
    assert a == nodes.place("/a") != b
    assert nodes.every(a, b) == nodes.every(a, b) != nodes.either(a, b)
    assert nodes.literal(1, "1") == nodes.literal(1, "1") != nodes.literal(True, "true")
    assert len(nodes) == 2 + 6


def test_the_order_of_parts_is_kept_and_repetitions_are_not() -> None:
    nodes = NodeTable()
    a, b, c = map(nodes.place, ("/a", "/b", "/c"))
    assert nodes.expression(nodes.every(b, a, b)) == Every((b, a))
    assert nodes.expression(nodes.either(nodes.either(c, a), b, a)) == Either((c, a, b))
    assert nodes.expression(nodes.every(nodes.either(c, a), b)) == Every((nodes.either(c, a), b))
    assert nodes.every(a, a) == a


def test_any_and_never_are_neutral_and_absorbing() -> None:
    nodes = NodeTable()
    a = nodes.place("/a")
    assert (nodes.every(), nodes.every(ANY, a), nodes.every(a, NEVER)) == (ANY, a, NEVER)
    assert (nodes.either(), nodes.either(NEVER, a), nodes.either(a, ANY)) == (NEVER, a, ANY)


def test_opposites_undo_and_contradict_each_other() -> None:
    nodes = NodeTable()
    a, b = nodes.place("/a"), nodes.place("/b")
    no = nodes.opposite(a)
    assert nodes.expression(no) == Opposite(a)
    assert (nodes.opposite(no), nodes.opposite(ANY), nodes.opposite(NEVER)) == (a, NEVER, ANY)
    assert (nodes.every(b, no, a), nodes.either(no, b, a)) == (NEVER, ANY)
    assert nodes.every(b, no) != NEVER


def test_a_literal_keeps_its_value() -> None:
    nodes = NodeTable()
    node = nodes.literal([1, None], "[1,null]")
    assert nodes.expression(node) == Literal("[1,null]")
    assert nodes.literal_value(node) == [1, None]


FORMULAS = st.recursive(
    st.sampled_from(["/a", "/b", "/c", True, False]),
    lambda inner: (
        st.tuples(st.sampled_from(["every", "either"]), inner, inner)
        | st.tuples(st.just("opposite"), inner)
    ),
    max_leaves=8,
)


def built(formula: Any, nodes: NodeTable) -> NodeId:
    if isinstance(formula, bool):
        return ANY if formula else NEVER
    if isinstance(formula, str):
        return nodes.place(formula)
    make = getattr(nodes, formula[0])
    return make(*(built(part, nodes) for part in formula[1:]))  # type: ignore[no-any-return]


def value(formula: Any, world: dict[str, bool]) -> bool:
    if isinstance(formula, bool):
        return formula
    if isinstance(formula, str):
        return world[formula]
    parts = [value(part, world) for part in formula[1:]]
    return {"every": all(parts), "either": any(parts), "opposite": not parts[0]}[formula[0]]


def holds(node: NodeId, nodes: NodeTable, world: dict[str, bool]) -> bool:
    if node in (ANY, NEVER):
        return node == ANY
    match nodes.expression(node):
        case Place(pointer):
            return world[pointer]
        case Every(parts):
            return all(holds(part, nodes, world) for part in parts)
        case Either(parts):
            return any(holds(part, nodes, world) for part in parts)
        case Opposite(inner):
            return not holds(inner, nodes, world)
    raise AssertionError(node)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(formula=FORMULAS)
def test_expressions_obey_the_laws_of_logic(formula: Any) -> None:
    nodes = NodeTable()
    node = built(formula, nodes)
    for truths in product([False, True], repeat=3):
        world = dict(zip(("/a", "/b", "/c"), truths, strict=True))
        assert holds(node, nodes, world) == value(formula, world)
