"""Keeps one embedded runtime alive: the TokenEngine that a gateway on one machine uses.

Owns the child process, its private socket and its restarts. A child that exits or hangs is
replaced at once, a few times within a while; then, or when the model cannot be loaded, the state
is FAILED and `failure` says why. There is never more than one child, and none outlives us.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runtime import worker_process
from runtime.cache_messages import CacheAnswer, CacheQuery
from runtime.config import RuntimeConfig
from runtime.errors import RuntimePackageError
from runtime.messages import EngineInfo, EngineStats, StepSpan, Submit, TokenEvent
from runtime.remote_engine import RemoteEngine
from runtime.token_engine import EngineState, EngineUnavailable
from runtime.wire import new_ipc_address
from runtime.worker_options import EXIT_LOAD_FAILED, WorkerOptions

logger = logging.getLogger(__name__)

# How long a child whose connection broke gets to end by itself, so that we can say how.
EXIT_NOTICE_S = 0.5

LOAD_FAILED = "the model could not be loaded; the runtime's last line on stderr says why"


@dataclass(frozen=True, slots=True)
class SupervisorPolicy:
    """Times and limits of supervision.

    `hang_timeout_s` counts only after a child has loaded; it must exceed the longest step.
    `load_timeout_s` is for a load that hangs. After `max_restarts` within `restart_window_s` no
    more are made. The pause before a restart doubles with each recent one.
    """

    heartbeat_s: float = 1.0
    hang_timeout_s: float = 60.0
    load_timeout_s: float = 900.0
    max_restarts: int = 5
    restart_window_s: float = 600.0
    first_backoff_s: float = 0.1
    max_backoff_s: float = 10.0
    stop_grace_s: float = 5.0


@dataclass(frozen=True, slots=True)
class LogFormat:
    """How the child logs; as its parent does."""

    level: str = "info"
    json_lines: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an incarnation ended, and whether another could do better."""

    reason: str
    is_final: bool = False


