"""Rules for arrays: a tuple one by one, equal items as a repetition, counted items as states."""

from typing import TYPE_CHECKING

from grammar.schema.array_plans import ArrayPlan, State
from grammar.schema.nodes import NodeId
from grammar.schema.rules import quoted, repeated

if TYPE_CHECKING:
    from grammar.schema.lark_emitter import LarkEmitter


def array_rule(plan: ArrayPlan, emitter: "LarkEmitter") -> str:
    """The name of the rule for arrays of the plan."""
    for gap in plan.gaps:
        emitter.note(gap)
    if plan.distinct is not None:
        return _distinct_rule(plan, emitter)
    return _ArrayRules(plan, emitter).emit()


class _ArrayRules:
    """Emits the rules of one plan."""

    def __init__(self, plan: ArrayPlan, emitter: "LarkEmitter") -> None:
        self._plan = plan
        self._cell = plan.cell
        self._emitter = emitter
        self._rules = emitter.rules
        self._marks = emitter.punctuation
        self._name = self._rules.name(f"a{emitter.new_number()}")
        self._useful = frozenset[State]()
        if plan.states is not None:
            self._useful = plan.useful_states(emitter.reach.alive)
        self._waiting: list[tuple[str, State, bool]] = []

    def emit(self) -> str:
        marks = self._marks
        if self._plan.states is None:
            first = self._tuple()
        else:
            first = self._state(self._plan.start, is_first=True)
        while self._waiting:
            name, state, is_first = self._waiting.pop()
            self._rules.add(name, self._ways(state, is_first=is_first))
        return self._rules.add(self._name, [f"{marks.open_array} {first} {marks.close_array}"])

    def _tuple(self) -> str:
        """The items of the prefix, and the repetition behind them."""
        prefix = self._cell.prefix
        is_dead = [not self._emitter.reach.is_alive(item) for item in prefix]
        end = is_dead.index(True) if True in is_dead else len(prefix)
        rest = self._rest(len(prefix)) if end == len(prefix) else ""
        if end == 0:
            return rest
        fixed = min(self._cell.low, end)
        whole = self._items(0, end)
        if fixed == end:
            return f"{whole} {rest}"
        ways = [f"{whole} {rest}"] if rest else []
        ways.append(self._beginning(0, end, least=fixed))
        if fixed == 0:
            ways.append("")
        return self._rules.add(f"{self._name}_t", ways)

    def _items(self, start: int, end: int) -> str:
        """All items of a range."""
        items = (self._emitter.node(self._cell.prefix[i]) for i in range(start, end))
        return f" {self._marks.comma} ".join(items)

    def _beginning(self, start: int, end: int, *, least: int) -> str:
        """The rule for the first items of a range, at least one and `least` of the array: the range
        is halved again and again, so that rules are nested as deep as a logarithm."""
        if end - start == 1:
            return self._items(start, end)
        middle = (start + end) // 2
        later = self._beginning(middle, end, least=least)
        ways = [f"{self._items(start, middle)} {self._marks.comma} {later}"]
        if least <= middle:
            ways.append(self._beginning(start, middle, least=least))
        return self._rules.add(f"{self._name}_{start}_{end}", ways)

    def _rest(self, index: int) -> str:
        low = max(0, self._cell.low - index)
        high = None if self._cell.high is None else self._cell.high - index
        node = self._cell.rest
        if high == 0 or not self._emitter.reach.is_alive(node):
            return ""
        item = f"{self._marks.comma} {self._emitter.node(node)}"
        if index:
            return repeated(item, low, high)
        more = repeated(item, max(0, low - 1), None if high is None else high - 1)
        body = f"{self._emitter.node(node)} {more}"
        return body if low else f"({body})?"

    def _state(self, state: State, *, is_first: bool) -> str:
        """The rule for what follows in a state."""
        index, counts = state
        stem = "f" if is_first else "s"
        name = f"{self._name}_{stem}{index}_{'_'.join(map(str, counts))}"
        if not self._rules.has(name):
            self._rules.reserve(name)
            self._waiting.append((name, state, is_first))
        return name

    def _ways(self, state: State, *, is_first: bool) -> list[str]:
        assert self._plan.states is not None
        ways = [
            f"{self._item(step.node, is_first=is_first)} {self._state(step.target, is_first=False)}"
            for step in self._plan.states[state]
            if step.target in self._useful and self._emitter.reach.is_alive(step.node)
        ]
        return [*ways, ""] if state in self._plan.accepting else ways

    def _item(self, node: NodeId, *, is_first: bool) -> str:
        rule = self._emitter.node(node)
        return rule if is_first else f"{self._marks.comma} {rule}"


def _distinct_rule(plan: ArrayPlan, emitter: "LarkEmitter") -> str:
    """Lists of literals of which none occurs twice: a rule of llguidance with a parameter, in which
    bit i says that value i has occurred."""
    assert plan.distinct is not None
    marks, rules = emitter.punctuation, emitter.rules
    name = rules.name(f"a{emitter.new_number()}")
    low = plan.cell.low
    high = len(plan.distinct) if plan.cell.high is None else plan.cell.high
    first, more = [], [f'"" %if bit_count_ge(_, {low})']
    for index, text in enumerate(plan.distinct):
        value = quoted(text)
        first.append(f"{value} {name}_s::0x{1 << index:x}")
        is_free = f"and(bit_clear({index}), bit_count_lt(_, {high}))"
        more.append(f"{marks.comma} {value} {name}_s::set_bit({index}) %if {is_free}")
    if high == 0:
        first = []
    rules.add(f"{name}_s::_", more)
    rules.add(f"{name}_f", [*first, ""] if low == 0 else first)
    return rules.add(name, [f"{marks.open_array} {name}_f {marks.close_array}"])
