"""The children of a probe: how many there are, who gets one, and for how long.

Every constraint gets a little time first; what needs more waits for the one lane in which it may
take all of it. So ten bad schemas do not stand in the way of a good one.
"""

import asyncio

from grammar.errors import (
    ConstraintTooExpensive,
    GrammarError,
    UnsupportedConstraint,
)
from grammar.matcher import Vocabulary
from grammar.probe_frames import TimeLimits, Verdict
from grammar.probe_process import ChildGone, ProbeProcess, TimeExceeded
from grammar.spec import ConstraintSpec

NUM_QUICK, NUM_SLOW = 2, 1
# Nearly all schemas compile in less (p99 about 0.15 s).
QUICK_S = 0.25
# At idle priority beside a running model a process has about a tenth of a core. What is not done
# after so many times its limit of computing time is given up.
WALL_FACTOR = 5.0
# What has nothing to do holds 100 MB each.
MAX_IDLE = 2
# Children that may turn out to be dead when they get a job, before something must be wrong.
MAX_TRIES = 3


class ProbeChildren:
    """Owned by one event loop."""

    def __init__(
        self, vocabulary: Vocabulary, *, time_limit_s: float, memory_limit_bytes: int
    ) -> None:
        self._vocabulary = vocabulary
        self._time_limit_s = time_limit_s
        self._memory_limit_bytes = memory_limit_bytes
        self._quick = asyncio.Semaphore(NUM_QUICK)
        self._slow = asyncio.Semaphore(NUM_SLOW)
        self._children: set[ProbeProcess] = set()
        self._idle: list[ProbeProcess] = []
        self._warm_up: asyncio.Task[None] | None = None

    def warm_up(self) -> None:
        """Starts one child in the background; jobs that come earlier wait for it."""
        self._warm_up = asyncio.create_task(self._start_first_child())

    async def stop(self) -> None:
        """Ends all children; nobody may be waiting for one any more."""
        if self._warm_up is not None:
            self._warm_up.cancel()
            await asyncio.gather(self._warm_up, return_exceptions=True)
        self._idle.clear()
        for child in list(self._children):
            await self._end_child(child)

    def pids(self) -> tuple[int, ...]:
        """Of the children that run now, busy or not."""
        return tuple(child.pid for child in self._children)

    async def run(self, spec: ConstraintSpec) -> Verdict:
        """Cancelling it kills the child that works on it.

        Raises: UnsupportedConstraint, ConstraintTooExpensive; GrammarError where no child can be
        started.
        """
        if self._time_limit_s > QUICK_S:
            try:
                return await self._run_in(self._quick, spec, QUICK_S)
            except TimeExceeded:
                pass
        lane = self._slow if self._time_limit_s > QUICK_S else self._quick
        return await self._run_in(lane, spec, self._time_limit_s)

    async def _run_in(
        self, lane: asyncio.Semaphore, spec: ConstraintSpec, time_limit_s: float
    ) -> Verdict:
        limits = TimeLimits(time_limit_s, WALL_FACTOR * time_limit_s)
        async with lane:
            for _ in range(MAX_TRIES):
                child = await self._take_child()
                try:
                    verdict = await child.run(spec, limits=limits)
                except ChildGone:
                    await self._end_child(child)
                    continue
                except (UnsupportedConstraint, ConstraintTooExpensive):
                    await self._give_back(child)
                    raise
                except BaseException:
                    await self._end_child(child)
                    raise
                await self._give_back(child)
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
        return await self._start_child(is_urgent=False)

    async def _give_back(self, child: ProbeProcess) -> None:
        if len(self._idle) < MAX_IDLE:
            self._idle.append(child)
        else:
            await self._end_child(child)

    async def _start_child(self, *, is_urgent: bool) -> ProbeProcess:
        child = await ProbeProcess.start(
            self._vocabulary, memory_limit_bytes=self._memory_limit_bytes, is_urgent=is_urgent
        )
        self._children.add(child)
        return child

    async def _start_first_child(self) -> None:
        self._idle.append(await self._start_child(is_urgent=True))

    async def _end_child(self, child: ProbeProcess) -> None:
        self._children.discard(child)
        await child.kill()
