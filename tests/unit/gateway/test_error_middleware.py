"""What becomes of an exception whose answer has begun."""

import logging
import traceback
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.middleware import AnswerBroken, ErrorMiddleware
from gateway.request_context import RequestContext

START = {"type": "http.response.start", "status": 200, "headers": []}


async def breaks_off(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send(START)
    raise RuntimeError("secret words of a prompt")


async def never() -> Message:
    raise AssertionError("nothing is read")


async def run(*, shows_content: bool = False) -> tuple[AnswerBroken, list[Message]]:
    scope: dict[str, Any] = {"type": "http"}
    RequestContext("req_1", shows_content=shows_content).attach(scope)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(AnswerBroken) as caught:
        await ErrorMiddleware(breaks_off)(scope, never, send)
    return caught.value, sent


async def test_an_answer_that_breaks_off_is_logged_with_its_id_and_without_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error, sent = await run()
    assert sent == [START]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.__dict__["request_id"] == "req_1"
    assert record.__dict__["exception"].endswith("RuntimeError")
    # The server shows what it is left with, as it does with any exception.
    shown = "".join(traceback.format_exception(error))
    assert "AnswerBroken" in shown
    assert "secret words of a prompt" not in shown.replace('raise RuntimeError("', "")
    assert record.exc_info is None


async def test_where_content_is_recorded_its_words_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await run(shows_content=True)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "secret" in str(record.exc_info[1])
