"""A TokenEngine over ZeroMQ: the gateway's view of a runtime in another process or machine.

Connects to an address and owns no process (runtime.supervisor does). Belongs to one event loop.
The state follows the runtime: a first pong makes it READY, a broken connection, silence or a new
incarnation makes it DEAD and fails what was in flight, the next pong makes it READY again; one
that does not fit is REFUSED, and the log says why.
"""

import asyncio
import logging
import math
import uuid
from collections.abc import Awaitable, Callable
from typing import assert_never

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from runtime import wire
from runtime.cache_messages import (
    CacheAnswer,
    CacheDescription,
    CacheExplanation,
    CacheFault,
    CacheFlushed,
    CacheQuery,
)
from runtime.messages import (
    PROTOCOL_VERSION,
    Abort,
    EngineFault,
    EngineInfo,
    EngineStats,
    ErrorCode,
    Goodbye,
    Ping,
    Pong,
    StepOutput,
    StepSpan,
    Submit,
    ToGateway,
    TokenEvent,
    ToRuntime,
)
from runtime.pending_answers import PendingAnswers
from runtime.token_engine import EngineState, EngineUnavailable
from runtime.token_stream import EventInbox, TokenStream

logger = logging.getLogger(__name__)

CheckInfo = Callable[[EngineInfo], Awaitable[str | None]]

# How long stop() gives the last aborts to leave.
CLOSE_LINGER_MS = 200

# A question is answered between two steps; the runtime owes no longer wait than this.
ANSWER_TIMEOUT_S = 10.0

# A greeting that could not leave yet is tried again after this.
CONNECT_RETRY_S = 0.1

LOST_EVENTS = "events of this request were lost between runtime and gateway"
CONNECTION_LOST = "the connection to the runtime was lost"
RESTARTED = "the runtime was restarted"
STOPPED = "the server is stopping"
NOT_TAKEN = "the runtime does not take messages at the moment"