class RestartBudget:
    """Counts recent restarts; gives the pause before the next, None when it is used up."""

    def __init__(self, policy: SupervisorPolicy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._recent: deque[float] = deque()

    def take(self) -> float | None:
        now = self._clock()
        while self._recent and now - self._recent[0] > self._policy.restart_window_s:
            self._recent.popleft()
        if len(self._recent) >= self._policy.max_restarts:
            return None
        backoff_s = self._policy.first_backoff_s * 2.0 ** len(self._recent)
        self._recent.append(now)
        return min(backoff_s, self._policy.max_backoff_s)


class EngineSupervisor:
    """A TokenEngine whose runtime is a child process. Belongs to one event loop."""

    def __init__(
        self,
        config: RuntimeConfig,
        *,
        engine_id: str = "embedded",
        policy: SupervisorPolicy | None = None,
        logs: LogFormat | None = None,
        cache_redis_url: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_step: Callable[[StepSpan], None] | None = None,
    ) -> None:
        """`cache_redis_url` may hold a password: it is no part of `config`, which is an argument
        of the child. `on_step` as RemoteEngine has it."""
        self.failure: str | None = None
        self.num_restarts = 0
        self._config = config
        self._engine_id = engine_id
        self._policy = policy or SupervisorPolicy()
        self._logs = logs or LogFormat()
        self._cache_redis_url = cache_redis_url
        self._on_step = on_step
        self._budget = RestartBudget(self._policy, clock)
        self._remote: RemoteEngine | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._info: EngineInfo | None = None
        self._end_state: EngineState | None = None
        self._stop_requested = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> EngineState:
        if self._end_state is not None:
            return self._end_state
        remote = self._remote  # once: another thread may ask while the loop replaces it
        if remote is not None and remote.state is EngineState.READY:
            return EngineState.READY
        return EngineState.STARTING if self._info is None else EngineState.DEAD

    @property
    def info(self) -> EngineInfo | None:
        remote = self._remote
        return self._info if remote is None else remote.info or self._info

    @property
    def stats(self) -> EngineStats:
        remote = self._remote
        return EngineStats() if remote is None else remote.stats

    @property
    def child_pid(self) -> int | None:
        """The runtime's process id; None while there is none."""
        if self._process is None or self._process.returncode is not None:
            return None
        return self._process.pid

    async def start(self) -> None:
        """Begins to start the runtime; does not wait until it is READY. Idempotent."""
        if self._task is None and self._end_state is None:
            self._task = asyncio.create_task(self._supervise(), name="engine-supervisor")

    async def stop(self) -> None:
        """Fails what is in flight, ends the child, removes its socket. Idempotent."""
        self._stop_requested.set()
        if self._task is not None:
            # Not awaited itself: whoever cancels us must not cut the child's end short.
            await asyncio.wait({self._task})
        self._settle(EngineState.STOPPED, self.failure)

    async def wait_ready(self, timeout_s: float) -> None:
        """Raises: EngineUnavailable once it cannot become READY any more, TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while self.state is not EngineState.READY:
                if self._end_state is not None:
                    raise EngineUnavailable(self._why_unavailable())
                self._changed.clear()
                await self._changed.wait()

    def submit(self, request: Submit) -> AsyncIterator[TokenEvent]:
        if self._remote is None or self.state is not EngineState.READY:
            raise EngineUnavailable(self._why_unavailable())
        return self._remote.submit(request)

    async def ask(self, query: CacheQuery) -> CacheAnswer:
        if self._remote is None or self.state is not EngineState.READY:
            raise EngineUnavailable(self._why_unavailable())
        return await self._remote.ask(query)

    def abort(self, request_id: str, choice: int | None = None) -> None:
        if self._remote is not None:
            self._remote.abort(request_id, choice)

    def _why_unavailable(self) -> str:
        match self.state:
            case EngineState.STARTING:
                return "the runtime is loading the model"
            case EngineState.STOPPED:
                return "the server is stopping"
            case EngineState.FAILED:
                return self.failure or "the runtime has failed"
            case _:
                return f"the runtime is being restarted: {self.failure}"

    def _settle(self, state: EngineState, failure: str | None) -> None:
        self._end_state = state
        self.failure = failure
        self._changed.set()

    async def _supervise(self) -> None:
        try:
            with worker_process.private_folder() as folder:
                ending = await self._run_incarnations(folder)
        except RuntimePackageError as error:
            ending = Ending(str(error))
        except Exception:
            logger.exception("the supervisor of the runtime failed")
            ending = Ending("the supervisor of the runtime failed; the log says why")
        if not self._stop_requested.is_set():
            if self._info is not None or not ending.is_final:
                # A load that fails at the start is told by wait_ready alone.
                logger.error("the runtime stays down: %s", ending.reason)
            self._settle(EngineState.FAILED, ending.reason)

    async def _run_incarnations(self, folder: Path) -> Ending:
        """One child after the other, until none may follow or stop is requested."""
        while True:
            ending = await self._run_incarnation(folder)
            if ending.is_final or self._stop_requested.is_set():
                return ending
            pause_s = self._budget.take()
            if pause_s is None:
                return Ending(f"{ending.reason}; {self._policy.max_restarts} restarts did not help")
            self.failure = ending.reason
            self.num_restarts += 1
            logger.warning("%s; restart %d in %g s", ending.reason, self.num_restarts, pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stop_requested.wait()

    async def _run_incarnation(self, folder: Path) -> Ending:
        if self._stop_requested.is_set():
            return Ending("stopped")
        failure_path = folder / "failure"
        options = WorkerOptions(
            new_ipc_address(folder),
            self._config,
            engine_id=self._engine_id,
            parent_pid=os.getpid(),
            failure_path=str(failure_path),
            log_level=self._logs.level,
            log_json=self._logs.json_lines,
        )
        try:
            process = await worker_process.launch(options, cache_redis_url=self._cache_redis_url)
        except OSError as error:
            return Ending(f"the runtime's process could not be started: {error}")
        remote = self._connect(options.address)
        self._remote, self._process = remote, process
        try:
            await remote.start()
            return await self._watch(process, remote, failure_path)
        finally:
            await self._end(process, remote)

    def _connect(self, address: str) -> RemoteEngine:
        return RemoteEngine(
            address,
            heartbeat_s=self._policy.heartbeat_s,
            hang_timeout_s=self._policy.hang_timeout_s,
            on_step=self._on_step,
        )

    async def _watch(
        self, process: asyncio.subprocess.Process, remote: RemoteEngine, failure_path: Path
    ) -> Ending:
        news = News(process, remote, stop_requested=self._stop_requested)
        try:
            ending = await self._watch_loading(news, failure_path)
            if ending is None:
                self._info, self.failure = remote.info, None
                self._changed.set()
                ending = await self._watch_serving(remote, news)
            return ending
        finally:
            news.cancel()

    async def _watch_loading(self, news: "News", failure_path: Path) -> Ending | None:
        """None once the child serves. Here silence is no sign of a hang."""
        timeout_s = self._policy.load_timeout_s
        await _first_of(news.stopped, news.ready, news.exited, timeout_s=timeout_s)
        if news.stopped.done():
            return Ending("stopped")
        if news.ready.done():
            return None
        if not news.exited.done():
            return Ending(f"the model was not loaded within {timeout_s:g} s")
        if news.exited.result() != EXIT_LOAD_FAILED:
            return Ending(worker_process.describe_exit(news.exited.result()) + " while loading")
        return Ending(worker_process.read_failure(failure_path) or LOAD_FAILED, is_final=True)

    async def _watch_serving(self, remote: RemoteEngine, news: "News") -> Ending:
        while True:
            lost = asyncio.create_task(remote.lost.wait())
            try:
                await _first_of(news.stopped, news.exited, lost)
            finally:
                lost.cancel()
            if news.stopped.done():
                return Ending("stopped")
            # A broken connection is mostly noticed a moment before the exit that broke it; and
            # a runtime that had only given us up, as silent, is READY again by then.
            await _first_of(news.exited, timeout_s=EXIT_NOTICE_S)
            if news.exited.done():
                reason = worker_process.describe_exit(news.exited.result())
                remote.declare_lost(reason)
                return Ending(reason)
            if remote.state is not EngineState.READY:
                return Ending(remote.failure or "the runtime was lost")

    async def _end(self, process: asyncio.subprocess.Process, remote: RemoteEngine) -> None:
        """However the watch ended, cancelled included: no child is left behind."""
        if self._stop_requested.is_set():
            await remote.stop()
            await worker_process.terminate(process, grace_s=self._policy.stop_grace_s)
        else:
            await worker_process.kill(process)
            await remote.stop()
        # No gauge of a dead runtime is reported as if it were alive.
        self._remote = None


class News:
    """What can happen to one incarnation, as tasks that end when it does."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        remote: RemoteEngine,
        *,
        stop_requested: asyncio.Event,
    ) -> None:
        self.exited = asyncio.create_task(process.wait())
        self.stopped = asyncio.create_task(stop_requested.wait())
        self.ready = asyncio.create_task(remote.ready.wait())

    def cancel(self) -> None:
        for task in (self.exited, self.stopped, self.ready):
            task.cancel()


async def _first_of(
    *tasks: "asyncio.Task[int] | asyncio.Task[Literal[True]]", timeout_s: float | None = None
) -> None:
    """Returns when one of the tasks is done or the time is up."""
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
