"""The whole token path in one process and one thread, with the test in control of the steps.

The gateway's own RemoteEngine and the runtime's own loop, with queues of encoded frames where
their two sockets would be: only ZeroMQ and the second process are left out.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import zmq

from grammar.engines import load_engine
from grammar.matcher import Vocabulary
from prefix_cache import PrefixCache
from prefix_cache.evicted_log import EvictedLog
from runtime import wire
from runtime.batch import Executor
from runtime.config import RuntimeConfig
from runtime.engine import Engine
from runtime.grammar_builder import EngineLoader, GrammarBuilder
from runtime.loop import Doorbell, RuntimeLoop
from runtime.messages import EngineInfo, StepSpan, Submit, ToRuntime
from runtime.remote_engine import RemoteEngine
from runtime.token_engine import EngineState

if TYPE_CHECKING:
    from runtime.token_stream import TokenStream

GATEWAY = b"gateway"
# Turns of the event loop between two steps: all that the gateway can do without waiting for
# anybody. A step of a real model takes as long as thousands of them.
TURNS_A_STEP = 30


class ShiftedClock:
    """Wall-clock nanoseconds that a test can put forward."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    def __call__(self) -> int:
        return time.time_ns() + self._ahead_ns

    def skip(self, seconds: float) -> None:
        self._ahead_ns += int(seconds * 1e9)


class FrameQueues:
    """What RuntimeLoop takes for its ROUTER socket."""

    def __init__(self) -> None:
        self.to_runtime: deque[bytes] = deque()
        self.to_gateway: deque[bytes] = deque()

    def recv_multipart(self, _flags: int) -> list[bytes]:
        if not self.to_runtime:
            raise zmq.Again
        return [GATEWAY, self.to_runtime.popleft()]

    def send_multipart(self, parts: tuple[bytes, bytes], _flags: int) -> None:
        self.to_gateway.append(parts[1])


class SteppedEngine(RemoteEngine):
    """A TokenEngine over `executor`. Steps follow each other by themselves while there is work,
    except between hold() and release(), when only step() takes one. `runtime` and `cache` are
    the engine's and may be looked at; `submitted` is what the gateway sent, `num_steps` counts
    the loop's turns.
    """

    def __init__(
        self,
        executor: Executor,
        info: EngineInfo,
        *,
        config: RuntimeConfig,
        vocabulary: Vocabulary,
        load: EngineLoader = load_engine,
        on_step: Callable[[StepSpan], None] | None = None,
    ) -> None:
        super().__init__("inproc://stepped", heartbeat_s=3600.0, on_step=on_step)
        self.clock = ShiftedClock()
        evicted = EvictedLog(clock_ns=self.clock)
        self.cache = PrefixCache(
            num_pages=info.num_pages,
            page_size=info.page_size,
            clock_ns=self.clock,
            observer=evicted,
        )
        self.submitted: list[Submit] = []
        self.num_steps = 0
        self._grammar = GrammarBuilder(vocabulary, load=load, on_ready=self._wake_from_thread)
        self.runtime = Engine(
            executor=executor,
            cache=self.cache,
            info=info,
            config=config,
            grammar=self._grammar,
            clock=self.clock,
            evicted=evicted,
        )
        self._frames = FrameQueues()
        self._doorbell = Doorbell()
        self._loop = RuntimeLoop(
            socket=cast("zmq.Socket[bytes]", self._frames),
            engine=self.runtime,
            info=info,
            gateway_timeout_s=3600.0,
            doorbell=self._doorbell,
        )
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._is_held = False
        self._woken = asyncio.Event()
        self._stepping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        self._ping()
        self._turn()
        assert self.state is EngineState.READY
        self._stepping = asyncio.create_task(self._step_while_there_is_work())

    async def stop(self) -> None:
        await super().stop()
        if self._stepping is not None:
            self._stepping.cancel()
            await asyncio.wait([self._stepping])
        self._grammar.close()
        self._doorbell.close()

    def check(self) -> None:
        """Raises what a step raised: a broken step must not pass for a runtime that died."""
        if self._stepping is not None and self._stepping.done() and not self._stepping.cancelled():
            self._stepping.result()

    def hold(self) -> None:
        """From now on nothing is computed, nor even received, but by step()."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._woken.set()

    async def step(self) -> None:
        """One turn of a held runtime, and all that the gateway does with what came of it."""
        assert self._is_held, "steps are being taken already"
        await self._step()

    def beat(self) -> None:
        """What the heartbeat would send once a second; the runtime answers with its gauges."""
        self._ping()

    def submit(self, request: Submit) -> "TokenStream":
        self.submitted.append(request)
        return super().submit(request)

    def assert_idle(self) -> None:
        """Nothing runs or waits, and each page is free or cached without a lock."""
        self.cache.check_invariants()
        counts, stats = self.cache.counts(), self.runtime.stats()
        assert (stats.num_running, stats.num_waiting) == (0, 0)
        assert (counts.held, counts.locked) == (0, 0)
        assert counts.free + counts.cached == counts.total
        assert self.runtime.next_deadline_ns() is None

    def _send(self, message: ToRuntime) -> bool:
        self._frames.to_runtime.append(wire.encode(message))
        self._woken.set()
        return True

    async def _step_while_there_is_work(self) -> None:
        try:
            while True:
                if self._is_held or not self._has_work():
                    self._woken.clear()
                    await self._woken.wait()
                else:
                    await self._step()
        except Exception as error:
            self.declare_lost(f"a step failed: {error!r}")
            raise

    def _has_work(self) -> bool:
        return bool(self._frames.to_runtime) or self._loop.has_work()

    async def _step(self) -> None:
        self._turn()
        for _ in range(TURNS_A_STEP):
            await asyncio.sleep(0)

    def _turn(self) -> None:
        self.num_steps += 1
        self._loop.turn()
        self.cache.check_invariants()
        while self._frames.to_gateway:
            self._on_frames([self._frames.to_gateway.popleft()])

    def _wake_from_thread(self) -> None:
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self._woken.set)
