"""Which nodes of a model are generated, and of which a finite value exists at all.

A grammar must never lead where no value can end: properties, items and alternatives without a
finite value are left out of it, by a least fixed point over everything that the root can reach.
"""

from collections.abc import Collection, Iterator
from typing import Any

from grammar.errors import UnsatisfiableConstraint
from grammar.schema.array_plans import ArrayPlan, array_plan
from grammar.schema.containers import ArrayCell, ObjectCell
from grammar.schema.model import SchemaModel
from grammar.schema.nodes import ANY, NEVER, NodeId
from grammar.schema.plans import ObjectPlan, object_plans
from grammar.schema.shapes import Shape
from grammar.schema_document import child

BOUNDS = (
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    ("minimum", "maximum"),
)


class Reach:
    """Everything below the root of a model, with plans for its arrays and objects.

    Raises: UnsatisfiableConstraint where the root itself has no finite value.
    """

    def __init__(self, model: SchemaModel) -> None:
        self._model = model
        self._object_plans: dict[ObjectCell, tuple[ObjectPlan, ...]] = {}
        self._array_plans: dict[ArrayCell, ArrayPlan] = {}
        self._children: dict[NodeId, tuple[NodeId, ...]] = {}
        self._alive: set[NodeId] = {ANY}
        self._collect(model.root)
        self._settle()
        if model.root not in self._alive:
            raise _without_value(model)

    @property
    def alive(self) -> Collection[NodeId]:
        """All nodes of which a finite value exists."""
        return self._alive

    def is_alive(self, node: NodeId) -> bool:
        """Whether a finite value of a reachable node exists."""
        return node in self._alive

    def shape(self, node: NodeId) -> Shape:
        return self._model.shape_of(node)

    def plans_of(self, cell: ObjectCell) -> tuple[ObjectPlan, ...]:
        """The plans of an object cell, those of which no value exists among them."""
        plans = self._object_plans.get(cell)
        if plans is None:
            plans = self._object_plans[cell] = object_plans(cell, self._model.nodes)
        return plans

    def plan_of(self, cell: ArrayCell) -> ArrayPlan:
        plan = self._array_plans.get(cell)
        if plan is None:
            plan = self._array_plans[cell] = array_plan(cell, self._model)
        return plan

    def can_be(self, plan: ObjectPlan) -> bool:
        """Whether an object of the plan has a finite value."""
        if any(m.is_required and m.node not in self._alive for m in plan.members):
            return False
        if plan.special is not None:
            if not any(region.node in self._alive for region in plan.special):
                return False
        least = sum(m.is_required for m in plan.members) + (plan.special is not None)
        if plan.high is not None and least > plan.high:
            return False
        if any(region.node in self._alive for region in plan.regions):
            return True
        most = sum(m.node in self._alive for m in plan.members) + (plan.special is not None)
        return plan.low <= most

    def can_fill(self, plan: ArrayPlan) -> bool:
        """Whether an array of the plan has a finite value."""
        return plan.has_way_through(self._alive)

    def _collect(self, root: NodeId) -> None:
        stack = [root]
        while stack:
            node = stack.pop()
            if node in self._children or node in (ANY, NEVER):
                continue
            inner = tuple(dict.fromkeys(self._inner_nodes(node)))
            self._children[node] = inner
            stack.extend(inner)

    def _inner_nodes(self, node: NodeId) -> Iterator[NodeId]:
        shape = self._model.shape_of(node)
        for cell in shape.arrays:
            yield from self.plan_of(cell).nodes()
        for members in shape.objects:
            for plan in self.plans_of(members):
                yield from (member.node for member in plan.members)
                yield from (region.node for region in plan.regions)
                yield from (region.node for region in plan.special or ())

    def _settle(self) -> None:
        """Each round proves at least one more node, or it is the last. Children come first, so that
        few rounds are needed."""
        waiting = list(reversed(self._children))
        while True:
            left = [node for node in waiting if not self._has_value(node)]
            if len(left) == len(waiting):
                return
            waiting = left

    def _has_value(self, node: NodeId) -> bool:
        shape = self._model.shape_of(node)
        has_value = (
            not shape.types().isdisjoint({"null", "boolean", "number", "string"})
            or any(self.can_fill(self.plan_of(cell)) for cell in shape.arrays)
            or any(self.can_be(plan) for cell in shape.objects for plan in self.plans_of(cell))
        )
        if has_value:
            self._alive.add(node)
        return has_value


def _without_value(model: SchemaModel) -> UnsatisfiableConstraint:
    """Names the place where nothing was left, the outermost first."""
    pointer = min(model.contradictions, key=len, default=None)
    reason = "no finite value satisfies the schema: it contradicts itself"
    if pointer is None:
        return UnsatisfiableConstraint(f"{reason}, or its recursion has no base case")
    pointer = _cause(model, pointer)
    keyword = _culprit(model.read[pointer], model.contradictions[pointer])
    return UnsatisfiableConstraint(reason, pointer=child(pointer, keyword), keyword=keyword)


def _cause(model: SchemaModel, pointer: str) -> str:
    """Down to the required property that cannot be, as far as there is one."""
    for name in model.read[pointer].get("required", ()):
        inner = child(pointer, "properties", name)
        if inner in model.contradictions:
            return _cause(model, inner)
    return pointer


def _culprit(schema: dict[str, Any], keyword: str) -> str:
    """The keyword to name: of a pair of bounds that contradict each other the upper one."""
    for low, high in BOUNDS:
        if low in schema and high in schema and schema[low] > schema[high]:
            return high
    return keyword
