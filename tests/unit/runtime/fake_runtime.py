"""A scripted runtime on a real ROUTER socket: tests say what it answers, message by message."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

import zmq
import zmq.asyncio

from runtime import wire
from runtime.messages import (
    PROTOCOL_VERSION,
    EngineInfo,
    EngineStats,
    Ping,
    Pong,
    Sampling,
    StepOutput,
    Submit,
    ToGateway,
    TokenEvent,
    ToRuntime,
)
from tests.waiting import until

MessageT = TypeVar("MessageT", bound=ToRuntime)

WAIT_S = 5.0


def engine_info(incarnation: str = "first") -> EngineInfo:
    return EngineInfo(
        engine_id="fake",
        incarnation=incarnation,
        model_hash="hash",
        architecture="llama",
        dtype="float32",
        device="cpu",
        vocab_size=512,
        eos_token_ids=(2,),
        max_model_len=2048,
        page_size=16,
        num_pages=64,
        max_running=8,
        kv_root=b"root",
    )


def submit_message(request_id: str = "r1", *, num_choices: int = 1) -> Submit:
    return Submit(request_id, [1, 2, 3], Sampling(max_tokens=8), num_choices=num_choices)


class FakeRuntime:
    """Answers pings while `is_answering`; everything else is up to the test."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.info = engine_info()
        self.is_answering = True
        self.num_pings = 0
        self.identity = b""
        self._received: asyncio.Queue[ToRuntime] = asyncio.Queue()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FakeRuntime"]:
        self._socket.bind(self.address)
        task = asyncio.create_task(self._receive_forever())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.close()

    def close(self) -> None:
        """As a killed runtime: the connection breaks without a word."""
        self._context.destroy(linger=0)

    async def expect(self, kind: type[MessageT]) -> MessageT:
        """The next message that is no ping; it must be of this kind."""
        async with asyncio.timeout(WAIT_S):
            message = await self._received.get()
        assert isinstance(message, kind)
        return message

    async def expect_ping(self) -> None:
        """Returns with the next ping."""
        num_before = self.num_pings
        await until(lambda: self.num_pings > num_before)

    async def send(self, message: ToGateway) -> None:
        await self.send_frame(wire.encode(message))

    async def send_frame(self, frame: bytes) -> None:
        await self._socket.send_multipart([self.identity, frame])

    async def send_events(self, *events: TokenEvent, incarnation: str | None = None) -> None:
        incarnation = incarnation or self.info.incarnation
        await self.send(StepOutput(incarnation, 1, list(events), EngineStats(steps=7)))

    async def _receive_forever(self) -> None:
        while True:
            self.identity, frame = await self._socket.recv_multipart()
            message = wire.decode_for_runtime(frame)
            if not isinstance(message, Ping):
                self._received.put_nowait(message)
                continue
            self.num_pings += 1
            if self.is_answering:
                await self.send(Pong(PROTOCOL_VERSION, self.info, EngineStats(steps=3)))
