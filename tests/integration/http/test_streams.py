"""When a stream's status is decided, what a silent stream sends, how a broken one ends."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from starlette.types import Message, Scope

from runtime.messages import EngineFault, ErrorCode
from runtime.token_engine import EngineState
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    Gateway,
    chat,
    completion,
    error_of,
    in_process,
    listening,
    make_gateway,
)
from tests.sse_machine import check_chat_stream, check_completion_stream

BODIES = {CHAT: chat, COMPLETIONS: completion}


def fault(code: ErrorCode) -> EngineFault:
    return EngineFault(code=code, message="it went wrong")


async def post(gateway: Gateway, **parameters: Any) -> httpx2.Response:
    async with in_process(gateway) as client:
        return await client.post(CHAT, json=chat(**parameters))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.QUEUE_TIMEOUT, 503),
        (ErrorCode.ENGINE_DIED, 503),
        (ErrorCode.DEADLINE_EXCEEDED, 504),
        (ErrorCode.CONSTRAINT_FAILED, 500),
        (ErrorCode.INTERNAL, 500),
    ],
)
async def test_error_before_admission_has_its_status(
    code: ErrorCode, status: int, stream: bool
) -> None:
    gateway = make_gateway()
    gateway.engine.fault = fault(code)
    response = await post(gateway, stream=stream)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert error_of(response)["message"] == "it went wrong"


async def test_engine_that_takes_no_requests_is_a_503_with_retry_after() -> None:
    gateway = make_gateway()
    gateway.engine.unavailable = "the engine is being restarted"
    response = await post(gateway, stream=True)
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize("num_tokens", [0, 3])
async def test_error_after_admission_is_the_streams_last_event(num_tokens: int) -> None:
    gateway = make_gateway()
    gateway.engine.fault = fault(ErrorCode.ENGINE_DIED)
    gateway.engine.fault_after = num_tokens
    response = await post(gateway, stream=True)
    assert response.status_code == 200
    answer = check_chat_stream(response.content)
    assert answer.error == {
        "message": "it went wrong",
        "type": "server_error",
        "param": None,
        "code": "engine_died",
    }
    assert answer.texts == ["Hello"[:num_tokens]]


async def test_error_after_admission_is_a_status_where_nothing_was_sent() -> None:
    gateway = make_gateway()
    gateway.engine.fault = fault(ErrorCode.ENGINE_DIED)
    gateway.engine.fault_after = 3
    assert (await post(gateway)).status_code == 503


async def test_headers_are_sent_when_the_engine_admits_the_request() -> None:
    gateway = make_gateway(keepalive="off")
    gateway.engine.hold("decode")
    async with listening(gateway) as url, httpx2.AsyncClient(base_url=url) as client:
        async with client.stream("POST", CHAT, json=chat(stream=True)) as response:
            assert response.status_code == 200
            gateway.engine.release()
            body = await response.aread()
    assert check_chat_stream(body).finish_reasons == ["stop"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("mode", ["comment", "chunk"])
async def test_silent_stream_is_kept_alive_and_stays_in_order(path: str, mode: str) -> None:
    gateway = make_gateway(keepalive=mode, keepalive_s=0.01)
    gateway.engine.hold("queue")
    async with listening(gateway) as url, httpx2.AsyncClient(base_url=url) as client:
        async with client.stream("POST", path, json=BODIES[path](stream=True)) as response:
            chunks = response.aiter_raw()
            early = b""
            while early.count(b"\n\n") < 4:
                early += await anext(chunks)
            assert gateway.engine.submitted
            gateway.engine.release()
            body = early + b"".join([chunk async for chunk in chunks])
    check = check_chat_stream if path == CHAT else check_completion_stream
    answer = check(body)
    assert answer.texts == ["Hello, world!"]
    assert (answer.num_comments > 0) is (mode == "comment")


async def test_error_after_a_keep_alive_is_an_event() -> None:
    gateway = make_gateway(keepalive_s=0.01)
    gateway.engine.hold("queue")
    gateway.engine.fault = fault(ErrorCode.QUEUE_TIMEOUT)
    async with listening(gateway) as url, httpx2.AsyncClient(base_url=url) as client:
        async with client.stream("POST", CHAT, json=chat(stream=True)) as response:
            assert response.status_code == 200
            gateway.engine.release()
            answer = check_chat_stream(await response.aread())
    assert answer.error is not None
    assert answer.error["code"] == "queue_timeout"


@pytest.mark.parametrize("stream", [False, True])
async def test_engine_that_misses_the_deadline_is_cut_off_by_the_gateway(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr("gateway.answer.DEADLINE_GRACE_S", 0.01)
    gateway = make_gateway(request_timeout_s=0.05)
    gateway.engine.hold("queue")
    response = await post(gateway, stream=stream)
    assert (response.status_code, error_of(response)["code"]) == (504, "deadline_exceeded")
    assert gateway.engine.open_requests == set()


def outcome(gateway: Gateway) -> object:
    """Of the only request so far."""
    (span,) = [s for s in gateway.spans.get_finished_spans() if s.kind.name == "SERVER"]
    return (span.attributes or {})["radixgate.outcome"]


async def post_to_stalled_client(
    gateway: Gateway, stalls_at: Callable[[Message], bool], *, stream: bool = True
) -> None:
    """A chat whose client stops reading at the message that the rule names. That the app returns
    is all that the server wants: an exception it would log with its traceback."""
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": CHAT,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    body = json.dumps(chat(stream=stream)).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop()

    async def stalled_send(message: Message) -> None:
        if stalls_at(message):
            await asyncio.Event().wait()

    await gateway.app(scope, receive, stalled_send)


async def test_client_that_does_not_read_cannot_hold_its_place_beyond_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.answer.DEADLINE_GRACE_S", 0.01)
    monkeypatch.setattr("gateway.answer.LAST_FRAME_S", 0.01)
    gateway = make_gateway(request_timeout_s=0.05, keepalive="off")

    def is_text_or_error(message: Message) -> bool:
        frame = message.get("body", b"")
        return b'"content":"H"' in frame or b'"error"' in frame

    await post_to_stalled_client(gateway, is_text_or_error)
    assert gateway.engine.open_requests == set()
    assert outcome(gateway) == "aborted"


async def test_client_that_reads_all_but_the_end_cannot_hold_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.answer.LAST_FRAME_S", 0.01)
    gateway = make_gateway(keepalive="off", max_running=1, max_queue=0)
    await post_to_stalled_client(gateway, lambda message: message.get("more_body") is False)
    assert outcome(gateway) == "aborted"
    assert (await post(gateway)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["http.response.start", "http.response.body"])
async def test_client_that_stops_reading_is_gone_even_where_requests_may_take_for_ever(
    monkeypatch: pytest.MonkeyPatch, kind: str, stream: bool
) -> None:
    monkeypatch.setattr("gateway.disconnect.MAX_STALL_S", 0.01)
    gateway = make_gateway(request_timeout_s=0, max_running=1, max_queue=0)
    await post_to_stalled_client(gateway, lambda m: m["type"] == kind, stream=stream)
    assert gateway.engine.open_requests == set()
    assert outcome(gateway) == "aborted"
    assert (await post(gateway)).status_code == 200


def logged_failure(caplog: pytest.LogCaptureFixture, response: httpx2.Response) -> dict[str, Any]:
    """The only line of the log, whose fields are those of the answer's headers."""
    (record,) = caplog.records
    fields = vars(record)
    assert fields["request_id"] == response.headers["x-request-id"]
    assert fields["trace_id"] == response.headers["traceparent"].split("-")[1]
    return fields


