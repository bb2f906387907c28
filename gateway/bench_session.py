"""A bench from its plan to what it found: servers by turns, levels, rounds, warm-up.

Called by `gateway.bench_command`. Every server gets the same words at the same times; each round
and level has words of its own, so that no cache carries over, unless the plan says otherwise.
"""

import asyncio
import dataclasses
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.answer_validity import AnswerJudge
from gateway.bench_machine import allow_files, bench_version, loop_factory, this_machine
from gateway.load_client import Counts, Load, PlayedLoad, PlayedTurn, Stop, play
from gateway.load_connection import AnswerLimits, Link
from gateway.load_dialect import find_dialect, first_model, notes_of
from gateway.load_target import Target, TargetError
from telemetry.bench_run import (
    Arrival,
    BenchRun,
    LoadLevel,
    Progress,
    RequestRecord,
    Round,
    Series,
    Slo,
    WorkloadNote,
)
from telemetry.cacheable import Exchange, KnownTokens, cacheable_tokens
from telemetry.request_bodies import Dialect, Endpoint
from telemetry.script_source import ScriptSource

_NS = 1e9
# Clients that warm up for an open loop, which has none.
_WARM_UP_CLIENTS = 8


class BenchInterrupted(Exception):
    """It was ended by hand before anything was measured."""


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What is to be measured. `sources` has one for each level; the first target is the one that
    others are compared with. `model` None = the first that a server lists."""

    targets: tuple[tuple[str, Target], ...]
    levels: tuple[LoadLevel, ...]
    sources: tuple[ScriptSource, ...]
    workload: WorkloadNote
    endpoint: Endpoint
    seed: int
    command: str
    model: str | None = None
    num_rounds: int = 1
    warm_up: int = 0
    max_requests: int | None = None
    duration_s: float | None = None
    max_in_flight: int = 1024
    says_the_same: bool = False
    keeps_open: bool = False
    limits: AnswerLimits = dataclasses.field(default_factory=AnswerLimits)
    slo: Slo | None = None
    price_per_hour: float | None = None


@dataclass(eq=False, slots=True)
class _Server:
    """One of those that are measured, and what is known of it."""

    label: str
    link: Link
    model: str
    dialect: Dialect
    known: KnownTokens
    rounds: dict[LoadLevel, list[Round]]


def run_bench(plan: BenchPlan, *, show: Callable[[Progress], None]) -> BenchRun:
    """Ctrl-C ends it with what was measured so far; a second one is a KeyboardInterrupt.

    Raises: TargetError where a server answers nothing at all, BenchInterrupted.
    """
    allow_files(max(plan.max_in_flight, *(level.concurrency or 0 for level in plan.levels)))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_Session(plan, show).run())


class _Session:
    """One run, on its event loop."""

    def __init__(self, plan: BenchPlan, show: Callable[[Progress], None]) -> None:
        self._plan = plan
        self._show = show
        self._stop = Stop()
        self._judge = AnswerJudge()
        self._start_s = time.perf_counter()
        self._servers: list[_Server] = []

    async def run(self) -> BenchRun:
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        with _interrupts(self._stop):
            try:
                await self._unless_stopped(self._meet_servers())
                self._start_s = time.perf_counter()
                await self._play_rounds()
            finally:
                for server in self._servers:
                    server.link.close()
        plan = self._plan
        return BenchRun(
            started_at=started_at,
            version=bench_version(),
            command=plan.command,
            machine=this_machine(),
            workload=plan.workload,
            seed=plan.seed,
            arrival=plan.levels[0].arrival,
            warm_up=plan.warm_up,
            num_rounds=plan.num_rounds,
            series=tuple(self._series()),
            slo=plan.slo,
            price_per_hour=plan.price_per_hour,
            is_interrupted=self._stop.is_set,
        )

    async def _unless_stopped(self, work: Coroutine[None, None, None]) -> None:
        """Raises: BenchInterrupted where there is nothing to report of yet."""
        task, stopped = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise BenchInterrupted
            task.result()
        finally:
            for one in (task, stopped):
                one.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    async def _meet_servers(self) -> None:
        plan = self._plan
        script = next(plan.sources[0].first_scripts(plan.seed))
        for label, target in plan.targets:
            link = Link(target, limits=plan.limits, keeps_open=plan.keeps_open)
            try:
                await link.open()
                model = plan.model or await first_model(link)
                dialect = await find_dialect(
                    link, model, endpoint=plan.endpoint, fields=script.turns[0].fields
                )
            except TargetError as error:
                raise TargetError(f"{target.url}: {error}") from None
            server = _Server(label, link, model, dialect, KnownTokens(), {})
            self._servers.append(server)

    async def _play_rounds(self) -> None:
        """Who begins changes from round to round."""
        for number in range(1, self._plan.num_rounds + 1):
            first = (number - 1) % len(self._servers)
            order = self._servers[first:] + self._servers[:first]
            for index, level in enumerate(self._plan.levels):
                for server in order:
                    if self._stop.is_set:
                        return
                    played = await self._play(server, number, index, level)
                    server.rounds.setdefault(level, []).append(played)

    async def _play(self, server: _Server, number: int, index: int, level: LoadLevel) -> Round:
        seed = self._seed(number, index)
        warm_up = await self._warm_up(server, number, index, level)
        started_s = time.perf_counter() - self._start_s
        load = self._load(index, level, seed)
        total = _total(load, self._plan.sources[index])
        played = await self._play_load(server, load, number, level, total=total)
        records = [
            *self._records(server, warm_up, played.start_ns, is_warm_up=True),
            *self._records(server, played, played.start_ns, is_warm_up=False),
        ]
        return Round(
            number=number,
            started_s=started_s,
            wall_s=(played.end_ns - played.start_ns) / _NS,
            records=tuple(records),
            num_unsent=played.num_unsent
            if load.duration_s is not None
            else max(0, (total or 0) - len(played.turns)),
            client_cpu_s=played.cpu_s,
        )

    async def _warm_up(
        self, server: _Server, number: int, index: int, level: LoadLevel
    ) -> PlayedLoad:
        plan = self._plan
        seed = self._seed(number, index)
        load = Load(
            plan.sources[index].first_scripts(seed if plan.says_the_same else f"{seed}.warm-up"),
            num_clients=level.concurrency or _WARM_UP_CLIENTS,
            max_in_flight=level.concurrency or _WARM_UP_CLIENTS,
            max_requests=plan.warm_up,
        )
        if not plan.warm_up:
            return PlayedLoad((), 0, 0, 0.0)
        return await self._play_load(
            server, load, number, level, total=plan.warm_up, is_warm_up=True
        )

    async def _play_load(
        self,
        server: _Server,
        load: Load,
        number: int,
        level: LoadLevel,
        *,
        total: int | None,
        is_warm_up: bool = False,
    ) -> PlayedLoad:
        def watch(counts: Counts) -> None:
            elapsed_s = (time.perf_counter_ns() - counts.start_ns) / _NS
            shares = [counts.num_done / total] if total else []
            shares += [elapsed_s / load.duration_s] if load.duration_s else []
            self._show(
                Progress(
                    label=server.label,
                    level=level,
                    round_number=number,
                    num_rounds=self._plan.num_rounds,
                    is_warm_up=is_warm_up,
                    num_done=counts.num_done,
                    num_failed=counts.num_failed,
                    num_in_flight=counts.num_sent - counts.num_done,
                    total=total,
                    elapsed_s=elapsed_s,
                    share=min(1.0, max(shares, default=0.0)),
                )
            )

        return await play(
            server.link,
            server.model,
            load,
            dialect=server.dialect,
            stop=self._stop,
            watch=watch,
        )

    def _load(self, index: int, level: LoadLevel, seed: int | str) -> Load:
        plan, source = self._plan, self._plan.sources[index]
        is_open = level.arrival is not Arrival.CLOSED
        return Load(
            source.scripts(seed),
            num_clients=level.concurrency or 1,
            begin_s=source.begin_s(seed, level),
            max_in_flight=plan.max_in_flight if is_open else level.concurrency or 1,
            max_requests=plan.max_requests,
            duration_s=plan.duration_s,
        )

    def _seed(self, number: int, index: int) -> int | str:
        """Of the words and arrivals of one load: the run's own for the first."""
        if self._plan.says_the_same or (number, index) == (1, 0):
            return self._plan.seed
        return f"{self._plan.seed}.{number}.{index}"

    def _records(
        self, server: _Server, load: PlayedLoad, origin_ns: int, *, is_warm_up: bool
    ) -> Iterator[RequestRecord]:
        bounds = _cacheable(load.turns, server.known)
        for turn, bound in zip(load.turns, bounds, strict=True):
            record = _record(turn, origin_ns, is_warm_up=is_warm_up)
            if turn.answer is not None and turn.schema is not None:
                is_valid = self._judge.is_valid(turn.answer.text, turn.schema)
                record = dataclasses.replace(record, is_valid=is_valid)
            yield dataclasses.replace(record, cacheable_tokens=bound)

    def _series(self) -> Iterator[Series]:
        for level, source in zip(self._plan.levels, self._plan.sources, strict=True):
            for server in self._servers:
                if rounds := server.rounds.get(level):
                    yield Series(
                        label=server.label,
                        url=server.link.target.url,
                        model=server.model,
                        level=level,
                        rounds=tuple(rounds),
                        notes=(*notes_of(server.dialect), *self._notes(server, source)),
                    )

    def _notes(self, server: _Server, source: ScriptSource) -> Iterator[str]:
        plan = self._plan
        if source.says_the_same and len(plan.levels) * plan.num_rounds > 1:
            yield "every round and level sends the same bodies: what is cached from before counts"
        if server.link.num_repeated:
            count = server.link.num_repeated
            yield f"{count:,} requests were sent again, as an open connection had been closed"


