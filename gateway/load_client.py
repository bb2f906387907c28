"""Plays conversations on any OpenAI-compatible server, from one event loop.

A closed loop sends a user's next turn when the last answer has ended; an open loop begins
conversations when their time has come. Called by `gateway.bench_session`. What comes in is noted
at once and read in slices between arrivals, so that reading delays no time stamp by more than a
fraction of a millisecond.
"""

import asyncio
import gc
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from gateway.load_connection import Link
from telemetry.answer_stream import (
    Answer,
    RecordedStream,
    StreamError,
    read_answer,
    read_slices,
)
from telemetry.bench_run import Failure
from telemetry.request_bodies import Dialect
from telemetry.workloads import Body, Conversation, Script

_NS = 1e9
# So that a server that has gone away is not asked thousands of times a second.
_AFTER_FAILURE_S = 0.05


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """One request: the turn of a user, and the answer or why there is none. Times are monotonic
    nanoseconds; `schema` is what the answer had to fit."""

    user: int
    turn: int
    scheduled_ns: int
    start_ns: int
    end_ns: int
    answer: Answer | None
    failure: Failure | None = None
    schema: object | None = None


@dataclass(frozen=True, slots=True)
class PlayedLoad:
    """All requests of one load, in the order in which they ended. `num_aborted` were under way
    when it was stopped by hand; `num_unsent`: of an open loop, those whose time came before the
    end and that still waited for a place then."""

    turns: tuple[PlayedTurn, ...]
    start_ns: int
    end_ns: int
    cpu_s: float
    num_aborted: int = 0
    num_unsent: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be played. `begin_s` None = a closed loop of `num_clients`; else each script
    begins at its time, with `max_in_flight` requests under way at most: more wait, and are late.
    No request is sent after `max_requests`, nor `duration_s` after the start."""

    scripts: Iterable[Script]
    num_clients: int = 1
    begin_s: Iterable[float] | None = None
    max_in_flight: int = 1024
    max_requests: int | None = None
    duration_s: float | None = None


@dataclass(eq=False, slots=True)
class Counts:
    """How a load stands, for who watches it."""

    start_ns: int = 0
    num_sent: int = 0
    num_done: int = 0
    num_failed: int = 0
    num_unsent: int = 0
    is_out_of_time: bool = False
    turns: list[PlayedTurn] = field(default_factory=list)


class Stop:
    """Set by hand (Ctrl-C): no further request is sent, and those under way are given up."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


