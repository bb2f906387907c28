"""Frames, headers before everything, keep-alives in silence; and the checker of streams itself."""

import asyncio

import pytest
from starlette.types import Message

from gateway.errors import Overloaded
from gateway.sse import DONE, PING, EventStream, data_frame, error_frame
from tests.sse_machine import check_chat_stream, read_data


class Sink:
    """Remembers what was sent; `written` is set by each body."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.written = asyncio.Event()

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        if message["type"] == "http.response.body":
            self.written.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


async def test_headers_and_opening_come_once_before_the_first_frame() -> None:
    sink = Sink()
    stream = EventStream(sink.send, opening=b"data: open\n\n")
    assert not stream.is_started
    await stream.write(b"data: 1\n\n")
    await stream.start()
    await stream.write(b"data: 2\n\n")
    await stream.finish()
    assert [m["type"] for m in sink.messages].count("http.response.start") == 1
    assert sink.messages[0]["type"] == "http.response.start"
    assert sink.body == b"data: open\n\ndata: 1\n\ndata: 2\n\n"
    assert sink.messages[-1]["more_body"] is False


async def test_silence_is_filled_and_the_filling_ends_with_the_block() -> None:
    sink = Sink()
    stream = EventStream(sink.send, opening=b"")
    async with stream.kept_alive(0.001, PING):
        await sink.written.wait()
    num_frames = len(sink.messages)
    assert sink.body.startswith(PING)
    await asyncio.sleep(0.01)
    assert len(sink.messages) == num_frames


async def test_without_a_frame_nothing_fills_the_silence() -> None:
    sink = Sink()
    async with EventStream(sink.send, opening=b"").kept_alive(0.001, None):
        await asyncio.sleep(0.01)
    assert sink.messages == []


async def test_connection_takes_frames_itself_once_the_headers_are_out() -> None:
    sink, taken = Sink(), list[bytes]()

    def take(frame: bytes) -> bool:
        taken.append(frame)
        return True

    stream = EventStream(sink.send, opening=b"data: open\n\n", write_now=take)
    assert not stream.write_nowait(b"data: 0\n\n")
    await stream.write(b"data: 1\n\n")
    assert stream.write_nowait(b"data: 2\n\n")
    await stream.write(b"data: 3\n\n")
    await stream.finish()
    assert sink.body == b"data: open\n\ndata: 1\n\n"
    assert taken == [b"data: 2\n\n", b"data: 3\n\n"]
    assert sink.messages[-1]["more_body"] is False


async def test_no_frame_overtakes_one_that_waits_for_the_client() -> None:
    order, is_read = list[bytes](), asyncio.Event()

    async def slow_send(message: Message) -> None:
        if message.get("body"):
            await is_read.wait()
            order.append(message["body"])

    def take(frame: bytes) -> bool:
        order.append(frame)
        return True

    stream = EventStream(slow_send, opening=b"", write_now=take)
    await stream.start()
    stream._write_now = lambda _frame: False
    first = asyncio.create_task(stream.write(b"1"))
    await asyncio.sleep(0)
    stream._write_now = take
    second = asyncio.create_task(stream.write(b"2"))
    await asyncio.sleep(0)
    is_read.set()
    await asyncio.gather(first, second)
    assert order == [b"1", b"2"]


async def test_frames_that_the_connection_took_are_no_silence() -> None:
    sink, now_s = Sink(), 0.0
    stream = EventStream(sink.send, opening=b"", write_now=lambda _frame: True)
    stream._time = lambda: now_s
    await stream.start()
    async with stream.kept_alive(0.005, PING):
        await asyncio.sleep(0)
        now_s = 60.0
        assert stream.write_nowait(b"data: 1\n\n")
        await asyncio.sleep(0.02)
    assert PING not in sink.body


def test_error_frame_is_the_error_object() -> None:
    (data,), _ = read_data(error_frame(Overloaded("full")))
    assert data == (
        '{"error":{"message":"full","type":"server_error","param":null,'
        '"code":"server_is_overloaded"}}'
    )


def chunk(delta: object, *, index: int = 0, reason: str | None = None, **more: object) -> bytes:
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
    return data_frame({**head, "system_fingerprint": "f", "choices": [choice], **more})


ROLE = chunk({"role": "assistant", "content": ""})
TEXT = chunk({"content": "a"})
END = chunk({}, reason="stop")


def test_checker_accepts_the_order() -> None:
    answer = check_chat_stream(PING + ROLE + TEXT + END + DONE)
    assert (answer.texts, answer.finish_reasons, answer.num_comments) == (["a"], ["stop"], 1)


@pytest.mark.parametrize(
    "raw",
    [
        TEXT + END + DONE,
        ROLE + TEXT + END,
        ROLE + TEXT + DONE,
        ROLE + ROLE + TEXT + END + DONE,
        ROLE + END + TEXT + DONE,
        ROLE + TEXT + END + DONE + TEXT,
        ROLE + TEXT + chunk({}, reason="abort") + DONE,
        ROLE + chunk({"content": "a"}, usage=None) + END + DONE,
        ROLE + error_frame(Overloaded("x")) + DONE,
        b"id: 1\n" + ROLE + END + DONE,
        ROLE + b"data: \n\n" + END + DONE,
        ROLE + END + DONE[:-1],
    ],
)
def test_checker_refuses_every_other_order(raw: bytes) -> None:
    with pytest.raises(AssertionError):
        check_chat_stream(raw)
