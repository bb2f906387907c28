"""What a load has when it is stopped by hand, and that reading holds up nothing."""

import asyncio
import json

import pytest

from gateway import load_client
from gateway.load_client import Load, Stop, play
from gateway.load_connection import Link
from gateway.load_target import Target
from telemetry.request_bodies import Dialect
from telemetry.workloads import Script, prompt_turn
from tests.raw_server import CHUNKED, answering, chunk, raw_server, read_request

SCRIPT = Script((prompt_turn("hi", 1),))


def events(count: int) -> bytes:
    word = json.dumps({"choices": [{"index": 0, "delta": {"content": "word "}}]}).encode()
    usage = {"prompt_tokens": 1, "completion_tokens": count}
    end = json.dumps({"choices": [], "usage": usage}).encode()
    return b"".join(b"data: %b\n\n" % one for one in [word] * count + [end, b"[DONE]"])


async def test_an_answer_that_has_come_is_read_though_the_load_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = Stop()

    async def never(self: object, stream: object) -> None:  # noqa: ARG001
        stop.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(load_client._Reader, "read", never)
    async with raw_server(answering(CHUNKED + chunk(events(3)) + b"0\r\n\r\n")) as url:
        link = Link(Target.of(url, None))
        await link.open()
        load = await play(link, "m", Load([SCRIPT]), dialect=Dialect(), stop=stop)
    (turn,) = load.turns
    assert turn.answer is not None
    assert turn.answer.output_tokens == 3
    assert load.num_aborted == 0


async def test_a_request_under_way_when_a_load_is_stopped_is_given_up_and_counted() -> None:
    stop = Stop()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001
        try:
            await read_request(reader)
        except asyncio.IncompleteReadError:
            return
        stop.set()
        await reader.read()

    async with raw_server(silent) as url:
        link = Link(Target.of(url, None))
        await link.open()
        load = await play(link, "m", Load([SCRIPT] * 3), dialect=Dialect(), stop=stop)
    assert (load.turns, load.num_aborted) == ((), 1)


async def test_reading_a_long_answer_lets_others_have_their_turn() -> None:
    """While its events are read the loop goes round again and again."""
    rounds = 0
    was_read = asyncio.Event()

    async def go_round() -> None:
        nonlocal rounds
        while not was_read.is_set():
            rounds += 1
            await asyncio.sleep(0)

    content = CHUNKED + chunk(events(20_000)) + b"0\r\n\r\n"
    async with raw_server(answering(content)) as url:
        link = Link(Target.of(url, None))
        await link.open()
        stream = await link.send("POST", "/x", b"{}")
        going = asyncio.create_task(go_round())
        answer = await load_client._Reader(needs_usage=True).read(stream)
        was_read.set()
        await going
    assert answer.output_tokens == 20_000
    assert rounds > 200