async def play(
    link: Link,
    model: str,
    load: Load,
    *,
    dialect: Dialect,
    stop: Stop | None = None,
    watch: Callable[[Counts], None] | None = None,
) -> PlayedLoad:
    """To the end of the last answer, or to `stop`. `watch` is called a few times a second."""
    stage = _Stage(link, model, load, dialect=dialect)
    stop = stop or Stop()
    with _no_collection():
        start_cpu_s = time.process_time()
        stage.counts.start_ns = time.perf_counter_ns()
        work = asyncio.create_task(stage.play())
        watcher = asyncio.create_task(_watch(watch, stage.counts))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for task in (work, watcher, stopped):
                task.cancel()
            await asyncio.gather(work, watcher, stopped, return_exceptions=True)
        end_ns = time.perf_counter_ns()
        stage.read_the_rest()
        cpu_s = time.process_time() - start_cpu_s
    counts = stage.counts
    last_ns = max((turn.end_ns for turn in counts.turns), default=end_ns)
    if counts.is_out_of_time and load.duration_s is not None:  # it lasted, whatever came in it
        last_ns = max(last_ns, counts.start_ns + round(load.duration_s * _NS))
    return PlayedLoad(
        turns=tuple(counts.turns),
        start_ns=counts.start_ns,
        end_ns=end_ns if stop.is_set else last_ns,
        cpu_s=cpu_s,
        num_aborted=counts.num_sent - len(counts.turns),
        num_unsent=counts.num_unsent,
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """A search for cycles takes tens of milliseconds where so much is kept."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def _watch(watch: Callable[[Counts], None] | None, counts: Counts) -> None:
    while watch is not None:
        watch(counts)
        await asyncio.sleep(0.2)


class _Reader:
    """Reads recorded streams, one after the other and each in slices."""

    def __init__(self, *, needs_usage: bool) -> None:
        self._needs_usage = needs_usage
        self._turn = asyncio.Lock()

    async def read(self, stream: RecordedStream) -> Answer:
        """Raises: StreamError."""
        async with self._turn:
            slices = read_slices(stream, needs_usage=self._needs_usage)
            while True:
                try:
                    next(slices)
                except StopIteration as end:
                    answer: Answer = end.value
                    return answer
                await asyncio.sleep(0)


class _Stage:
    """What the clients of one load share."""

    def __init__(self, link: Link, model: str, load: Load, *, dialect: Dialect) -> None:
        self.counts = Counts()
        self._link = link
        self._model = model
        self._load = load
        self._dialect = dialect
        self._reader = _Reader(needs_usage=dialect.tells_usage)
        self._places = asyncio.Semaphore(load.max_in_flight)
        self._unread: set[_Asked] = set()
        self._tasks: asyncio.TaskGroup | None = None

    async def play(self) -> None:
        """Returns when the last answer has been read."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            if self._load.begin_s is None:
                waiting = iter(enumerate(self._load.scripts))
                for _ in range(self._load.num_clients):
                    tasks.create_task(self._play_all(waiting))
            else:
                await self._play_at(self._load.begin_s)

    async def _play_all(self, waiting: Iterator[tuple[int, Script]]) -> None:
        """A client of the closed loop."""
        for user, script in waiting:
            await self._play(user, Conversation(script), begin_ns=time.perf_counter_ns())
            if not self._may_send():
                return

    async def _play_at(self, begin_s: Iterable[float]) -> None:
        assert self._tasks is not None
        for user, (at_s, script) in enumerate(zip(begin_s, self._load.scripts, strict=False)):
            if self._is_after_the_end(at_s):
                self.counts.is_out_of_time = True
                return
            begin_ns = self.counts.start_ns + round(at_s * _NS)
            await _sleep_until(begin_ns)
            if not self._may_send():
                return
            self._tasks.create_task(self._play(user, Conversation(script), begin_ns=begin_ns))
            await asyncio.sleep(0)  # it sends before the next one is looked at

    async def _play(self, user: int, conversation: Conversation, *, begin_ns: int) -> None:
        while not conversation.is_over:
            turn = conversation.num_answered
            if turn:
                begin_ns += round(conversation.script.think_time_s * _NS)
                await _sleep_until(begin_ns)
            async with self._places:
                if not self._may_send():
                    self.counts.num_unsent += turn == 0 and self._load.begin_s is not None
                    return
                played = await self._ask(user, conversation, begin_ns)
            if played.stream.failure is not None and not played.stream.status:
                await asyncio.sleep(_AFTER_FAILURE_S)
            if turn + 1 == len(conversation.script.turns):
                assert self._tasks is not None
                self._tasks.create_task(self._read(played))  # nobody waits for what it says
                return
            answer = await self._read(played)
            if answer is None:
                return
            conversation.add_answer(answer.text)
            begin_ns = max(played.stream.end_ns, time.perf_counter_ns())

    async def _ask(self, user: int, conversation: Conversation, begin_ns: int) -> "_Asked":
        body: Body = self._dialect.body(conversation.next_body(self._model))
        turn, schema = conversation.num_answered, conversation.turn.schema
        content = _encoded(body)
        self.counts.num_sent += 1
        stream = await self._link.send("POST", self._dialect.endpoint.path, content)
        self.counts.num_done += 1
        scheduled_ns = stream.start_ns if self._load.begin_s is None else begin_ns
        asked = _Asked(user, turn, scheduled_ns, stream, schema)
        self._unread.add(asked)
        return asked

    async def _read(self, asked: "_Asked") -> Answer | None:
        found: Answer | StreamError
        try:
            found = await self._reader.read(asked.stream)
        except StreamError as error:
            found = error
        return self._note(asked, found)

    def read_the_rest(self) -> None:
        """What has come but was not read before the load was stopped; at once."""
        for asked in list(self._unread):
            found: Answer | StreamError
            try:
                found = read_answer(asked.stream, needs_usage=self._dialect.tells_usage)
            except StreamError as error:
                found = error
            self._note(asked, found)

    def _note(self, asked: "_Asked", found: Answer | StreamError) -> Answer | None:
        answer, failure = None, None
        if isinstance(found, Answer):
            answer = found
        else:
            failure = Failure(found.kind, str(found), found.status)
            self.counts.num_failed += 1
        asked.stream.pieces.clear()
        self._unread.discard(asked)
        self.counts.turns.append(
            PlayedTurn(
                user=asked.user,
                turn=asked.turn,
                scheduled_ns=asked.scheduled_ns,
                start_ns=asked.stream.start_ns,
                end_ns=asked.stream.end_ns,
                answer=answer,
                failure=failure,
                schema=asked.schema,
            )
        )
        return answer

    def _may_send(self) -> bool:
        most = self._load.max_requests
        if most is not None and self.counts.num_sent >= most:
            return False
        elapsed_s = (time.perf_counter_ns() - self.counts.start_ns) / _NS
        return not self._is_after_the_end(elapsed_s)

    def _is_after_the_end(self, at_s: float) -> bool:
        return self._load.duration_s is not None and at_s >= self._load.duration_s


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A request whose answer has not been read."""

    user: int
    turn: int
    scheduled_ns: int
    stream: RecordedStream
    schema: object | None


def _encoded(body: Body) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # halves of characters, from a file or an answer: only as escapes
        return json.dumps(body).encode()


async def _sleep_until(at_ns: int) -> None:
    """Never less: the loop's own timers may be half a millisecond early."""
    while (left_ns := at_ns - time.perf_counter_ns()) > 0:  # noqa: ASYNC110
        await asyncio.sleep(left_ns / _NS)
