"""A line for each finished request, and the ids that every line about a request has."""

import asyncio
import logging
from typing import Any

import pytest

from runtime.messages import EngineFault, ErrorCode
from tests.gateway_harness import CHAT, Gateway, chat, in_process, make_gateway, response
from tests.waiting import until

LOGGER = "gateway.request_log"
PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"
IDS = {"x-request-id": "mine-1", "traceparent": PARENT}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the call gave as `extra`."""
    usual = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
    return {key: value for key, value in record.__dict__.items() if key not in usual}


def lines(caplog: pytest.LogCaptureFixture, logger: str = LOGGER) -> list[dict[str, Any]]:
    return [fields_of(record) for record in caplog.records if record.name == logger]


async def post(gateway: Gateway, body: dict[str, Any], path: str = CHAT) -> int:
    async with in_process(gateway) as client:
        return (await client.post(path, json=body, headers=IDS)).status_code


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.mark.parametrize("stream", [False, True])
async def test_finished_request_has_a_line_with_its_numbers(
    caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    gateway = make_gateway(log_requests=True, api_keys=("key",))
    gateway.engine.cached_tokens = 5
    async with in_process(gateway) as client:
        headers = {**IDS, "authorization": "Bearer key"}
        await client.post(CHAT, json=chat(stream=stream), headers=headers)
    (line,) = lines(caplog)
    assert 0 <= line.pop("ttft_ms") <= line.pop("duration_ms")
    tenant, span_id = line.pop("tenant"), line.pop("span_id")
    assert tenant
    assert tenant != "key"
    spans = {span.name: span for span in gateway.spans.get_finished_spans()}
    context = spans[f"POST {CHAT}"].get_span_context()
    assert context is not None
    assert span_id == f"{context.span_id:016x}"
    prompt_tokens = (spans["chat tiny"].attributes or {})["gen_ai.usage.input_tokens"]
    assert {key: value for key, value in line.items() if value is not None} == {
        "route": CHAT,
        "status": 200,
        "outcome": "ok",
        "model": "tiny",
        "prompt_tokens": prompt_tokens,
        "cached_tokens": 5,
        "output_tokens": 14,
        "finish_reasons": "stop",
        "request_id": "mine-1",
        "trace_id": "ab" * 16,
    }


async def test_without_the_setting_there_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    await post(make_gateway(), chat())
    assert lines(caplog) == []


async def test_refused_request_has_a_line_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    await post(make_gateway(log_requests=True), chat(temperature=9))
    (line,) = lines(caplog)
    assert (line["outcome"], line["status"], line["error_type"]) == (
        "rejected",
        400,
        "decimal_above_max_value",
    )
    assert (line["model"], line["prompt_tokens"], line["ttft_ms"]) == (None, None, None)


@pytest.mark.parametrize("stream", [False, True])
async def test_failed_request_has_two_lines_with_the_same_ids(
    caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    gateway = make_gateway(log_requests=True)
    gateway.engine.fault = EngineFault(ErrorCode.INTERNAL, "a step failed")
    gateway.engine.fault_after = 2
    await post(gateway, chat(stream=stream))
    (finished,), (failed,) = lines(caplog), lines(caplog, "gateway.middleware")
    assert (finished["outcome"], finished["error_type"]) == ("error", "internal_error")
    assert failed["error_type"] == "internal_error"
    for key in ("request_id", "trace_id", "span_id"):
        assert finished[key] == failed[key], key


async def test_request_whose_client_left_has_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = make_gateway(log_requests=True)
    gateway.engine.hold()
    task = asyncio.create_task(post(gateway, chat()))
    await until(lambda: len(gateway.engine.submitted) == 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    (line,) = lines(caplog)
    assert (line["outcome"], line["error_type"]) == ("aborted", "aborted")
    assert line["model"] == "tiny"
    assert gateway.engine.open_requests == set()


async def test_response_that_cannot_be_kept_is_told_with_the_ids_of_its_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = make_gateway(response_store_mb=0.0001)
    assert await post(gateway, response(), "/v1/responses") == 200
    (line,) = lines(caplog, "gateway.response_store")
    assert (line["request_id"], line["trace_id"]) == ("mine-1", "ab" * 16)


async def test_runtime_is_told_the_ids_that_its_lines_shall_have() -> None:
    gateway = make_gateway()
    await post(gateway, chat())
    (submit,) = gateway.engine.submitted
    fields = submit.log_fields
    assert (fields["request_id"], fields["trace_id"]) == ("mine-1", "ab" * 16)
    assert len(fields["span_id"]) == 16
