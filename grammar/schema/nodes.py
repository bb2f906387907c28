"""Schemas as interned expressions: equal expressions have the same number.

A node is "any value", "no value", a place in the client's document, a conjunction, a disjunction, a
complement, or one literal. What a node allows is worked out elsewhere (model.py), and only when it
is asked for, so that recursive schemas are finite here.
"""

from dataclasses import dataclass
from typing import NewType

from grammar.schema_document import Json

NodeId = NewType("NodeId", int)

ANY = NodeId(0)
NEVER = NodeId(1)


@dataclass(frozen=True, slots=True)
class Place:
    """The schema at a JSON Pointer of the document, perhaps without one of its keywords."""

    pointer: str
    without: str | None = None


@dataclass(frozen=True, slots=True)
class Every:
    """All of the nodes hold, in the order in which the client wrote them."""

    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Either:
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Opposite:
    node: NodeId


@dataclass(frozen=True, slots=True)
class Literal:
    """One JSON value, kept as its text so that it can be compared and hashed."""

    text: str


Expression = Place | Every | Either | Opposite | Literal


class NodeTable:
    """Owns the numbers. Grows only; one table a document."""

    def __init__(self) -> None:
        self._ids: dict[Expression, NodeId] = {}
        self._expressions: list[Expression | None] = [None, None]
        self._values: dict[NodeId, Json] = {}

    def __len__(self) -> int:
        return len(self._expressions)

    def expression(self, node: NodeId) -> Expression:
        """Of every node but ANY and NEVER."""
        expression = self._expressions[node]
        assert expression is not None, "ANY and NEVER are told apart by their numbers"
        return expression

    def place(self, pointer: str, *, without: str | None = None) -> NodeId:
        return self._intern(Place(pointer, without))

    def literal(self, value: Json, text: str) -> NodeId:
        node = self._intern(Literal(text))
        self._values[node] = value
        return node

    def literal_value(self, node: NodeId) -> Json:
        return self._values[node]

    def every(self, *nodes: NodeId) -> NodeId:
        parts = self._flat(Every, nodes, neutral=ANY, absorbing=NEVER)
        if parts is None or any(self._opposite_of(part) in parts for part in parts):
            return NEVER
        return self._joined(Every, parts, neutral=ANY)

    def either(self, *nodes: NodeId) -> NodeId:
        parts = self._flat(Either, nodes, neutral=NEVER, absorbing=ANY)
        if parts is None or any(self._opposite_of(part) in parts for part in parts):
            return ANY
        return self._joined(Either, parts, neutral=NEVER)

    def opposite(self, node: NodeId) -> NodeId:
        if node in (ANY, NEVER):
            return NEVER if node == ANY else ANY
        expression = self.expression(node)
        return expression.node if isinstance(expression, Opposite) else self._intern(Opposite(node))

    def _opposite_of(self, node: NodeId) -> NodeId | None:
        """The opposite, if it has a number already."""
        expression = self.expression(node)
        if isinstance(expression, Opposite):
            return expression.node
        return self._ids.get(Opposite(node))

    def _flat(
        self,
        kind: type[Every] | type[Either],
        nodes: tuple[NodeId, ...],
        *,
        neutral: NodeId,
        absorbing: NodeId,
    ) -> dict[NodeId, None] | None:
        """Distinct parts in order, nested ones of the same kind opened; None where one absorbs."""
        parts: dict[NodeId, None] = {}
        for node in nodes:
            if node == absorbing:
                return None
            if node == neutral:
                continue
            expression = self.expression(node)
            inner = expression.nodes if isinstance(expression, kind) else (node,)
            parts.update(dict.fromkeys(inner))
        return parts

    def _joined(
        self, kind: type[Every] | type[Either], parts: dict[NodeId, None], *, neutral: NodeId
    ) -> NodeId:
        if not parts:
            return neutral
        if len(parts) == 1:
            return next(iter(parts))
        return self._intern(kind(tuple(parts)))

    def _intern(self, expression: Expression) -> NodeId:
        node = self._ids.get(expression)
        if node is None:
            node = self._ids[expression] = NodeId(len(self._expressions))
            self._expressions.append(expression)
        return node
