"""Tries each new constraint out in a killable child before anything is queued.

Lives in the gateway process and imports none of the grammar libraries. Equal constraints are
tried out once, also while the first of them is in work; what was found is remembered.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from grammar.errors import ConstraintTooExpensive, UnsupportedConstraint
from grammar.matcher import Vocabulary
from grammar.probe_children import ProbeChildren
from grammar.probe_frames import Verdict
from grammar.spec import ConstraintSpec, PreparedConstraint
from grammar.verdict_cache import VerdictCache

DEFAULT_MEMORY_LIMIT_BYTES = 1024 * 1024 * 1024
DEFAULT_CACHE_BYTES = 64 * 1024 * 1024


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
        time_limit_s: float = 2.0,
        memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`time_limit_s` is of computing, however busy the machine is."""
        self._children = ProbeChildren(
            vocabulary, time_limit_s=time_limit_s, memory_limit_bytes=memory_limit_bytes
        )
        self._cache = VerdictCache(cache_bytes, clock=clock)
        self._checks: dict[str, _Check] = {}

    async def start(self) -> None:
        """Starts one child in the background; checks that come earlier wait for it."""
        self._children.warm_up()

    async def stop(self) -> None:
        """Ends all checks (their callers get CancelledError) and all children."""
        self._children.close()
        tasks = [check.task for check in self._checks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._children.stop()

    def child_pids(self) -> tuple[int, ...]:
        """The children that run now, busy or not."""
        return self._children.pids()

    async def check(self, spec: ConstraintSpec) -> ProbeReport:
        """Cancelling it while it is the only one to wait ends the work on it.

        Raises: UnsupportedConstraint; ConstraintTooExpensive, which is remembered for seconds
        only, as another try may find a less busy machine; GrammarError where no child can be
        started.
        """
        key = spec.key()
        remembered = self._cache.get(key)
        if remembered is not None:
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
        try:
            verdict = await self._children.run(spec)
        except ConstraintTooExpensive as error:
            self._cache.put_too_expensive(key, error)
            raise
        self._cache.put(key, verdict)
        return verdict


async def _end(task: asyncio.Task[Verdict]) -> None:
    """Cancels a job that nobody waits for, and waits until it has ended."""
    task.cancel()
    await asyncio.wait([task])


def _report(verdict: Verdict, *, cached: bool) -> ProbeReport:
    if verdict.prepared is None:
        reason = verdict.reason or "the constraint cannot be enforced"
        raise UnsupportedConstraint(reason, pointer=verdict.pointer, keyword=verdict.keyword)
    return ProbeReport(cached=cached, compile_ms=verdict.compile_ms, prepared=verdict.prepared)