def _record(turn: PlayedTurn, origin_ns: int, *, is_warm_up: bool) -> RequestRecord:
    answer = turn.answer
    timing = None if answer is None else answer.timing
    return RequestRecord(
        user=turn.user,
        turn=turn.turn,
        is_warm_up=is_warm_up,
        scheduled_s=(turn.scheduled_ns - origin_ns) / _NS,
        start_s=(turn.start_ns - origin_ns) / _NS,
        end_s=(turn.end_ns - origin_ns) / _NS,
        ttft_s=None if timing is None else timing.ttft_s,
        tpot_s=None if timing is None else timing.tpot_s,
        itl_s=() if timing is None else timing.itl_s,
        prompt_tokens=0 if answer is None else answer.prompt_tokens,
        output_tokens=0 if answer is None else answer.output_tokens,
        cached_tokens=None if answer is None else answer.cached_tokens,
        reasoning_tokens=None if answer is None else answer.reasoning_tokens,
        finish_reason=None if answer is None else answer.finish_reason,
        failure=turn.failure,
    )


def _cacheable(turns: tuple[PlayedTurn, ...], known: KnownTokens) -> list[int | None]:
    """For each request; None where its tokens are not known. `known` knows them afterwards."""
    exchanges = {
        index: Exchange(turn.start_ns, turn.end_ns, answer.prompt_ids, answer.output_ids)
        for index, turn in enumerate(turns)
        if (answer := turn.answer) is not None and answer.prompt_ids is not None
    }
    bounds = dict(zip(exchanges, cacheable_tokens(list(exchanges.values()), known), strict=True))
    return [bounds.get(index) for index in range(len(turns))]


def _total(load: Load, source: ScriptSource) -> int | None:
    """How many requests there will be where nothing fails; None = as many as there is time for."""
    counts = [count for count in (source.num_requests, load.max_requests) if count is not None]
    return min(counts, default=None)


@contextmanager
def _interrupts(stop: Stop) -> Iterator[None]:
    """Only the main thread hears of them."""
    loop = asyncio.get_running_loop()

    def ended_by_hand() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop.set()

    try:
        loop.add_signal_handler(signal.SIGINT, ended_by_hand)
    except (ValueError, RuntimeError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
