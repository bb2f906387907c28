"""The watcher of the connection, against a scripted server."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.disconnect import ClientDisconnected, DisconnectMiddleware, beside

SCOPE: Scope = {"type": "http"}
BODY: Message = {"type": "http.request", "body": b"x", "more_body": False}
GONE: Message = {"type": "http.disconnect"}
START: Message = {"type": "http.response.start", "status": 200, "headers": []}
END: Message = {"type": "http.response.body", "body": b"", "more_body": False}


class Server:
    """Gives the queued messages to receive(), then waits."""

    def __init__(self, *messages: Message) -> None:
        self.sent: list[Message] = []
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        for message in messages:
            self._messages.put_nowait(message)

    def close(self) -> None:
        self._messages.put_nowait(GONE)

    async def receive(self) -> Message:
        return await self._messages.get()

    async def send(self, message: Message) -> None:
        self.sent.append(message)


async def run(app: Any, server: Server) -> None:
    await DisconnectMiddleware(app)(SCOPE, server.receive, server.send)


async def test_disconnect_cancels_the_handler_which_may_clean_up_with_awaits() -> None:
    server, log = Server(BODY), list[str]()

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        assert await receive() == BODY
        server.close()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            log.append("cleaned up")

    with pytest.raises(ClientDisconnected):
        await run(app, server)
    assert log == ["cleaned up"]


async def test_disconnect_during_the_upload_reaches_the_reader() -> None:
    server = Server({**BODY, "more_body": True}, GONE)

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive())["more_body"]:
            pass

    with pytest.raises(ClientDisconnected):
        await run(app, server)


async def test_repeated_empty_messages_after_the_body_are_no_disconnect() -> None:
    server = Server(BODY, {**BODY, "body": b""})

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await send(START)
        await send(END)

    await run(app, server)
    assert server.sent == [START, END]


async def test_close_after_the_last_byte_is_no_disconnect() -> None:
    server, log = Server(BODY), list[str]()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(START)
        await send(END)
        server.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        log.append("finished")

    await run(app, server)
    assert log == ["finished"]


async def test_no_task_outlives_the_request() -> None:
    before = asyncio.all_tasks()

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()

    await run(app, Server(BODY))
    assert asyncio.all_tasks() == before


async def test_error_and_timeout_of_the_handler_pass_unchanged() -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise TimeoutError("the handler's own")

    with pytest.raises(TimeoutError, match="the handler's own"):
        await run(app, Server())


async def test_cancellation_from_outside_is_no_disconnect() -> None:
    started = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run(app, Server()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_beside_a_block_ends_with_it_and_its_fault_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("beside")

    with pytest.raises(ValueError, match="beside"):
        async with beside(fails()):
            await asyncio.sleep(0)
