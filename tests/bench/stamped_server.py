"""A server for `tests.bench.bench_overhead`: every answer's words are the times, in ns of the
machine's monotonic clock, at which they were sent. `python -m tests.bench.stamped_server PORT
TOKENS_PER_S lockstep|spread [CPU]`.

With `lockstep` all answers get their next word at the same moment, as from an engine's step; with
`spread` each at its own. It reads of a request only its length and how many words it wants.
"""

import asyncio
import os
import random
import re
import sys
import time
from functools import partial

import uvloop

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_MAX_TOKENS = re.compile(rb'"max_tokens":\s*(\d+)')
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef01234567","object":"chat.completion.chunk",'
    b'"created":1700000000,"model":"stamped","choices":[{"index":0,"delta":{"content":"%d "},'
    b'"logprobs":null,"finish_reason":null}],"usage":null}\n\n'
)
_END = (
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
)
_MODELS = b'{"data":[{"id":"stamped"}]}'


class Answers:
    """All answers under way."""

    def __init__(self, period_s: float, *, is_lockstep: bool) -> None:
        self._period_s = period_s
        self._is_lockstep = is_lockstep
        self._rng = random.Random(1)
        self._running: set[Answer] = set()

    def add(self, answer: "Answer") -> None:
        if self._is_lockstep:
            self._running.add(answer)
            return
        # Not before its time: a first token takes a while everywhere.
        delay_s = self._period_s * (1 + self._rng.random())
        asyncio.get_running_loop().call_later(delay_s, self._step, answer)

    def drop(self, answer: "Answer") -> None:
        self._running.discard(answer)

    def _step(self, answer: "Answer") -> None:
        if answer.send_word():
            asyncio.get_running_loop().call_later(self._period_s, self._step, answer)

    async def step_all(self) -> None:
        """One word for everybody, again and again."""
        next_s = time.monotonic()
        while True:
            next_s = max(next_s + self._period_s, time.monotonic())
            await asyncio.sleep(next_s - time.monotonic())
            for answer in list(self._running):
                if not answer.send_word():
                    self._running.discard(answer)


class Answer(asyncio.Protocol):
    """One connection with one request."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._request = b""
        self._transport: asyncio.WriteTransport | None = None
        self._num_left = self._num_words = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._answers.drop(self)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._request += data
        head, mark, body = self._request.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not mark or len(body) < int(length[1] if length else 0) or self._transport is None:
            return
        if head.startswith(b"GET"):
            size = b"content-length: %d\r\n\r\n" % len(_MODELS)
            self._transport.write(b"HTTP/1.1 200 OK\r\n" + size + _MODELS)
            return
        wanted = _MAX_TOKENS.search(body)
        self._num_left = self._num_words = int(wanted[1]) if wanted else 1
        self._transport.write(_HEAD)
        self._answers.add(self)

    def send_word(self) -> bool:
        """Whether there is another one after it."""
        if self._transport is None:
            return False
        self._num_left -= 1
        data = _EVENT % time.perf_counter_ns()
        if self._num_left:
            self._transport.write(_chunk(data))
            return True
        self._transport.write(_chunk(data + _END % self._num_words) + b"0\r\n\r\n")
        return False


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(port: int, tokens_per_s: float, *, is_lockstep: bool) -> None:
    answers = Answers(1 / tokens_per_s, is_lockstep=is_lockstep)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Answer, answers), "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    async with server:
        await answers.step_all()


if __name__ == "__main__":
    if len(sys.argv) > 4:
        os.sched_setaffinity(0, {int(sys.argv[4])})
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2]), is_lockstep=sys.argv[3] == "lockstep"))
