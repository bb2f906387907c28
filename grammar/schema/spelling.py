"""How a value is written for the grammar: compact, numbers plain, keys in the grammar's order.

Also whether a value belongs to a schema at all, by the same plans that the grammar is made of but
without any engine: what a mask allows can be held against it.
"""

from grammar.schema.containers import ArrayCell
from grammar.schema.json_text import compact, exact_number, number_text
from grammar.schema.model import SchemaModel
from grammar.schema.nodes import ANY, NodeId
from grammar.schema.plans import ObjectPlan
from grammar.schema.reach import Reach
from grammar.schema_document import Json

# So many orders of keys are tried for a value that no plan has a place for.
MAX_ORDERS = 6


class Speller:
    """Texts of values for one schema."""

    def __init__(self, model: SchemaModel, reach: Reach) -> None:
        self._model = model
        self._reach = reach

    def spellings(self, value: Json) -> list[str]:
        """The texts to try, the likeliest first; at least one."""
        text = self.text_of(self._model.root, value)
        if text is not None:
            return [text]
        orders = [self._ordered(self._model.root, value, choice) for choice in range(MAX_ORDERS)]
        return list(dict.fromkeys([*orders, _plain(value)]))

    def text_of(self, node: NodeId, value: Json) -> str | None:
        """The text of a value that the node allows; None for another."""
        shape = self._model.shape_of(node)
        if value is None:
            return "null" if shape.has_null else None
        if isinstance(value, bool):
            return compact(value) if value in shape.booleans else None
        if isinstance(value, int | float):
            number = exact_number(value)
            is_allowed = any(cell.has(number) for cell in shape.numbers)
            return number_text(number) if is_allowed else None
        if isinstance(value, str):
            return compact(value) if shape.texts.surely_has(value) else None
        if isinstance(value, list):
            texts = (self._array_text(cell, value) for cell in shape.arrays)
        else:
            texts = (
                self._object_text(plan, value)
                for cell in shape.objects
                for plan in self._reach.plans_of(cell)
            )
        return next((text for text in texts if text is not None), None)

    def _array_text(self, cell: ArrayCell, items: list[Json]) -> str | None:
        if len(items) < cell.low or (cell.high is not None and len(items) > cell.high):
            return None
        for one in cell.contains:
            num_found = sum(self.text_of(one.node, item) is not None for item in items[one.start :])
            if num_found < one.low or (one.high is not None and num_found > one.high):
                return None
        if cell.is_distinct is not None:
            keys = [_comparable(item) for item in items]
            if (len(set(keys)) == len(keys)) != cell.is_distinct:
                return None
        texts = [self.text_of(cell.item(index), item) for index, item in enumerate(items)]
        found = [text for text in texts if text is not None]
        return f"[{','.join(found)}]" if len(found) == len(items) else None

    def _object_text(self, plan: ObjectPlan, members: dict[str, Json]) -> str | None:
        if len(members) < plan.low or (plan.high is not None and len(members) > plan.high):
            return None
        pairs = []
        for member in plan.members:
            if member.name in members:
                pairs.append(self._pair(member.name, member.node, members[member.name]))
            elif member.is_required:
                return None
        named = {member.name for member in plan.members}
        rest = {name: value for name, value in members.items() if name not in named}
        last = self._special_name(plan, rest)
        if plan.special is not None and last is None:
            return None
        for name in sorted(rest, key=lambda one: one == last):
            node = _region_node(plan, name)
            pairs.append(None if node is None else self._pair(name, node, rest[name]))
        found = [pair for pair in pairs if pair is not None]
        return f"{{{','.join(found)}}}" if len(found) == len(members) else None

    def _special_name(self, plan: ObjectPlan, rest: dict[str, Json]) -> str | None:
        for name, value in rest.items():
            for region in plan.special or ():
                if region.texts.surely_has(name):
                    if self.text_of(region.node, value) is not None:
                        return name
        return None

    def _pair(self, name: str, node: NodeId, value: Json) -> str | None:
        text = self.text_of(node, value)
        return None if text is None else f"{compact(name)}:{text}"

    def _ordered(self, node: NodeId, value: Json, choice: int) -> str:
        """The value, with keys in the order of the choice-th plan wherever it has several."""
        shape = self._model.shape_of(node)
        if isinstance(value, list):
            cell = _chosen(shape.arrays, choice)
            nodes = (ANY if cell is None else cell.item(index) for index in range(len(value)))
            items = (self._ordered(n, v, choice) for n, v in zip(nodes, value, strict=True))
            return f"[{','.join(items)}]"
        if not isinstance(value, dict):
            return number_text(exact_number(value)) if _is_number(value) else compact(value)
        plans = [plan for cell in shape.objects for plan in self._reach.plans_of(cell)]
        plan = _chosen(tuple(plans), choice)
        nodes_of = {} if plan is None else {m.name: m.node for m in plan.members}
        order = {name: index for index, name in enumerate(nodes_of)}
        pairs = [
            f"{compact(name)}:{self._ordered(nodes_of.get(name, ANY), value[name], choice)}"
            for name in sorted(value, key=lambda one: order.get(one, len(order)))
        ]
        return f"{{{','.join(pairs)}}}"


def _chosen(options: tuple, choice: int):  # type: ignore[no-untyped-def, type-arg]
    return options[choice % len(options)] if options else None


def _region_node(plan: ObjectPlan, name: str) -> NodeId | None:
    return next((r.node for r in plan.regions if r.texts.surely_has(name)), None)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Json) -> str:
    """The value as it came."""
    if isinstance(value, list):
        return f"[{','.join(map(_plain, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{compact(k)}:{_plain(v)}' for k, v in value.items())}}}"
    return number_text(exact_number(value)) if _is_number(value) else compact(value)


def _comparable(value: Json) -> object:
    """Equal for values that JSON Schema holds for equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, list):
        return ("array", *map(_comparable, value))
    if isinstance(value, dict):
        return ("object", frozenset((name, _comparable(one)) for name, one in value.items()))
    if _is_number(value):
        return ("number", exact_number(value))
    return (type(value).__name__, value)
