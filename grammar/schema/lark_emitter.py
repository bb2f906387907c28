"""From a model to a Lark grammar of llguidance: a rule for each node that is generated.

Only what has a finite value is emitted, so that the grammar has no dead end. A string is one
terminal, which llguidance masks fastest; a property's key and its colon are one literal.
"""

from collections.abc import Iterator

from grammar.schema.array_rules import array_rule
from grammar.schema.json_text import compact
from grammar.schema.model import SchemaModel
from grammar.schema.nodes import ANY, NodeId
from grammar.schema.number_rules import number_alternatives
from grammar.schema.object_rules import object_rule
from grammar.schema.punctuation import Punctuation
from grammar.schema.reach import Reach
from grammar.schema.rules import Rules, quoted
from grammar.schema.terminals import json_string
from grammar.spec import Gap


class LarkEmitter:
    """One use: `emit` once, then read `gaps`."""

    def __init__(self, model: SchemaModel, reach: Reach, *, start: str, whitespace: bool) -> None:
        self.reach = reach
        self.rules = Rules("" if start == "start" else f"{start}_")
        self.punctuation = Punctuation(self.rules, whitespace=whitespace)
        self._start = start
        self._model = model
        self._waiting: list[NodeId] = []
        self._num_containers = 0
        self.gaps: dict[Gap, None] = {}

    def emit(self) -> str:
        """The grammar's text."""
        self.rules.add(self._start, [self.node(self._model.root)])
        while self._waiting:
            node = self._waiting.pop()
            self.rules.add(self._name(node), self._alternatives(node))
        return self.rules.text()

    def node(self, node: NodeId) -> str:
        """The name of the node's rule, which will be emitted."""
        name = self._name(node)
        if not self.rules.has(name):
            self.rules.reserve(name)
            self._waiting.append(node)
        return name

    def new_number(self) -> int:
        """Tells the rules of arrays and objects apart."""
        self._num_containers += 1
        return self._num_containers

    def note(self, gap: Gap) -> None:
        self.gaps[gap] = None

    def _name(self, node: NodeId) -> str:
        return self.rules.name("any" if node == ANY else f"n{node}")

    def _alternatives(self, node: NodeId) -> Iterator[str]:
        shape = self.reach.shape(node)
        for _, gap in sorted(shape.gaps, key=lambda one: (one[1].pointer, one[1].keyword)):
            self.note(gap)
        if shape.has_null:
            yield quoted("null")
        for value in sorted(shape.booleans):
            yield quoted(compact(value))
        yield from number_alternatives(shape.numbers, self)
        if not shape.texts.is_surely_empty:
            yield self.rules.terminal(json_string(shape.texts.narrow))
        for cell in shape.arrays:
            plan = self.reach.plan_of(cell)
            if self.reach.can_fill(plan):
                yield array_rule(plan, self)
        for members in shape.objects:
            for object_plan in self.reach.plans_of(members):
                if self.reach.can_be(object_plan):
                    yield object_rule(object_plan, self)
