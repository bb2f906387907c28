"""Cells in the form in which they are generated: which keys in which order, what each value is.

An object's keys are those with a name of their own, in order, then any others by regions: sets of
keys that do not overlap, each with one node for its values. A plan allows what its cell allows,
except that it says in `gaps` where it allows more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from grammar.schema.containers import ObjectCell
from grammar.schema.key_sets import KeySet, Matching, Name, Others
from grammar.schema.nodes import ANY, NEVER, NodeId, NodeTable
from grammar.schema.text_sets import TextSet
from grammar.spec import Gap

# Each pattern doubles the regions.
MAX_PATTERNS = 6
MAX_PLANS = 64


@dataclass(frozen=True, slots=True)
class Member:
    """A property with a name of its own."""

    name: str
    node: NodeId
    is_required: bool


@dataclass(frozen=True, slots=True)
class Region:
    """The keys in `texts` have values of `node`."""

    texts: TextSet
    node: NodeId


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """`special`: one more property of these regions has to be there, behind all others."""

    members: tuple[Member, ...]
    regions: tuple[Region, ...]
    special: tuple[Region, ...] | None
    low: int
    high: int | None
    gaps: tuple[Gap, ...] = ()


def object_plans(cell: ObjectCell, nodes: NodeTable) -> tuple[ObjectPlan, ...]:
    """Plans whose union is the cell."""
    gaps: list[Gap] = []
    names = _names(cell)
    plans: list[ObjectPlan] = []
    for variant, open_need in _settled_needs(cell, names, gaps):
        members = tuple(
            Member(name, variant.value_node(name, nodes), is_required)
            for name, is_required in _with_required(names, variant)
        )
        if any(member.is_required and member.node == NEVER for member in members):
            continue
        plans.append(_plan(variant, members, open_need, nodes=nodes, gaps=gaps))
    return tuple(plans)


def _plan(
    cell: ObjectCell,
    members: tuple[Member, ...],
    open_need: tuple[KeySet, NodeId] | None,
    *,
    nodes: NodeTable,
    gaps: list[Gap],
) -> ObjectPlan:
    own_gaps = list(gaps)
    regions = _regions(cell, members, nodes, own_gaps)
    special = None
    if open_need is not None:
        keys, node = open_need
        special = tuple(
            Region(texts, value)
            for region in regions
            if not (texts := region.texts.intersect(_texts(keys))).is_surely_empty
            and (value := nodes.every(region.node, node)) != NEVER
        )
    low = cell.low
    if regions and low - sum(member.is_required for member in members) >= 2:
        own_gaps.append(REPEATED_KEYS)
    return ObjectPlan(members, regions, special, low, cell.high, tuple(dict.fromkeys(own_gaps)))


REPEATED_KEYS = Gap("", "minProperties", "the keys of further properties may be repeated")
MANY_NEEDS = Gap("", "not", "more than one unnamed property has to be there")
MANY_PATTERNS = Gap("", "patternProperties", f"more than {MAX_PATTERNS} patterns overlap")


def _names(cell: ObjectCell) -> tuple[str, ...]:
    """Keys that some part speaks of by name: properties first, then what is only required."""
    names: dict[str, None] = {}
    for keys, _ in (*cell.rules, *cell.needs):
        if isinstance(keys, Name):
            names[keys.text] = None
    for keys, _ in (*cell.rules, *cell.needs):
        if isinstance(keys, Others):
            names.update(dict.fromkeys(sorted(keys.names - names.keys())))
    return tuple(names)


def _with_required(names: tuple[str, ...], cell: ObjectCell) -> Iterator[tuple[str, bool]]:
    required = set(cell.required_names)
    for name in names:
        yield name, name in required


def _settled_needs(
    cell: ObjectCell, names: tuple[str, ...], gaps: list[Gap]
) -> Iterator[tuple[ObjectCell, tuple[KeySet, NodeId] | None]]:
    """Each way to satisfy the needs that speak of many keys: by a named property, or by another.

    Only one of them can be left to an unnamed property: of two, the second could repeat the key of
    the first, and a parser keeps the last.
    """
    named = tuple(need for need in cell.needs if isinstance(need[0], Name))
    ways: list[tuple[tuple[tuple[KeySet, NodeId], ...], tuple[KeySet, NodeId] | None]] = [
        (named, None)
    ]
    for keys, node in (need for need in cell.needs if not isinstance(need[0], Name)):
        further: list[tuple[tuple[tuple[KeySet, NodeId], ...], tuple[KeySet, NodeId] | None]] = []
        for needs, open_need in ways:
            further += [
                ((*needs, (Name(name), node)), open_need) for name in names if keys.surely_has(name)
            ]
            if open_need is None:
                further.append((needs, (keys, node)))
            elif MANY_NEEDS not in gaps:
                gaps.append(MANY_NEEDS)
        ways = further
        if len(ways) > MAX_PLANS:
            gaps.append(MANY_NEEDS)
            ways = [(named, None)]
            break
    if MANY_NEEDS in gaps:
        ways = [(named, None)]
    for needs, open_need in ways:
        yield replace(cell, needs=needs), open_need


def _regions(
    cell: ObjectCell, members: tuple[Member, ...], nodes: NodeTable, gaps: list[Gap]
) -> tuple[Region, ...]:
    """The keys without a name of their own, split by which patterns they match."""
    named = TextSet.words(tuple(member.name for member in members)).complement()
    rules = [(keys, node) for keys, node in cell.rules if not isinstance(keys, Name)]
    patterns = _patterns(rules)
    if len(patterns) > MAX_PATTERNS:
        gaps.append(MANY_PATTERNS)
        return (Region(named, ANY),)
    found: dict[NodeId, TextSet] = {}
    for chosen in _subsets(patterns):
        node = nodes.every(*(node for keys, node in rules if _covers(keys, chosen)))
        if node == NEVER:
            continue
        texts = named
        for pattern in patterns:
            texts = texts.intersect(pattern if pattern in chosen else pattern.complement())
        if not texts.is_surely_empty:
            found[node] = found[node].unite(texts) if node in found else texts
    return tuple(Region(texts, node) for node, texts in found.items())


def _patterns(rules: Sequence[tuple[KeySet, NodeId]]) -> tuple[TextSet, ...]:
    found: dict[TextSet, None] = {}
    for keys, _ in rules:
        if isinstance(keys, Matching):
            found[keys.texts] = None
        elif isinstance(keys, Others):
            found.update(dict.fromkeys(keys.patterns))
    return tuple(found)


def _subsets(patterns: tuple[TextSet, ...]) -> Iterator[tuple[TextSet, ...]]:
    for size in range(len(patterns) + 1):
        yield from combinations(patterns, size)


def _covers(keys: KeySet, chosen: tuple[TextSet, ...]) -> bool:
    """Whether the keys that match exactly the chosen patterns, and have no name, are in the set."""
    if isinstance(keys, Matching):
        return keys.texts in chosen
    return isinstance(keys, Others) and not any(pattern in chosen for pattern in keys.patterns)


def _texts(keys: KeySet) -> TextSet:
    if isinstance(keys, Name):
        return TextSet.words((keys.text,))
    if isinstance(keys, Matching):
        return keys.texts
    texts = TextSet.words(tuple(sorted(keys.names))).complement()
    for pattern in keys.patterns:
        texts = texts.intersect(pattern.complement())
    return texts
