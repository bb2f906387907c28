"""The runtime's one loop: drain the socket, step the engine, send what the step produced.

Only the thread in `RuntimeLoop.run` touches engine state; ZeroMQ moves bytes in a thread of its
own. Nothing a peer sends stops the loop: what cannot be decoded is counted and ignored, what
cannot be served gets an error event. A gateway that vanishes or falls silent loses its requests.
"""

import logging
import os
import time
from collections.abc import Callable
from typing import Protocol, assert_never

import zmq

from runtime import wire
from runtime.admission import choices_to_answer
from runtime.cache_messages import (
    CacheQuery,
    DescribeCache,
    ExplainCache,
    FlushCache,
)
from runtime.gateway_registry import GatewayRegistry
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
    Probe,
    StepOutput,
    StepSpan,
    Submit,
    ToGateway,
    TokenEvent,
)
from runtime.question_queue import AnswerOrFuture, QuestionQueue

logger = logging.getLogger(__name__)

# How long the loop sleeps at most without work: bounds how late a dead parent is noticed.
IDLE_POLL_MS = 500
_NS_PER_MS = 1_000_000

# Capacity of a pipe on Linux: one read takes all that can be in it.
PIPE_BYTES = 65536

# Messages taken between two steps, so that a flood of them cannot starve running requests.
MAX_INBOX_PER_STEP = 256

FREED = "this gateway was silent or did not read its messages: its requests were freed"
FULL = "too many gateways are connected to this runtime"
NOT_GREETED = "a gateway greets with a ping before it sends requests"


class SteppedEngine(Protocol):
    """What the loop needs of runtime.engine.Engine."""

    def submit(self, gateway: bytes, request: Submit) -> None: ...

    def abort(self, gateway: bytes, abort: Abort) -> None: ...

    def abort_gateway(self, gateway: bytes) -> None: ...

    def step(self) -> dict[bytes, list[TokenEvent]]: ...

    def take_recorded(self) -> tuple[bytes, StepSpan] | None: ...

    def has_work(self) -> bool: ...

    def next_deadline_ns(self) -> int | None: ...

    def idle(self) -> bool: ...

    def stats(self) -> EngineStats: ...

    def answer(self, query: CacheQuery) -> AnswerOrFuture: ...


