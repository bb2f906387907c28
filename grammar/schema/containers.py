"""Sets of arrays and of objects, as conjunctions of what the keywords say.

A complement is a tuple of cells whose union it is: De Morgan over the parts of a conjunction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from grammar.schema.key_sets import KeySet, Name, Others
from grammar.schema.nodes import ANY, NEVER, NodeId, NodeTable


@dataclass(frozen=True, slots=True)
class Contains:
    """From index `start` on, at least `low` and at most `high` items are of `node`."""

    start: int
    node: NodeId
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class ArrayCell:
    """Item i is of prefix[i], of `rest` behind the prefix. `is_distinct`: True = no two items are
    equal, False = two are, None = either."""

    prefix: tuple[NodeId, ...] = ()
    rest: NodeId = ANY
    low: int = 0
    high: int | None = None
    contains: tuple[Contains, ...] = ()
    is_distinct: bool | None = None

    def intersect(self, with_: "ArrayCell", nodes: NodeTable) -> "ArrayCell | None":
        """None where they have no array in common for certain."""
        if None not in (self.is_distinct, with_.is_distinct):
            if self.is_distinct != with_.is_distinct:
                return None
        length = max(len(self.prefix), len(with_.prefix))
        joined = ArrayCell(
            prefix=tuple(nodes.every(self.item(i), with_.item(i)) for i in range(length)),
            rest=nodes.every(self.rest, with_.rest),
            low=max(self.low, with_.low),
            high=_least(self.high, with_.high),
            contains=tuple(dict.fromkeys((*self.contains, *with_.contains))),
            is_distinct=with_.is_distinct if self.is_distinct is None else self.is_distinct,
        )
        return joined.settled()

    def item(self, index: int) -> NodeId:
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def settled(self) -> "ArrayCell | None":
        """The length is bounded by items that no value fits; None for no array at all."""
        high = self.high
        if NEVER in self.prefix:
            high = _least(high, self.prefix.index(NEVER))
        elif self.rest == NEVER:
            high = _least(high, len(self.prefix))
        prefix = self.prefix if high is None else self.prefix[:high]
        is_distinct = self.is_distinct
        if high is not None and high <= 1 and is_distinct is not None:
            if not is_distinct:
                return None
            is_distinct = None
        if high is not None and self.low > high:
            return None
        return replace(self, prefix=prefix, high=high, is_distinct=is_distinct)

    def complement(self, nodes: NodeTable) -> "tuple[ArrayCell, ...]":
        parts = [
            ArrayCell(prefix=(*(ANY,) * i, nodes.opposite(item)), low=i + 1)
            for i, item in enumerate(self.prefix)
            if item != ANY
        ]
        if self.rest != ANY:
            start = len(self.prefix)
            parts.append(_with_item(start, nodes.opposite(self.rest)))
        if self.low:
            parts.append(ArrayCell(high=self.low - 1))
        if self.high is not None:
            parts.append(ArrayCell(low=self.high + 1))
        for one in self.contains:
            if one.low:
                parts.append(ArrayCell(contains=(replace(one, low=0, high=one.low - 1),)))
            if one.high is not None:
                parts.append(ArrayCell(contains=(replace(one, low=one.high + 1, high=None),)))
        if self.is_distinct is not None:
            parts.append(ArrayCell(is_distinct=not self.is_distinct))
        return tuple(cell for part in parts if (cell := part.settled()) is not None)


@dataclass(frozen=True)
class ObjectCell:
    """`rules`: each property in the set has a value of the node. `needs`: some property of the set
    is there, with a value of the node. `low` to `high` properties in all."""

    rules: tuple[tuple[KeySet, NodeId], ...] = ()
    needs: tuple[tuple[KeySet, NodeId], ...] = ()
    low: int = 0
    high: int | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.rules, self.needs, self.low, self.high))

    @cached_property
    def _by_name(self) -> dict[str, list[NodeId]]:
        """What is said of single properties: rules, and the values of needs."""
        found: dict[str, list[NodeId]] = {}
        for keys, node in (*self.rules, *self.needs):
            if isinstance(keys, Name):
                found.setdefault(keys.text, []).append(node)
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        """Properties that the cell speaks of."""
        return frozenset(self._by_name)

    @cached_property
    def _broad_rules(self) -> tuple[tuple[KeySet, NodeId], ...]:
        return tuple(rule for rule in self.rules if not isinstance(rule[0], Name))

    @cached_property
    def required_names(self) -> tuple[str, ...]:
        """Properties that have to be there."""
        return tuple(dict.fromkeys(k.text for k, _ in self.needs if isinstance(k, Name)))

    @cached_property
    def parts(self) -> frozenset[object]:
        """Everything that the cell demands: more parts, fewer objects."""
        counts = [("low", number) for number in range(min(self.low, 1), self.low + 1) if number]
        most = () if self.high is None else (("high", self.high),)
        demands = [rule for rule in self.rules if rule[1] != ANY]
        return frozenset((*demands, *((*need, "need") for need in self.needs), *counts, *most))

    @cached_property
    def absent_names(self) -> frozenset[str]:
        """Properties that must not be there."""
        return frozenset(k.text for k, node in self.rules if isinstance(k, Name) and node == NEVER)

    @cached_property
    def _required_set(self) -> frozenset[str]:
        return frozenset(self.required_names)

    def intersect(self, with_: "ObjectCell") -> "ObjectCell | None":
        """None where one demands a property that the other forbids, or the counts contradict each
        other; values are looked at elsewhere."""
        if not (
            self.absent_names.isdisjoint(with_._required_set)
            and with_.absent_names.isdisjoint(self._required_set)
        ):
            return None
        if with_.parts <= self.parts and with_.names <= self.names:
            return self
        joined = ObjectCell(
            rules=tuple(dict.fromkeys((*self.rules, *with_.rules))),
            needs=tuple(dict.fromkeys((*self.needs, *with_.needs))),
            low=max(self.low, with_.low),
            high=_least(self.high, with_.high),
        )
        least = max(joined.low, len(joined.required_names))
        return None if joined.high is not None and joined.high < least else joined

    def complement(self, nodes: NodeTable) -> "tuple[ObjectCell, ...]":
        required = self._required_set
        # Of a required property "absent" and "there with another value" are one: if it is there,
        # it has another value.
        parts = [
            ObjectCell(rules=((Name(name), nodes.opposite(nodes.every(*self._by_name[name]))),))
            for name in self.required_names
        ]
        parts += [
            ObjectCell(needs=((keys, nodes.opposite(node)),))
            for keys, node in self.rules
            if node != ANY and not (isinstance(keys, Name) and keys.text in required)
        ]
        parts += [
            ObjectCell(rules=((keys, nodes.opposite(node)),))
            for keys, node in self.needs
            if not isinstance(keys, Name)
        ]
        if self.low:
            parts.append(ObjectCell(high=self.low - 1))
        if self.high is not None:
            parts.append(ObjectCell(low=self.high + 1))
        return tuple(parts)

    def value_node(self, name: str, nodes: NodeTable) -> NodeId:
        """What a property must be if it is there, by every reading of the patterns."""
        broad = (node for keys, node in self._broad_rules if keys.may_have(name))
        return nodes.every(*self._by_name.get(name, ()), *broad)

    def doubtful_names(self, one: "ObjectCell", other: "ObjectCell") -> tuple[str, ...]:
        """Of a conjunction of two cells, the required properties that may have become impossible:
        those of which both say something."""
        if one._broad_rules or other._broad_rules:
            return self.required_names
        return tuple(n for n in self.required_names if n in one._by_name and n in other._by_name)


ALL_ARRAYS = ArrayCell()
ALL_OBJECTS = ObjectCell()


def closed_object(members: dict[str, NodeId]) -> ObjectCell:
    """Exactly these properties."""
    rules: list[tuple[KeySet, NodeId]] = [(Name(name), node) for name, node in members.items()]
    rules.append((Others(frozenset(members), ()), NEVER))
    return ObjectCell(rules=tuple(rules), needs=tuple((Name(name), ANY) for name in members))


def without_absorbed(cells: Sequence[ObjectCell]) -> tuple[ObjectCell, ...]:
    """A union without the cells that demand all that another demands, and more."""
    kept: list[ObjectCell] = []
    for cell in sorted(cells, key=lambda one: len(one.parts)):
        if not any(one.parts <= cell.parts for one in kept):
            kept.append(cell)
    order = {cell: index for index, cell in enumerate(cells)}
    return tuple(sorted(kept, key=order.__getitem__))


def _with_item(start: int, node: NodeId) -> ArrayCell:
    """Arrays that have an item of the node at `start` or behind."""
    return ArrayCell(low=start + 1, contains=(Contains(start, node, 1, None),))


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
