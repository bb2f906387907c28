"""Rules for objects: named properties in their order, each there or not, then any others.

Named properties are halved again and again: what is there of a range is something of its left half,
of its right half, or of both with a comma in between. So rules are nested as deep as a logarithm,
which a chain of a rule a property is not. Where properties are counted there is such a chain: a
state is (index of the next named property, number of properties so far).
"""

from typing import TYPE_CHECKING

from grammar.schema.json_text import compact
from grammar.schema.plans import Member, ObjectPlan, Region
from grammar.schema.rules import repeated
from grammar.schema.terminals import json_string
from grammar.spec import Gap

if TYPE_CHECKING:
    from grammar.schema.lark_emitter import LarkEmitter

MAX_STATES = 2_000
TOO_MANY_STATES = Gap("", "maxProperties", "too many properties to count")

State = tuple[int, int]


def object_rule(plan: ObjectPlan, emitter: "LarkEmitter") -> str:
    """The name of the rule for objects of the plan."""
    for gap in plan.gaps:
        emitter.note(gap)
    return _ObjectRules(plan, emitter).emit()


class _ObjectRules:
    """Emits the rules of one plan."""

    def __init__(self, plan: ObjectPlan, emitter: "LarkEmitter") -> None:
        self._emitter = emitter
        self._rules = emitter.rules
        self._marks = emitter.punctuation
        self._members = [m for m in plan.members if emitter.reach.is_alive(m.node)]
        self._regions = [r for r in plan.regions if emitter.reach.is_alive(r.node)]
        self._special = plan.special
        self._low, self._high = self._counted_range(plan)
        self._name = self._rules.name(f"o{emitter.new_number()}")
        self._waiting: list[tuple[str, State]] = []

    def emit(self) -> str:
        marks = self._marks
        if self._members and self._high is None and self._low <= 1:
            bodies = self._uncounted()
        else:
            bodies = [self._state((0, 0))]
        while self._waiting:
            name, state = self._waiting.pop()
            self._rules.add(name, self._ways(state))
        wholes = (f"{marks.open_object} {body} {marks.close_object}" for body in bodies)
        return self._rules.add(self._name, wholes)

    def _uncounted(self) -> list[str]:
        """What may stand between the braces, where only "none" and "some" are told apart."""
        named, comma = self._selection(0, len(self._members)), self._marks.comma
        can_lack = not any(member.is_required for member in self._members)
        if self._special is not None:
            special = self._region_pairs(self._special, "s")
            if self._regions:
                special = f"({self._region_pairs(tuple(self._regions), 'p')} {comma})* {special}"
            return [f"{named} {comma} {special}", *([special] if can_lack else [])]
        bodies = [""] if can_lack and self._low == 0 else []
        if not self._regions:
            return [named, *bodies]
        pair = self._region_pairs(tuple(self._regions), "p")
        if can_lack:
            bodies.append(f"{pair} ({comma} {pair})*")
        return [f"{named} ({comma} {pair})*", *bodies]

    def _selection(self, start: int, end: int) -> str:
        """The rule for some of the properties of a range, at least one."""
        members = self._members[start:end]
        if len(members) == 1 or all(member.is_required for member in members):
            pairs = (self._pair(member, is_first=True) for member in members)
            return f" {self._marks.comma} ".join(pairs)
        name = f"{self._name}_{start}_{end}"
        middle = (start + end) // 2
        left, right = self._selection(start, middle), self._selection(middle, end)
        ways = [f"{left} {self._marks.comma} {right}"]
        if not any(member.is_required for member in self._members[middle:end]):
            ways.append(left)
        if not any(member.is_required for member in self._members[start:middle]):
            ways.append(right)
        return self._rules.add(name, ways)

    def _counted_range(self, plan: ObjectPlan) -> tuple[int, int | None]:
        """The range, where it is not met anyway and can be counted."""
        num_required = sum(m.is_required for m in self._members)
        low = plan.low if plan.low > num_required + (plan.special is not None) else 0
        high = plan.high
        if high is not None and not self._regions and high >= len(self._members):
            high = None
        is_counted = low > 1 or high is not None
        if is_counted and max(1, low, high or 0) * len(self._members) > MAX_STATES:
            self._emitter.note(TOO_MANY_STATES)
            return 0, None
        return low, high

    def _state(self, state: State) -> str:
        """The rule for what follows in a state."""
        index, count = state
        if index == len(self._members):
            return self._further(count)
        name = f"{self._name}_{index}_{count}"
        if not self._rules.has(name):
            self._rules.reserve(name)
            self._waiting.append((name, state))
        return name

    def _ways(self, state: State) -> list[str]:
        index, count = state
        member = self._members[index]
        ways = []
        following = (index + 1, self._next_count(count))
        if self._may_add(count) and self._reaches_end(following):
            pair = self._pair(member, is_first=count == 0)
            ways.append(f"{pair} {self._state(following)}")
        if not member.is_required and self._reaches_end((index + 1, count)):
            ways.append(self._state((index + 1, count)))
        return ways

    def _pair(self, member: Member, *, is_first: bool) -> str:
        comma = "" if is_first else f"{self._marks.comma} "
        return f"{comma}{self._marks.key(compact(member.name))} {self._emitter.node(member.node)}"

    def _next_count(self, count: int) -> int:
        return min(count + 1, max(1, self._low, self._high or 0))

    def _may_add(self, count: int) -> bool:
        return self._high is None or count < self._high

    def _reaches_end(self, state: State) -> bool:
        """Whether low and high can be met from here on."""
        index, count = state
        left = self._members[index:]
        least = count + sum(m.is_required for m in left) + (self._special is not None)
        if self._high is not None and least > self._high:
            return False
        return bool(self._regions) or count + len(left) >= self._low

    def _further(self, count: int) -> str:
        """Properties without a name of their own; "" where there can be none."""
        if not self._regions and self._special is None:
            return ""
        name = f"{self._name}_r{count}"
        if not self._rules.has(name):
            self._rules.add(name, [self._further_body(count)])
        return name

    def _further_body(self, count: int) -> str:
        comma = self._marks.comma
        low = max(0, self._low - count)
        high = None if self._high is None else self._high - count
        pair = self._region_pairs(tuple(self._regions), "p")
        if self._special is not None:
            special = self._region_pairs(self._special, "s")
            low, high = max(0, low - 1), None if high is None else high - 1
            if not self._regions:
                return special if count == 0 else f"{comma} {special}"
            if count == 0:
                return f"{repeated(f'{pair} {comma}', low, high)} {special}"
            return f"{repeated(f'{comma} {pair}', low, high)} {comma} {special}"
        if count:
            return repeated(f"{comma} {pair}", low, high)
        if high == 0:
            return ""
        rest = repeated(f"{comma} {pair}", max(0, low - 1), None if high is None else high - 1)
        return f"{pair} {rest}" if low else f"({pair} {rest})?"

    def _region_pairs(self, regions: tuple[Region, ...], stem: str) -> str:
        alive = [region for region in regions if self._emitter.reach.is_alive(region.node)]
        name = f"{self._name}_{stem}"
        if alive and not self._rules.has(name):
            self._rules.reserve(name)
            self._rules.add(name, [self._region_pair(region) for region in alive])
        return name

    def _region_pair(self, region: Region) -> str:
        key = self._rules.terminal(json_string(region.texts.narrow))
        return f"{key} {self._marks.colon} {self._emitter.node(region.node)}"