class RemoteEngine:
    """One connection to one runtime.

    `heartbeat_s` is the pause between pings, `hang_timeout_s` how long a runtime that was ready
    may leave them unanswered. Silence is counted in beats of this side, so that a gateway which
    itself stood still does not take its runtime for dead. Request ids may not be used twice.
    """

    def __init__(
        self,
        address: str,
        *,
        gateway_id: str | None = None,
        heartbeat_s: float = 1.0,
        hang_timeout_s: float = 30.0,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        check: CheckInfo | None = None,
        on_step: Callable[[StepSpan], None] | None = None,
    ) -> None:
        """`check` says why a runtime that has come is not to be used, None where it is. `on_step`
        is told of the steps that the runtime has recorded."""
        self.address = address
        self.failure: str | None = None
        self.ready = asyncio.Event()
        self.lost = asyncio.Event()
        self._gateway_id = gateway_id or uuid.uuid4().hex
        self._on_step_span = on_step
        self._heartbeat_s = heartbeat_s
        self._retry_s = min(heartbeat_s, CONNECT_RETRY_S)
        self._max_silent_beats = math.ceil(hang_timeout_s / heartbeat_s)
        self._silent_beats = 0
        self._state = EngineState.STARTING
        self._info: EngineInfo | None = None
        self._stats = EngineStats()
        self._inboxes: dict[str, EventInbox] = {}
        self._pending_answers = PendingAnswers(answer_timeout_s)
        self._check = check
        self._checked: str | None = None  # the incarnation that `check` has seen last
        self._checking: asyncio.Task[None] | None = None
        self._garbage = wire.GarbageCounter(logger)
        self._context: zmq.asyncio.Context | None = None
        self._socket: zmq.asyncio.Socket | None = None
        self._monitor: zmq.asyncio.Socket | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def info(self) -> EngineInfo | None:
        return self._info

    @property
    def stats(self) -> EngineStats:
        return self._stats

    async def start(self) -> None:
        """Connects; READY comes with the first pong. A runtime need not be there yet."""
        if self._context is not None:
            return
        self._context = zmq.asyncio.Context()
        socket = self._context.socket(zmq.DEALER)
        wire.configure_dealer(socket)
        events = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
        monitor = socket.get_monitor_socket(events)
        # Known before anything can fail: a socket that is not closed keeps stop() for ever.
        self._socket, self._monitor = socket, monitor
        socket.connect(self.address)
        self._tasks = [
            asyncio.create_task(_handle_forever(socket, self._on_frames), name="engine-receiver"),
            asyncio.create_task(_handle_forever(monitor, self._on_connection), name="engine-link"),
            asyncio.create_task(self._beat_forever(), name="engine-heartbeat"),
        ]

    async def stop(self) -> None:
        """Aborts and fails what is in flight, closes the connection; idempotent."""
        self._abort_all(STOPPED)
        self._state = EngineState.STOPPED
        self.ready.clear()
        tasks, self._tasks = self._tasks, []
        if self._checking is not None:
            tasks.append(self._checking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        context, self._context = self._context, None
        if context is not None:
            self._close_sockets()
            # Waits for the linger time at most, but not in the event loop.
            await asyncio.to_thread(context.term)

    async def wait_ready(self, timeout_s: float) -> None:
        """Raises: TimeoutError if no pong has come by then."""
        async with asyncio.timeout(timeout_s):
            await self.ready.wait()

    def submit(self, request: Submit) -> TokenStream:
        if self._state is not EngineState.READY:
            raise EngineUnavailable(self._why_unavailable())
        if request.request_id in self._inboxes:
            raise ValueError(f"request id {request.request_id!r} is already in flight")
        if not self._send(request):
            raise EngineUnavailable(NOT_TAKEN)
        inbox = EventInbox(request.request_id, request.num_choices, log_fields=request.log_fields)
        self._inboxes[request.request_id] = inbox
        return TokenStream(inbox, self.abort)

    async def ask(self, query: CacheQuery) -> CacheAnswer:
        if self._state is not EngineState.READY:
            raise EngineUnavailable(self._why_unavailable())
        if query.request_id in self._pending_answers:
            raise ValueError(f"question {query.request_id!r} is already asked")
        if not self._send(query):
            raise EngineUnavailable(NOT_TAKEN)
        return await self._pending_answers.wait_for(query.request_id)

    def abort(self, request_id: str, choice: int | None = None) -> None:
        inbox = self._inboxes.get(request_id)
        if inbox is None:
            return
        self._send(Abort(request_id, choice))
        inbox.drop(choice)
        if inbox.is_finished:
            del self._inboxes[request_id]

    def declare_lost(self, reason: str) -> None:
        """Fails everything in flight and waits for the next pong. Called on a broken connection
        or silence, and by a supervisor that knows of the runtime's death first."""
        if self._state is not EngineState.READY:
            return
        logger.warning("%s: %d requests fail", reason, len(self._inboxes))
        self._state = EngineState.DEAD
        self.failure = reason
        self.ready.clear()
        self._abort_all(reason)
        self.lost.set()

    def _why_unavailable(self) -> str:
        match self._state:
            case EngineState.STARTING:
                return "the runtime is starting"
            case EngineState.STOPPED:
                return STOPPED
            case _:
                return f"the runtime is not available: {self.failure}"

    def _send(self, message: ToRuntime) -> bool:
        """False if the message could not be queued: not connected, or the queue is full."""
        if self._socket is None:
            return False
        # Without blocking the future is settled when it is returned.
        sent = asyncio.ensure_future(self._socket.send(wire.encode(message), zmq.NOBLOCK))
        return sent.exception() is None

    def _ping(self) -> bool:
        return self._send(Ping(PROTOCOL_VERSION, self._gateway_id))

    async def _beat_forever(self) -> None:
        while True:
            is_greeted = self._ping() or self._state is EngineState.READY
            await asyncio.sleep(self._heartbeat_s if is_greeted else self._retry_s)
            self._silent_beats += 1
            if self._silent_beats >= self._max_silent_beats:
                self.declare_lost(
                    f"the runtime has been silent for {self._silent_beats * self._heartbeat_s:g} s"
                )

    def _on_connection(self, frames: list[bytes]) -> None:
        if parse_monitor_message(frames)["event"] == zmq.Event.DISCONNECTED:
            self.declare_lost(CONNECTION_LOST)
        else:
            self._ping()

    def _on_frames(self, frames: list[bytes]) -> None:
        try:
            message = wire.decode_for_gateway(b"".join(frames))
        except wire.UndecodableFrame as error:
            self._garbage.add(self.address, str(error))
            return
        self._silent_beats = 0
        self._on_message(message)

    def _on_message(self, message: ToGateway) -> None:
        match message:
            case StepOutput():
                self._on_step(message)
            case Pong():
                self._on_pong(message)
            case Goodbye():
                self._on_goodbye(message.reason)
            case CacheExplanation() | CacheDescription() | CacheFlushed() | CacheFault():
                self._pending_answers.deliver(message)
            case _:
                assert_never(message)

    def _on_pong(self, pong: Pong) -> None:
        mismatch = wire.protocol_mismatch(pong.protocol_version)
        if mismatch is not None:
            self._on_goodbye(mismatch)
            return
        if self._info is not None and self._info.incarnation != pong.info.incarnation:
            self.declare_lost(RESTARTED)
        if self._check is not None and self._checked != pong.info.incarnation:
            if self._checking is None:
                self._checking = asyncio.create_task(self._check_runtime(self._check, pong))
            return
        self._be_ready(pong)

    async def _check_runtime(self, check: CheckInfo, pong: Pong) -> None:
        """A runtime that is refused is looked at again with its next pong."""
        try:
            problem = await check(pong.info)
        finally:
            self._checking = None
        if problem is not None:
            self._on_goodbye(problem)
        elif self._state is not EngineState.STOPPED:
            self._checked = pong.info.incarnation
            self._be_ready(pong)

    def _be_ready(self, pong: Pong) -> None:
        if self._state in (EngineState.DEAD, EngineState.REFUSED):
            logger.info("the runtime is there again, incarnation %s", pong.info.incarnation)
        self._info = pong.info
        self._stats = pong.stats
        self._state = EngineState.READY
        self.failure = None
        self.lost.clear()
        self.ready.set()

    def _on_goodbye(self, reason: str) -> None:
        """A runtime that served us has let go of us: greet it again. Any other refuses."""
        if self._state is EngineState.READY:
            self.declare_lost(reason)
            self._ping()
            return
        if self._state is EngineState.STOPPED:
            return
        if (self._state, self.failure) != (EngineState.REFUSED, reason):  # it says so each beat
            logger.error("the runtime at %s cannot be used: %s", self.address, reason)
        self._state = EngineState.REFUSED
        self.failure = reason

    def _on_step(self, output: StepOutput) -> None:
        if self._state is not EngineState.READY or self._info is None:
            return
        if output.incarnation != self._info.incarnation:
            self.declare_lost(RESTARTED)
            self._ping()
            return
        self._stats = output.stats
        for event in output.events:
            self._deliver(event)
        if output.recorded is not None and self._on_step_span is not None:
            self._on_step_span(output.recorded)

    def _deliver(self, event: TokenEvent) -> None:
        inbox = self._inboxes.get(event.request_id)
        if inbox is None:
            return
        if not inbox.deliver(event):
            fields = {**inbox.log_fields}
            logger.error("events of a request are missing before %d", event.seq, extra=fields)
            self._send(Abort(event.request_id))
            inbox.fail(EngineFault(ErrorCode.INTERNAL, LOST_EVENTS))
        if inbox.is_finished:
            del self._inboxes[event.request_id]

    def _abort_all(self, reason: str) -> None:
        """The aborts are for a runtime that still lives; a dead one does not get them."""
        self._pending_answers.fail_all(reason)
        inboxes, self._inboxes = self._inboxes, {}
        for request_id, inbox in inboxes.items():
            self._send(Abort(request_id))
            inbox.fail(EngineFault(ErrorCode.ENGINE_DIED, reason))

    def _close_sockets(self) -> None:
        for socket in (self._monitor, self._socket):
            if socket is not None:
                socket.close(CLOSE_LINGER_MS)
        self._socket = self._monitor = None


async def _handle_forever(
    socket: zmq.asyncio.Socket, handle: Callable[[list[bytes]], None]
) -> None:
    while True:
        frames = await socket.recv_multipart()
        try:
            handle(frames)
        except Exception:
            # One message that we mishandle must not leave all later ones unread.
            logger.exception("a message from the runtime could not be handled")
