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
MAX_CHILDREN = NUM_QUICK + NUM_SLOW
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
        self._idle: asyncio.LifoQueue[ProbeProcess] = asyncio.LifoQueue()
        self._starts: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def warm_up(self) -> None:
        """Starts one child in the background; jobs that come earlier wait for it."""
        self._begin_start(is_urgent=True)

    def close(self) -> None:
        """From now on a cancelled job ends its child."""
        self._is_closing = True

    async def stop(self) -> None:
        """Ends all children; nobody may be waiting for one any more."""
        for start in self._starts:
            start.cancel()
        await asyncio.gather(*self._starts, return_exceptions=True)
        for child in list(self._children):
            await self._end_child(child)

    def pids(self) -> tuple[int, ...]:
        """Of the children that run now, busy or not."""
        return tuple(child.pid for child in self._children)

    async def run(self, spec: ConstraintSpec) -> Verdict:
        """Cancelling it ends the job.

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
                except asyncio.CancelledError:
                    await self._drop_job(child)
                    raise
                except BaseException:
                    await self._end_child(child)
                    raise
                await self._give_back(child)
                return verdict
        raise GrammarError("the constraint checker keeps dying before it can work")

    async def _take_child(self) -> ProbeProcess:
        """The first that is idle or has started, whichever comes first."""
        while True:
            has_room = len(self._children) < MAX_CHILDREN and not self._starts
            if has_room and self._idle.empty():
                self._begin_start(is_urgent=False)
            child = await self._next_idle()
            if child.is_alive:
                return child
            await self._end_child(child)

    async def _next_idle(self) -> ProbeProcess:
        """Raises: GrammarError where a start fails meanwhile."""
        idle = asyncio.ensure_future(self._idle.get())
        try:
            while not idle.done():
                await asyncio.wait({idle, *self._starts}, return_when=asyncio.FIRST_COMPLETED)
                failed = [start for start in self._starts if start.done()]
                self._starts.difference_update(failed)
                for start in failed:
                    if not idle.done():
                        start.result()
            return idle.result()
        except BaseException:
            if not idle.cancel() and not idle.cancelled():
                self._idle.put_nowait(idle.result())
            raise

    async def _give_back(self, child: ProbeProcess) -> None:
        if self._idle.qsize() < MAX_IDLE:
            self._idle.put_nowait(child)
        else:
            await self._end_child(child)

    async def _drop_job(self, child: ProbeProcess) -> None:
        if not self._is_closing and await child.drop_job():
            await self._give_back(child)
        else:
            await self._end_child(child)

    def _begin_start(self, *, is_urgent: bool) -> None:
        self._starts.add(asyncio.create_task(self._start_child(is_urgent=is_urgent)))

    async def _start_child(self, *, is_urgent: bool) -> None:
        child = await ProbeProcess.start(
            self._vocabulary, memory_limit_bytes=self._memory_limit_bytes, is_urgent=is_urgent
        )
        self._children.add(child)
        self._idle.put_nowait(child)

    async def _end_child(self, child: ProbeProcess) -> None:
        self._children.discard(child)
        await child.kill()
