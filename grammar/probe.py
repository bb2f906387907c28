"""Tries each new constraint out in a killable child before anything is queued.

Lives in the gateway process and imports none of the grammar libraries. At most two children,
so that one slow constraint does not block the others; what they found is remembered.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from grammar.errors import GrammarError, UnsupportedConstraint
from grammar.matcher import Vocabulary
from grammar.probe_frames import Verdict
from grammar.probe_process import ChildGone, ProbeProcess
from grammar.spec import ConstraintSpec, PreparedConstraint

MAX_CHILDREN = 2
# Children that may turn out to be dead when they get a job, before something must be wrong.
MAX_TRIES = 3
DEFAULT_MEMORY_LIMIT_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """A constraint that can be enforced, and the grammar that does it. `compile_ms` includes the
    first mask; it is that of the first check where `cached`."""

    cached: bool
    compile_ms: float
    prepared: PreparedConstraint


@dataclass(eq=False)
class _Check:
    """One constraint being tried out, and how many callers wait for it."""

    task: asyncio.Task[Verdict]
    num_waiters: int = 0


class ConstraintProbe:
    """Owned by one event loop. Concurrent checks of one constraint share one job."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        time_limit_s: float = 10.0,
        memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
        cache_size: int = 1024,
    ) -> None:
        self._vocabulary = vocabulary
        self._time_limit_s = time_limit_s
        self._memory_limit_bytes = memory_limit_bytes
        self._cache_size = cache_size
        self._verdicts: OrderedDict[str, Verdict] = OrderedDict()
        self._checks: dict[str, _Check] = {}
        self._slots = asyncio.Semaphore(MAX_CHILDREN)
        self._children: set[ProbeProcess] = set()
        self._idle: list[ProbeProcess] = []
        self._warm_up: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts one child in the background; checks that come earlier wait for it."""
        self._warm_up = asyncio.create_task(self._start_first_child())

    async def stop(self) -> None:
        """Ends all checks (their callers get CancelledError) and all children."""
        tasks: list[asyncio.Task[Verdict] | asyncio.Task[None]] = [
            check.task for check in self._checks.values()
        ]
        if self._warm_up is not None:
            tasks.append(self._warm_up)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._idle.clear()
        for child in list(self._children):
            await self._end_child(child)

    def child_pids(self) -> tuple[int, ...]:
        """The children that run now, busy or not."""
        return tuple(child.pid for child in self._children)

    async def check(self, spec: ConstraintSpec) -> ProbeReport:
        """Cancelling it while it is the only one to wait kills the child that works on it.

        Raises: UnsupportedConstraint, ConstraintTooExpensive (not remembered: another try may
        find a less busy machine), GrammarError where no child can be started.
        """
        key = spec.key()
        remembered = self._verdicts.get(key)
        if remembered is not None:
            self._verdicts.move_to_end(key)
            return _report(remembered, cached=True)
        return _report(await self._shared_verdict(key, spec), cached=False)

    async def _shared_verdict(self, key: str, spec: ConstraintSpec) -> Verdict:
        check = self._checks.get(key)
        if check is None:
            check = _Check(asyncio.create_task(self._try_out(key, spec)))
            self._checks[key] = check
        check.num_waiters += 1
        try:
            return await asyncio.shield(check.task)
        finally:
            check.num_waiters -= 1
            if check.num_waiters == 0:
                self._checks.pop(key, None)
                if not check.task.done():
                    await _end(check.task)

    async def _try_out(self, key: str, spec: ConstraintSpec) -> Verdict:
        async with self._slots:
            for _ in range(MAX_TRIES):
                child = await self._take_child()
                try:
                    verdict = await child.run(spec, time_limit_s=self._time_limit_s)
                except ChildGone:
                    await self._end_child(child)
                    continue
                except BaseException:
                    await self._end_child(child)
                    raise
                self._idle.append(child)
                self._remember(key, verdict)
                return verdict
        raise GrammarError("the constraint checker keeps dying before it can work")

    async def _take_child(self) -> ProbeProcess:
        if self._warm_up is not None:
            await asyncio.wait([self._warm_up])
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            await self._end_child(child)
        return await self._start_child()

    async def _start_child(self) -> ProbeProcess:
        child = await ProbeProcess.start(
            self._vocabulary, memory_limit_bytes=self._memory_limit_bytes
        )
        self._children.add(child)
        return child

    async def _start_first_child(self) -> None:
        self._idle.append(await self._start_child())

    async def _end_child(self, child: ProbeProcess) -> None:
        self._children.discard(child)
        await child.kill()

    def _remember(self, key: str, verdict: Verdict) -> None:
        self._verdicts[key] = verdict
        if len(self._verdicts) > self._cache_size:
            self._verdicts.popitem(last=False)


async def _end(task: asyncio.Task[Verdict]) -> None:
    """Cancels a job that nobody waits for, and waits until its child is gone."""
    task.cancel()
    await asyncio.wait([task])


def _report(verdict: Verdict, *, cached: bool) -> ProbeReport:
    if verdict.prepared is None:
        reason = verdict.reason or "the constraint cannot be enforced"
        raise UnsupportedConstraint(reason, pointer=verdict.pointer, keyword=verdict.keyword)
    return ProbeReport(cached=cached, compile_ms=verdict.compile_ms, prepared=verdict.prepared)
