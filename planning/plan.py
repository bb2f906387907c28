"""The answer to "how many GPUs": the smallest layout that holds a load and meets its targets."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planning.capacity import Capacity, Room, capacity_of, require_room, unmet
from planning.cost import TokenCost, token_cost
from planning.errors import PlanError
from planning.kv_cache import KvFormat
from planning.load import LoadState, ReplicaLoad
from planning.machine import Machine
from planning.model_facts import ModelFacts
from planning.step_time import ServedModel
from planning.weights import WeightBytes, check_bits, weight_bytes
from planning.workload import Demand, Workload

_MIN_GAIN = 1.1  # what a GPU must take more for a change to be worth a line


@dataclass(frozen=True, slots=True)
class Question:
    """`machines`: the sizes of a replica to choose from, the smallest first. `weight_bits` None:
    the weights are as a file has them. `num_gpus`: how many there are, None = as many as needed.
    `price_per_hour` of one GPU. `may_change_formats`: whether other number formats are worth
    proposing."""

    facts: ModelFacts
    weights: WeightBytes
    weight_bits: float | None
    kv: KvFormat
    machines: tuple[Machine, ...]
    workload: Workload
    demand: Demand
    num_gpus: int | None = None
    price_per_hour: float | None = None
    may_change_formats: bool = True

    def load_on(self, machine: Machine) -> ReplicaLoad:
        served = ServedModel(self.facts, self.weights, self.kv, machine)
        return ReplicaLoad(served, self.workload)


@dataclass(frozen=True, slots=True)
class Layout:
    """`num_replicas` of one size, and what each does with its part of the demand. `capacity`: the
    most that one takes within memory and targets; None where one request misses them already.
    `unmet`: the target that is missed with the GPUs that there are. `per_gpu`: users, or requests
    a second, that each GPU could take."""

    load: ReplicaLoad
    num_replicas: int
    room: Room
    state: LoadState
    capacity: Capacity | None
    unmet: str | None
    per_gpu: float

    @property
    def num_gpus(self) -> int:
        return self.num_replicas * self.load.served.machine.num_devices

    @property
    def limit(self) -> str:
        """What stops a replica that gets more and more load: memory, TTFT, TPOT or compute."""
        if self.unmet is not None or self.capacity is None:
            return self.unmet or "none"
        return self.capacity.limit


@dataclass(frozen=True, slots=True)
class Change:
    """Something to change: `what`, with how many GPUs it would take, and how much one GPU would
    serve in place of what it does (users, or requests a second)."""

    what: str
    num_gpus: int
    per_gpu: float


@dataclass(frozen=True, slots=True)
class Plan:
    """`cost` is None without a price, `best_change` where none that was tried helps."""

    question: Question
    layout: Layout
    cost: TokenCost | None
    best_change: Change | None


def make_plan(question: Question) -> Plan:
    """Raises: PlanError, one line, where nothing meets what is wanted."""
    question.workload.check(question.facts)
    question.demand.check()
    question.kv.check()
    check_bits(question.weight_bits)
    layout = _best_layout(question)
    price = question.price_per_hour
    return Plan(
        question=question,
        layout=layout,
        cost=None
        if price is None
        else token_cost(
            layout.load, layout.state, num_replicas=layout.num_replicas, price_per_hour=price
        ),
        best_change=_best_change(question, layout),
    )


def _best_layout(question: Question) -> Layout:
    """Of layouts that meet the targets, or else miss them least, the one with the fewest GPUs, or
    of those that there are the most; then the smallest replicas."""
    layouts, reasons = [], []
    for machine in question.machines:
        load = question.load_on(machine)
        try:
            layouts.append(_layout(question, load))
        except PlanError as error:
            reasons.append(error)
    if not layouts:
        raise reasons[-1]  # of the largest replica, which comes nearest
    wanted = 1 if question.num_gpus is None else -1
    return min(layouts, key=lambda one: (_excess(one, question.demand), wanted * one.num_gpus))


def _excess(layout: Layout, demand: Demand) -> float:
    """How many times its target the worst figure is; 0 where all are met."""
    if layout.unmet is None:
        return 0.0
    state = layout.state
    pairs = ((state.ttft_s, demand.ttft_s), (state.tpot_s, demand.tpot_s))
    return max(found / target for found, target in pairs if target is not None)


def _layout(question: Question, load: ReplicaLoad) -> Layout:
    """Raises: PlanError where replicas of this size cannot do it, however many."""
    room = require_room(load)
    capacity = capacity_of(load, question.demand)
    if question.num_gpus is not None:
        return _layout_of_given(question, load, room, capacity)
    if capacity is None:
        raise _unreachable(load, question.demand)
    needed = _wanted(question.demand) / _taken(question.demand, capacity)
    num_replicas = max(1, math.ceil(needed - 1e-9))
    state = _state(load, question.demand, num_replicas)
    per_gpu = _per_gpu(question.demand, load, capacity)
    return Layout(load, num_replicas, room, state, capacity, None, per_gpu)


def _layout_of_given(
    question: Question, load: ReplicaLoad, room: Room, capacity: Capacity | None
) -> Layout:
    """As many of the GPUs that there are as whole replicas take, also where they miss a target."""
    assert question.num_gpus is not None
    size = load.served.machine.num_devices
    num_replicas = question.num_gpus // size
    if num_replicas < 1:
        raise PlanError(f"a replica of {size} GPUs needs more than the {question.num_gpus} given")
    state = _state(load, question.demand, num_replicas)
    held = num_replicas * room.num_users
    if not math.isfinite(state.ttft_s):
        raise PlanError(
            f"{question.num_gpus} GPUs cannot compute the prompts of {question.demand.rate:g}"
            " requests a second; more GPUs, shorter or shared prompts are needed"
        )
    if math.ceil(state.sequences - 1e-6) > room.num_users:
        raise PlanError(
            f"{question.num_gpus} GPUs hold {held:,} requests at once, and this load has"
            f" {state.sequences * num_replicas:,.0f}; more GPUs, shorter contexts or a smaller KV"
            " format are needed"
        )
    per_gpu = _per_gpu(question.demand, load, capacity)
    missed = unmet(state, question.demand)
    return Layout(load, num_replicas, room, state, capacity, missed, per_gpu)


def _state(load: ReplicaLoad, demand: Demand, num_replicas: int) -> LoadState:
    if demand.users is not None:
        return load.with_users(math.ceil(demand.users / num_replicas))
    assert demand.rate is not None
    return load.with_rate(demand.rate / num_replicas)


def _wanted(demand: Demand) -> float:
    return float(demand.users if demand.users is not None else demand.rate or 0.0)


def _taken(demand: Demand, capacity: Capacity) -> float:
    """Users, or requests a second, that one replica takes."""
    state = capacity.state
    return max(1, round(state.users)) if demand.users is not None else state.rate


def _per_gpu(demand: Demand, load: ReplicaLoad, capacity: Capacity | None) -> float:
    taken = _taken(demand, capacity) if capacity is not None else 0.0
    return taken / load.served.machine.num_devices


def _unreachable(load: ReplicaLoad, demand: Demand) -> PlanError:
    """Why one request alone is too slow."""
    machine = load.served.machine
    name = f"{machine.num_devices} x {machine.name}"
    ttft_s, tpot_s = load.ttft_alone_s(), load.tpot_alone_s()
    if demand.ttft_s is not None and ttft_s > demand.ttft_s:
        return PlanError(
            f"a TTFT of {demand.ttft_s * 1e3:.0f} ms is out of reach: one prompt alone takes"
            f" {ttft_s * 1e3:.0f} ms on {name}"
        )
    if demand.tpot_s is not None and tpot_s > demand.tpot_s:
        return PlanError(
            f"a TPOT of {demand.tpot_s * 1e3:.1f} ms is out of reach: one request alone takes"
            f" {tpot_s * 1e3:.1f} ms a token on {name}"
        )
    return PlanError(f"{name} cannot serve this load within the targets")


def _changes(question: Question) -> Iterator[tuple[str, Question]]:
    """What could be changed without another model or other users."""
    if not question.may_change_formats:
        return
    kv = question.kv
    if kv.bits > 8:
        yield "KV in 8 bits", replace(question, kv=replace(kv, bits=8.0))
    if any(question.facts.windows) and not kv.drops_windows:
        dropping = replace(question, kv=replace(kv, drops_windows=True))
        yield "pages behind sliding windows dropped", dropping
    bits = question.weight_bits
    for fewer in (8.0, 4.5):
        if bits is not None and fewer < bits:
            weights = weight_bytes(question.facts, fewer)
            changed = replace(question, weights=weights, weight_bits=fewer)
            yield f"weights in {fewer:g} bits (arithmetic as before)", changed


def _best_change(question: Question, layout: Layout) -> Change | None:
    """The change that meets the targets with the fewest GPUs, then the one with the most for each;
    None where none helps. Of GPUs that there are the number stays."""
    found = []
    for what, changed in _changes(question):
        try:
            found.append((what, _best_layout(changed)))
        except PlanError:
            continue
    if not found:
        return None
    what, best = min(found, key=lambda one: _rank(one[1]))
    if _rank(best) >= _rank(replace(layout, per_gpu=layout.per_gpu * _MIN_GAIN)):
        return None
    return Change(what, best.num_gpus, best.per_gpu)


def _rank(layout: Layout) -> tuple[bool, int, float]:
    """Smaller is better."""
    return layout.unmet is not None, layout.num_gpus, -layout.per_gpu