@pytest.mark.parametrize("fault_after", [0, 2])
@pytest.mark.parametrize("stream", [False, True])
async def test_failed_request_is_found_in_the_log_by_its_id_and_trace(
    caplog: pytest.LogCaptureFixture, stream: bool, fault_after: int
) -> None:
    gateway = make_gateway()
    gateway.engine.fault = fault(ErrorCode.ENGINE_DIED)
    gateway.engine.fault_after = fault_after
    response = await post(gateway, stream=stream)
    assert "it went wrong" in logged_failure(caplog, response)["error"]


async def test_refused_requests_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    gateway = make_gateway()
    gateway.engine.unavailable = "the engine is being restarted"
    assert (await post(gateway)).status_code == 503
    assert (await post(gateway, temperature=5)).status_code == 400
    assert caplog.records == []


@pytest.mark.parametrize("stream", [False, True])
async def test_unexpected_fault_is_a_500_without_its_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    gateway = make_gateway()

    def explode(*_args: Any) -> Any:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(gateway.engine, "submit", explode)
    response = await post(gateway, stream=stream)
    error = error_of(response)
    assert (response.status_code, error["code"]) == (500, "internal_error")
    assert "secret" not in response.text
    assert response.headers["x-request-id"] in error["message"]
    # The log says where, and not what: that may be words of the request.
    fields = logged_failure(caplog, response)
    assert (fields["error_type"], fields["exc_info"]) == ("RuntimeError", None)
    assert "in explode" in fields["exception"]


async def test_engine_is_told_deadlines_and_the_trace() -> None:
    gateway = make_gateway(queue_timeout_s=5, request_timeout_s=50)
    response = await post(gateway)
    submitted = gateway.engine.submitted[0]
    assert submitted.deadline_ns - submitted.queue_deadline_ns == 45_000_000_000
    assert submitted.trace is not None
    assert submitted.trace.traceparent == response.headers["traceparent"]


async def test_simultaneous_streams_do_not_mix() -> None:
    gateway = make_gateway(
        lambda submit, _choice: list(f"<{sum(submit.prompt_token_ids)}>".encode())
    )
    async with in_process(gateway) as client:
        responses = await asyncio.gather(
            *(client.post(CHAT, json=chat("x" * n, stream=True)) for n in range(1, 9))
        )
    texts = [check_chat_stream(response.content).texts[0] for response in responses]
    assert len(set(texts)) == 8


@pytest.mark.parametrize(
    "state",
    [EngineState.STARTING, EngineState.DEAD, EngineState.REFUSED, EngineState.STOPPED],
)
async def test_server_is_alive_and_not_ready_while_the_engine_is_down(state: EngineState) -> None:
    gateway = make_gateway()
    gateway.engine.state = state
    async with in_process(gateway) as client:
        ready, health = await client.get("/ready"), await client.get("/health")
    assert (ready.status_code, health.status_code) == (503, 200)
    assert "engine" in error_of(ready)["message"]


async def test_server_whose_engine_failed_for_good_asks_to_be_restarted() -> None:
    gateway = make_gateway(api_keys=("key",))
    gateway.engine.state = EngineState.FAILED
    async with in_process(gateway) as client:
        ready, health = await client.get("/ready"), await client.get("/health")
    assert (ready.status_code, health.status_code) == (503, 503)
    assert error_of(health)["code"] == "engine_failed"
    assert "for good" in error_of(health)["message"]


async def test_lifespan_starts_and_stops_what_it_was_given() -> None:
    gateway = make_gateway()
    gateway.engine.state = EngineState.STARTING
    async with listening(gateway) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await client.get("/ready")).status_code == 200
    assert gateway.engine.state.name == "STOPPED"
