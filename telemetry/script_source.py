"""What a bench plays: scripts from a workload or a trace, and when they begin; pure.

Called by `gateway.bench_session`, which names the seed of each load.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Protocol

from telemetry.arrivals import poisson_times
from telemetry.bench_run import LoadLevel
from telemetry.trace_file import TraceRequest, trace_scripts
from telemetry.workloads import Requests, Script, Workload, iter_scripts, turns_of

# So many scripts are made before a load begins, as making one takes time that others would wait
# for; fewer of long ones, as nobody wants to wait for seconds or give gigabytes for them.
_MADE_BEFORE, _CHARS_BEFORE = 2000, 16_000_000


class ScriptSource(Protocol):
    """`num_requests` None = as many as there is time for."""

    @property
    def num_requests(self) -> int | None: ...

    @property
    def says_the_same(self) -> bool:
        """Whatever the seed is."""
        ...

    def scripts(self, seed: int | str) -> Iterator[Script]: ...

    def first_scripts(self, seed: int | str) -> Iterator[Script]:
        """To warm up with: the same without an end, each made when it is taken."""
        ...

    def begin_s(self, seed: int | str, level: LoadLevel) -> Iterator[float] | None:
        """When each script begins in an open loop; None in a closed one."""
        ...


@dataclass(frozen=True, slots=True)
class WorkloadSource:
    """`is_endless`: it was made for as many requests as there is time for."""

    workload: Workload
    is_endless: bool = False

    @property
    def num_requests(self) -> int | None:
        num_scripts, turns = turns_of(self.workload)
        return None if self.is_endless else num_scripts * turns

    @property
    def says_the_same(self) -> bool:
        return isinstance(self.workload, Requests)

    def scripts(self, seed: int | str) -> Iterator[Script]:
        return _made_before(iter_scripts(self.workload, seed=seed))

    def first_scripts(self, seed: int | str) -> Iterator[Script]:
        return cycle(iter_scripts(self.workload, seed=seed))

    def begin_s(self, seed: int | str, level: LoadLevel) -> Iterator[float] | None:
        """So that the level's rate is that of requests, of whatever conversation."""
        _, turns = turns_of(self.workload)
        return None if level.rate is None else poisson_times(level.rate / turns, seed)


@dataclass(frozen=True, slots=True)
class TraceSource:
    trace: Sequence[TraceRequest]

    @property
    def num_requests(self) -> int | None:
        return len(self.trace)

    @property
    def says_the_same(self) -> bool:
        return any(one.body is not None for one in self.trace)

    def scripts(self, seed: int | str) -> Iterator[Script]:
        return _made_before(trace_scripts(self.trace, seed=seed))

    def first_scripts(self, seed: int | str) -> Iterator[Script]:
        return cycle(trace_scripts(self.trace, seed=seed))

    def begin_s(self, _seed: int | str, level: LoadLevel) -> Iterator[float] | None:
        speed = level.speed or 1.0
        return (one.at_s / speed for one in self.trace)


def _made_before(scripts: Iterator[Script]) -> Iterator[Script]:
    first: list[Script] = []
    num_chars = 0
    for script in islice(scripts, _MADE_BEFORE):
        first.append(script)
        num_chars += sum(
            len(str(message.get("content"))) for turn in script.turns for message in turn.messages
        )
        if num_chars >= _CHARS_BEFORE:
            break
    return chain(first, scripts)
