"""Sets of arrays and of objects: intersection and complement against membership, where a value is
an integer and a node says which integers it takes."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar.schema.containers import (
    ALL_ARRAYS,
    ALL_OBJECTS,
    ArrayCell,
    Contains,
    ObjectCell,
    closed_object,
    without_absorbed,
)
from grammar.schema.key_sets import KeySet, Matching, Name, Others
from grammar.schema.nodes import ANY, NEVER, Every, NodeId, NodeTable, Opposite, Place
from grammar.schema.text_sets import TextSet

NODES = NodeTable()
ZERO, EVEN = NODES.place("0"), NODES.place("even")
A_NODE = st.sampled_from([ANY, NEVER, ZERO, EVEN, NODES.opposite(ZERO)])
COUNT = st.none() | st.integers(0, 3)
SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)
LISTS = [list(items) for length in range(4) for items in product([0, 1, 2], repeat=length)]
MAPS = [
    {name: value for name, value in zip("abc", values, strict=True) if value is not None}
    for values in product([None, 0, 1], repeat=3)
]


def takes(node: NodeId, value: int) -> bool:
    if node in (ANY, NEVER):
        return node == ANY
    match NODES.expression(node):
        case Place(pointer):
            return value == 0 if pointer == "0" else value % 2 == 0
        case Every(parts):
            return all(takes(part, value) for part in parts)
        case Opposite(inner):
            return not takes(inner, value)
    raise AssertionError(node)


def has_list(cell: ArrayCell | None, items: list[int]) -> bool:
    if cell is None or not cell.low <= len(items) <= (9 if cell.high is None else cell.high):
        return False
    for one in cell.contains:
        found = sum(takes(one.node, item) for item in items[one.start :])
        if not one.low <= found <= (9 if one.high is None else one.high):
            return False
    if cell.is_distinct is not None and (len(set(items)) == len(items)) != cell.is_distinct:
        return False
    return all(takes(cell.item(index), item) for index, item in enumerate(items))


def has_map(cell: ObjectCell | None, members: dict[str, int]) -> bool:
    if cell is None or not cell.low <= len(members) <= (9 if cell.high is None else cell.high):
        return False
    rules = (takes(n, v) for keys, n in cell.rules for k, v in members.items() if keys.may_have(k))
    needs = (
        any(takes(n, v) for k, v in members.items() if keys.may_have(k)) for keys, n in cell.needs
    )
    return all(rules) and all(needs)


ARRAYS = st.builds(
    ArrayCell,
    prefix=st.lists(A_NODE, max_size=2).map(tuple),
    rest=A_NODE,
    low=st.integers(0, 2),
    high=COUNT,
    contains=st.lists(
        st.builds(Contains, st.integers(0, 1), A_NODE, st.integers(0, 2), COUNT), max_size=1
    ).map(tuple),
    is_distinct=st.sampled_from([None, True, False]),
)
KEYS: st.SearchStrategy[KeySet] = st.sampled_from(
    [Name("a"), Name("b"), Matching(TextSet.words(("a", "c"))), Others(frozenset({"a"}), ())]
)
PAIRS = st.lists(st.tuples(KEYS, A_NODE), max_size=2).map(tuple)
OBJECTS = st.builds(ObjectCell, PAIRS, PAIRS, st.integers(0, 2), COUNT)


@SETTINGS
@given(cell=ARRAYS)
def test_a_settled_array_cell_has_the_same_arrays(cell: ArrayCell) -> None:
    settled = cell.settled()
    assert [has_list(settled, items) for items in LISTS] == [has_list(cell, i) for i in LISTS]


@SETTINGS
@given(one=ARRAYS, other=ARRAYS)
def test_arrays_of_an_intersection_are_in_both(one: ArrayCell, other: ArrayCell) -> None:
    joined = one.intersect(other, NODES)
    for items in LISTS:
        assert has_list(joined, items) == (has_list(one, items) and has_list(other, items))


@SETTINGS
@given(cell=ARRAYS)
def test_every_array_is_in_a_cell_or_its_complement(cell: ArrayCell) -> None:
    parts = cell.complement(NODES)
    for items in LISTS:
        assert any(has_list(part, items) for part in parts) != has_list(cell, items)


@SETTINGS
@given(one=OBJECTS, other=OBJECTS)
def test_objects_of_an_intersection_are_in_both(one: ObjectCell, other: ObjectCell) -> None:
    joined = one.intersect(other)
    for members in MAPS:
        assert has_map(joined, members) == (has_map(one, members) and has_map(other, members))


@SETTINGS
@given(cell=OBJECTS)
def test_every_object_is_in_a_cell_or_its_complement(cell: ObjectCell) -> None:
    parts = cell.complement(NODES)
    for members in MAPS:
        assert any(has_map(part, members) for part in parts) != has_map(cell, members)


@SETTINGS
@given(cells=st.lists(OBJECTS, max_size=4))
def test_absorbed_cells_add_nothing(cells: list[ObjectCell]) -> None:
    kept = without_absorbed(list(dict.fromkeys(cells)))
    for members in MAPS:
        assert any(has_map(c, members) for c in kept) == any(has_map(c, members) for c in cells)


def test_a_cell_that_demands_more_is_absorbed() -> None:
    wide = ObjectCell(needs=((Name("a"), ANY),))
    narrow = ObjectCell(needs=((Name("a"), ANY),), low=2)
    other = ObjectCell(needs=((Name("b"), ANY),))
    assert without_absorbed([narrow, other, wide]) == (other, wide)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (ArrayCell(rest=NEVER), ArrayCell(rest=NEVER, high=0)),
        (ArrayCell((ANY, NEVER, ANY)), ArrayCell((ANY,), high=1)),
        (ArrayCell(low=2, high=1), None),
        (ArrayCell(high=1, is_distinct=True), ArrayCell(high=1)),
        (ArrayCell(high=1, is_distinct=False), None),
    ],
)
def test_items_that_cannot_be_bound_the_length(cell: ArrayCell, expected: ArrayCell | None) -> None:
    assert cell.settled() == expected


def test_the_value_of_a_name_obeys_every_rule_that_may_cover_it() -> None:
    cell = ObjectCell(
        rules=((Name("a"), ZERO), (Others(frozenset({"b"}), ()), EVEN)),
        needs=((Name("b"), ZERO),),
    )
    assert cell.value_node("a", NODES) == NODES.every(ZERO, EVEN)
    assert cell.value_node("b", NODES) == ZERO
    assert cell.value_node("c", NODES) == EVEN
    assert cell.required_names == ("b",)


def test_only_names_of_which_both_say_something_become_doubtful() -> None:
    one = ObjectCell(rules=((Name("a"), ZERO),), needs=((Name("a"), ANY), (Name("b"), ANY)))
    other = ObjectCell(rules=((Name("a"), EVEN),))
    joined = one.intersect(other)
    assert joined is not None
    assert joined.doubtful_names(one, other) == ("a",)
    broad = ObjectCell(rules=((Others(frozenset(), ()), EVEN),))
    assert joined.doubtful_names(one, broad) == ("a", "b")


def test_a_closed_object_has_exactly_its_members() -> None:
    cell = closed_object({"a": ZERO, "b": ANY})
    assert [m for m in MAPS if has_map(cell, m)] == [{"a": 0, "b": 0}, {"a": 0, "b": 1}]


def test_more_required_names_than_properties_allowed_is_no_object() -> None:
    one = ObjectCell(needs=((Name("a"), ANY), (Name("b"), ANY)))
    assert one.intersect(ObjectCell(high=1)) is None
    assert one.intersect(ObjectCell(high=2)) is not None


def test_everything_has_no_complement() -> None:
    assert (ALL_ARRAYS.complement(NODES), ALL_OBJECTS.complement(NODES)) == ((), ())
