"""What fits into one replica, and how much load it takes while memory and targets hold."""

import math
from dataclasses import dataclass

from planning.errors import PlanError
from planning.kv_cache import device_share, load_bytes, sequence_bytes
from planning.load import LoadState, ReplicaLoad
from planning.workload import Demand

_MAX_USERS = 1 << 20
_NUM_HALVINGS = 50
# Of random arrivals: with a larger part the wait is more than four and a half prompts long.
MAX_BUSY = 0.9


@dataclass(frozen=True, slots=True)
class Room:
    """Memory of one replica, in bytes. `num_users`: whole requests of the workload that fit at
    once; `num_users_apart`: the same without a shared prefix; `max_context`: tokens of one
    sequence that would have all of the KV to itself."""

    usable: float
    weights: float
    kv: float
    num_users: int
    num_users_apart: int
    max_context: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most that one replica takes, and what stops it: memory, TTFT, TPOT or compute."""

    state: LoadState
    limit: str


def room_of(load: ReplicaLoad) -> Room:
    """What fits. Numbers are 0 where not even the weights do."""
    served, work = load.served, load.workload
    weights = served.weights.total(served.facts)
    machine = served.machine
    # Devices keep whole KV heads: with more devices than heads there are copies.
    copies = device_share(served.facts, machine.num_devices) * machine.num_devices
    kv = max(0.0, machine.usable_bytes - weights) / copies

    def fitting(shared: int) -> int:
        one = load_bytes(served.facts, served.kv, users=1, tokens_each=work.longest, shared=shared)
        two = load_bytes(served.facts, served.kv, users=2, tokens_each=work.longest, shared=shared)
        if one > kv:
            return 0
        return min(_MAX_USERS, 1 + math.floor((kv - one) / max(two - one, 1.0)))

    return Room(
        usable=machine.usable_bytes,
        weights=weights,
        kv=kv,
        num_users=fitting(work.shared),
        num_users_apart=fitting(0),
        max_context=_longest_sequence(load, kv),
    )


def capacity_of(load: ReplicaLoad, demand: Demand) -> Capacity | None:
    """The most users, or requests a second, of one replica; None where not even one request can
    be served as wanted."""
    room = room_of(load)
    if room.num_users < 1:
        return None
    if demand.users is not None:
        return _most_users(load, demand, room)
    return _most_rate(load, demand, room)


def unmet(state: LoadState, demand: Demand) -> str | None:
    """Which target a state misses: TTFT, TPOT, or None."""
    if demand.ttft_s is not None and state.ttft_s > demand.ttft_s:
        return "TTFT"
    if demand.tpot_s is not None and state.tpot_s > demand.tpot_s:
        return "TPOT"
    return None


def _most_users(load: ReplicaLoad, demand: Demand, room: Room) -> Capacity | None:
    if unmet(load.with_users(1), demand) is not None:
        return None
    low, high = 1, room.num_users + 1  # low holds, high does not
    while high - low > 1:
        middle = (low + high) // 2
        holds = unmet(load.with_users(middle), demand) is None
        low, high = (middle, high) if holds else (low, middle)
    limit = unmet(load.with_users(low + 1), demand) if low < room.num_users else None
    return Capacity(load.with_users(low), limit or "memory")


def _most_rate(load: ReplicaLoad, demand: Demand, room: Room) -> Capacity | None:
    """Searched over rows in decode, of which all else is a growing function."""

    def failure(rows: float) -> str | None:
        state = load.with_rows(rows, users=None)
        if state.busy > MAX_BUSY:
            return "compute"
        return unmet(state, demand) or ("memory" if state.sequences > room.num_users else None)

    low, high = 0.0, float(room.num_users)
    limit = "memory"
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        found = failure(middle)
        low, high = (middle, high) if found is None else (low, middle)
        limit = found or limit
    state = load.with_rows(low, users=None)
    return Capacity(state, limit) if low > 0 and state.rate > 0 else None


def require_room(load: ReplicaLoad) -> Room:
    """Raises: PlanError, which says what does not fit."""
    room, machine = room_of(load), load.served.machine
    name = f"{machine.num_devices} x {machine.name}" if machine.num_devices > 1 else machine.name
    if room.weights > room.usable:
        raise PlanError(
            f"does not fit: the weights of {load.served.facts.name} take"
            f" {room.weights / 1e9:,.1f} GB, and {name} has {room.usable / 1e9:,.1f} GB for them"
        )
    if room.num_users < 1:
        need = sequence_bytes(load.served.facts, load.served.kv, load.workload.longest)
        raise PlanError(
            f"does not fit: beside the weights {name} has {room.kv / 1e9:,.2f} GB for KV, and one"
            f" request of {load.workload.longest} tokens takes {need / 1e9:,.2f} GB"
        )
    return room


def _longest_sequence(load: ReplicaLoad, kv_bytes: float) -> int:
    served = load.served
    low, high = 0, served.facts.max_context + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = sequence_bytes(served.facts, served.kv, middle) <= kv_bytes
        low, high = (middle, high) if fits else (low, middle)
    return low