class Doorbell:
    """Ends the loop's sleep from a signal handler or from another thread."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self.write_fd, False)

    def fileno(self) -> int:
        return self._read_fd

    def ring(self) -> None:
        """Never blocks: a pipe that is full has been rung already."""
        try:
            os.write(self.write_fd, b"\0")
        except BlockingIOError:
            pass

    def silence(self) -> None:
        """Takes back all rings so far."""
        try:
            os.read(self._read_fd, PIPE_BYTES)
        except BlockingIOError:
            pass

    def close(self) -> None:
        os.close(self._read_fd)
        os.close(self.write_fd)


class RuntimeLoop:
    """Serves one engine to the gateways of one bound ROUTER socket."""

    def __init__(
        self,
        *,
        socket: zmq.Socket[bytes],
        engine: SteppedEngine,
        info: EngineInfo,
        gateway_timeout_s: float,
        doorbell: Doorbell,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """`wall_clock` is the one that the requests' deadlines are of."""
        self._socket = socket
        self._engine = engine
        self._info = info
        self._gateways = GatewayRegistry(timeout_s=gateway_timeout_s)
        self._questions = QuestionQueue(engine.answer, ring=doorbell.ring)
        self._garbage = wire.GarbageCounter(logger)
        self._doorbell = doorbell
        self._clock = clock
        self._wall_clock = wall_clock
        self._last_tick = clock()
        self._num_steps = 0
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(doorbell.fileno(), zmq.POLLIN)

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Serves until `should_stop()`, which is asked at least every IDLE_POLL_MS."""
        while not should_stop():
            if not self.has_work():
                wait_ms = 0 if self._engine.idle() else self.sleep_ms()
                self._poller.poll(wait_ms)
                self._doorbell.silence()
            self.turn()

    def turn(self) -> None:
        """One round without waiting."""
        self._drain_inbox()
        for identity, answer in self._questions.take_answers():
            self._send(identity, answer)
        self._publish(self._engine.step())
        self._free_silent_gateways()

    def has_work(self) -> bool:
        """Whether a turn would do anything now that did not just arrive."""
        return self._questions.has_work() or self._engine.has_work()

    def sleep_ms(self) -> int:
        """How long there is nothing to do if nobody rings or writes: a request whose matcher is
        being built may have a deadline."""
        deadline_ns = self._engine.next_deadline_ns()
        if deadline_ns is None:
            return IDLE_POLL_MS
        left_ms = -((self._wall_clock() - deadline_ns) // _NS_PER_MS)
        return max(0, min(left_ms, IDLE_POLL_MS))

    def _drain_inbox(self) -> None:
        for _ in range(MAX_INBOX_PER_STEP):
            try:
                identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._receive(identity, frames)

    def _receive(self, identity: bytes, frames: list[bytes]) -> None:
        if len(frames) != 1:
            self._garbage.add(identity.hex(), f"{len(frames)} frames instead of one")
            return
        try:
            message = wire.decode_for_runtime(frames[0])
        except wire.UndecodableFrame as error:
            self._garbage.add(identity.hex(), str(error))
            return
        if isinstance(message, Probe):
            self._send(identity, self._reply(message))
        elif self._gateways.take_expelled(identity):
            self._send(identity, Goodbye(FREED))
        elif isinstance(message, Ping):
            self._answer(identity, message)
        elif not self._gateways.hear(identity):
            self._send(identity, Goodbye(NOT_GREETED))
        else:
            self._hand_over(identity, message)

    def _answer(self, identity: bytes, ping: Ping) -> None:
        reply = self._reply(ping)
        if isinstance(reply, Pong) and not self._gateways.greet(identity):
            reply = Goodbye(FULL)
        self._send(identity, reply)

    def _reply(self, asked: Ping | Probe) -> Pong | Goodbye:
        mismatch = wire.protocol_mismatch(asked.protocol_version)
        if mismatch is not None:
            return Goodbye(mismatch)
        return Pong(PROTOCOL_VERSION, self._info, self._engine.stats())

    def _hand_over(self, identity: bytes, message: Submit | Abort | CacheQuery) -> None:
        match message:
            case Submit():
                self._submit(identity, message)
            case Abort():
                self._engine.abort(identity, message)
            case ExplainCache() | DescribeCache() | FlushCache():
                self._take_question(identity, message)
            case _:
                assert_never(message)

    def _submit(self, identity: bytes, request: Submit) -> None:
        try:
            self._engine.submit(identity, request)
        except Exception:
            # A request that the engine cannot even take must not end the others.
            logger.exception(
                "request %r could not be taken",
                request.request_id[:200],
                extra=request.log_fields,
            )
            self._engine.abort(identity, Abort(request.request_id))
            self._send_events(identity, _rejection(request))

    def _take_question(self, identity: bytes, query: CacheQuery) -> None:
        refusal = self._questions.add(identity, query)
        if refusal is not None:
            self._send(identity, refusal)

    def _publish(self, outputs: dict[bytes, list[TokenEvent]]) -> None:
        self._num_steps += 1
        gateway, recorded = self._engine.take_recorded() or (None, None)
        if gateway is not None:
            outputs.setdefault(gateway, [])
        for identity, events in outputs.items():
            self._send_events(identity, events, recorded if identity == gateway else None)

    def _send_events(
        self, identity: bytes, events: list[TokenEvent], recorded: StepSpan | None = None
    ) -> None:
        self._send(
            identity,
            StepOutput(
                self._info.incarnation,
                self._num_steps,
                events,
                self._engine.stats(),
                recorded=recorded,
            ),
        )

    def _send(self, identity: bytes, message: ToGateway) -> None:
        try:
            self._socket.send_multipart((identity, wire.encode(message)), zmq.NOBLOCK)
        except zmq.Again:
            self._gateways.expel(identity)
            self._free(identity, "does not read its messages")
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._gateways.forget(identity)
            self._free(identity, "is gone")

    def _free_silent_gateways(self) -> None:
        now = self._clock()
        silent = self._gateways.tick(now - self._last_tick)
        self._last_tick = now
        for identity in silent:
            self._gateways.expel(identity)
            self._free(identity, "is silent")

    def _free(self, identity: bytes, why: str) -> None:
        logger.info("gateway %s %s: whatever it had here is freed", identity.hex(), why)
        self._engine.abort_gateway(identity)


def _rejection(request: Submit) -> list[TokenEvent]:
    fault = EngineFault(ErrorCode.INTERNAL, "the runtime could not take this request")
    choices = choices_to_answer(request)
    return [TokenEvent(request.request_id, choice, 0, error=fault) for choice in choices]
