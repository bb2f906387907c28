"""The two children of a probe: who gets which, and for how long.

Every constraint gets a moment at low priority, which is enough for most. What needs more waits for
the other child, which takes only time that nobody else wants. So ten bad schemas neither stand in
the way of a good one nor take anything from streams that run.
"""

import asyncio

from grammar.errors import ConstraintTooExpensive, GrammarError, UnsupportedConstraint
from grammar.matcher import Vocabulary
from grammar.probe_frames import TimeLimits, Verdict
from grammar.probe_process import ChildGone, ProbeProcess, TimeExceeded
from grammar.spec import ConstraintSpec

# Most schemas compile in 3 ms. The time on the clock is for a tenth of a core.
QUICK = TimeLimits(cpu_s=0.02, wall_s=0.5)
# At idle priority beside a running model a process has about a tenth of a core. What is not done
# after so many times its limit of computing time is given up.
WALL_FACTOR = 5.0
# Children that may turn out to be dead when they get a job, before something must be wrong.
MAX_TRIES = 3


class ProbeChildren:
    """Owned by one event loop."""

    def __init__(
        self, vocabulary: Vocabulary, *, time_limit_s: float, memory_limit_bytes: int
    ) -> None:
        self._limits = TimeLimits(time_limit_s, WALL_FACTOR * time_limit_s)
        self._quick = _Lane(vocabulary, memory_limit_bytes, is_quick=True)
        self._slow = _Lane(vocabulary, memory_limit_bytes, is_quick=False)

    def warm_up(self) -> None:
        """Starts one child in the background; jobs that come earlier wait for it."""
        self._quick.warm_up()

    def close(self) -> None:
        """From now on a cancelled job ends its child."""
        self._quick.is_closing = self._slow.is_closing = True

    async def stop(self) -> None:
        """Ends all children; nobody may be waiting for one any more."""
        await self._quick.stop()
        await self._slow.stop()

    def pids(self) -> tuple[int, ...]:
        """Of the children that run now, busy or not."""
        lanes = (self._quick, self._slow)
        return tuple(lane.child.pid for lane in lanes if lane.child is not None)

    async def run(self, spec: ConstraintSpec) -> Verdict:
        """Cancelling it ends the job.

        Raises: UnsupportedConstraint, ConstraintTooExpensive; GrammarError where no child can be
        started.
        """
        if self._limits.cpu_s <= QUICK.cpu_s:
            return await self._quick.run(spec, self._limits)
        try:
            return await self._quick.run(spec, QUICK)
        except TimeExceeded:
            return await self._slow.run(spec, self._limits)


class _Lane:
    """One child and those who wait for it. It is started when it is first needed."""

    def __init__(self, vocabulary: Vocabulary, memory_limit_bytes: int, *, is_quick: bool) -> None:
        self._vocabulary = vocabulary
        self._memory_limit_bytes = memory_limit_bytes
        self._is_quick = is_quick
        self._turn = asyncio.Lock()
        self._start: asyncio.Task[None] | None = None
        self.child: ProbeProcess | None = None
        self.is_closing = False

    def warm_up(self) -> None:
        self._start = asyncio.create_task(self._start_child())

    async def stop(self) -> None:
        if self._start is not None:
            self._start.cancel()
            await asyncio.gather(self._start, return_exceptions=True)
        await self._end_child()

    async def run(self, spec: ConstraintSpec, limits: TimeLimits) -> Verdict:
        async with self._turn:
            for _ in range(MAX_TRIES):
                child = await self._living_child()
                try:
                    return await child.run(spec, limits=limits)
                except ChildGone:
                    await self._end_child()
                except (UnsupportedConstraint, ConstraintTooExpensive):
                    raise
                except asyncio.CancelledError:
                    if self.is_closing or not await child.drop_job():
                        await self._end_child()
                    raise
                except BaseException:
                    await self._end_child()
                    raise
        raise GrammarError("the constraint checker keeps dying before it can work")

    async def _living_child(self) -> ProbeProcess:
        if self.child is not None and not self.child.is_alive:
            await self._end_child()
        if self.child is None:
            start = self._start or asyncio.create_task(self._start_child())
            self._start = start
            # Who leaves meanwhile does not take the child from those who come after.
            await asyncio.shield(start)
        assert self.child is not None
        return self.child

    async def _start_child(self) -> None:
        try:
            self.child = await ProbeProcess.start(
                self._vocabulary,
                memory_limit_bytes=self._memory_limit_bytes,
                is_quick=self._is_quick,
            )
        finally:
            self._start = None

    async def _end_child(self) -> None:
        child, self.child = self.child, None
        if child is not None:
            await child.kill()
