"""Traces and metrics of requests: one trace each, closed once, whatever happens."""

from typing import Any

import pytest

from runtime.messages import EngineFault, ErrorCode
from runtime.token_engine import EngineState
from telemetry import names
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    Gateway,
    chat,
    completion,
    in_process,
    make_gateway,
)


def server_spans(gateway: Gateway) -> list[dict[str, Any]]:
    return [
        {"name": span.name, **(span.attributes or {})}
        for span in gateway.spans.get_finished_spans()
        if span.kind.name == "SERVER"
    ]


def outcome(gateway: Gateway) -> tuple[Any, Any, Any]:
    (span,) = server_spans(gateway)
    return span[names.ATTR_OUTCOME], span[names.HTTP_STATUS], span.get(names.ERROR_TYPE)


@pytest.mark.parametrize("stream", [False, True])
async def test_trace_of_a_success_has_every_phase_once(stream: bool) -> None:
    gateway = make_gateway()
    gateway.engine.cached_tokens = 5
    async with in_process(gateway) as client:
        response = await client.post(CHAT, json=chat(stream=stream))
    spans = {span.name: span for span in gateway.spans.get_finished_spans()}
    assert sorted(span.name for span in gateway.spans.get_finished_spans()) == [
        "POST /v1/chat/completions",
        "cache.match",
        "chat tiny",
        "decode",
        "queue",
        "tokenize",
    ]
    inner = spans["chat tiny"].attributes or {}
    assert inner[names.ATTR_CACHED_TOKENS] == 5
    assert inner[names.GEN_AI_USAGE_OUTPUT] == 14
    assert inner[names.GEN_AI_RESPONSE_FINISH_REASONS] == ("stop",)
    assert inner[names.ATTR_TTFT_MS] >= 0  # type: ignore[operator]
    assert inner[names.GEN_AI_REQUEST_STREAM] is stream
    assert outcome(gateway) == ("ok", 200, None)
    trace_id = spans["chat tiny"].get_span_context()
    assert trace_id is not None
    assert f"{trace_id.trace_id:032x}" in response.headers["traceparent"]


async def test_gaps_between_tokens_are_on_the_trace_as_quantiles() -> None:
    gateway = make_gateway(tokens_per_event=1)
    async with in_process(gateway) as client:
        await client.post(CHAT, json=chat(stream=True))
    (model,) = [span for span in gateway.spans.get_finished_spans() if span.name == "chat tiny"]
    told = dict(model.attributes or {})
    p50_ms, p99_ms = told[names.ATTR_ITL_P50_MS], told[names.ATTR_ITL_P99_MS]
    assert isinstance(p50_ms, float)
    assert isinstance(p99_ms, float)
    life_ms = ((model.end_time or 0) - (model.start_time or 0)) / 1e6
    assert 0 < p50_ms <= p99_ms <= life_ms


async def test_an_answer_of_one_delta_has_no_gaps() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        await client.post(CHAT, json=chat(max_tokens=1))
    (model,) = [span for span in gateway.spans.get_finished_spans() if span.name == "chat tiny"]
    assert not {names.ATTR_ITL_P50_MS, names.ATTR_ITL_P99_MS} & dict(model.attributes or {}).keys()


async def test_callers_trace_is_continued() -> None:
    gateway = make_gateway()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with in_process(gateway) as client:
        response = await client.post(CHAT, json=chat(), headers={"traceparent": parent})
    assert response.headers["traceparent"].split("-")[1] == "0af7651916cd43dd8448eb211c80319c"
    assert response.headers["traceparent"] != parent


@pytest.mark.parametrize("stream", [False, True])
async def test_broken_answer_is_an_error_with_its_phases(stream: bool) -> None:
    gateway = make_gateway()
    gateway.engine.fault = EngineFault(code=ErrorCode.INTERNAL, message="x")
    gateway.engine.fault_after = 2
    async with in_process(gateway) as client:
        await client.post(CHAT, json=chat(stream=stream))
    assert outcome(gateway) == ("error", 200 if stream else 500, "internal_error")
    spans = {span.name: span for span in gateway.spans.get_finished_spans()}
    assert "queue" in spans
    model = spans["chat tiny"].attributes or {}
    assert (model[names.ATTR_ENGINE_ID], model[names.ATTR_INCARNATION]) == ("fake", "1")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (chat(temperature=5), 400, "decimal_above_max_value"),
        ({"model": "nope", "messages": [{"role": "user", "content": "x"}]}, 404, "model_not_found"),
        (chat("x" * 500), 400, "context_length_exceeded"),
    ],
)
async def test_refused_request_is_rejected_with_its_code(
    body: dict[str, Any], status: int, code: str
) -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        response = await client.post(CHAT, json=body)
        metrics = (await client.get("/metrics")).text
    assert outcome(gateway) == ("rejected", status, code)
    assert response.headers["traceparent"]
    assert f'radixgate_rejected_total{{reason="{code}"}} 1.0' in metrics


async def test_oversized_body_is_rejected() -> None:
    gateway = make_gateway(max_body_mb=0.001)
    async with in_process(gateway) as client:
        await client.post(CHAT, json=chat("x" * 2000))
    assert outcome(gateway) == ("rejected", 413, "request_too_large")


async def test_probes_metrics_and_unknown_paths_are_not_traced() -> None:
    gateway = make_gateway()
    unknown = ("/nope", "/v1/modelsXYZ", "/v1/models-old/tiny", CHAT)
    async with in_process(gateway) as client:
        for path in ("/health", "/ready", "/metrics", "/version", *unknown):
            await client.get(path)
    assert server_spans(gateway) == []


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/models", "/v1/models"),
        ("/v1/models/tiny", "/v1/models/{id}"),
        ("/v1/models/org/tiny", "/v1/models/{id}"),
    ],
)
async def test_route_of_the_models_is_their_template(path: str, route: str) -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        await client.get(path)
    assert [span[names.HTTP_ROUTE] for span in server_spans(gateway)] == [route]


async def test_metrics_count_requests_tokens_and_times() -> None:
    gateway = make_gateway()
    gateway.engine.cached_tokens = 5
    async with in_process(gateway) as client:
        await client.post(CHAT, json=chat())
        await client.post(COMPLETIONS, json=completion(n=2, stream=True))
        response = await client.get("/metrics")
    lines = response.text.splitlines()
    assert response.headers["content-type"].startswith("text/plain")
    assert "radixgate_prompt_tokens_total 23.0" in lines
    assert "radixgate_cached_tokens_total 6.0" in lines
    assert "radixgate_cache_written_tokens_total 17.0" in lines
    assert "radixgate_generated_tokens_total 42.0" in lines
    ttft = 'radixgate_time_to_first_token_seconds_count{operation="%s"} 1.0'
    assert {ttft % "chat", ttft % "text_completion"} <= set(lines)
    # 14 tokens of a choice have 13 gaps, and there are three choices.
    assert "radixgate_inter_token_seconds_count 39.0" in lines
    name = "radixgate_requests_total"
    assert f'{name}{{outcome="ok",route="/v1/chat/completions",status="200"}} 1.0' in lines


@pytest.mark.parametrize("state", [s for s in EngineState if s is not EngineState.READY])
async def test_metrics_say_that_the_engine_is_down_and_show_none_of_its_gauges(
    state: EngineState,
) -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        up = (await client.get("/metrics")).text.splitlines()
        gateway.engine.state = state
        down = (await client.get("/metrics")).text.splitlines()
    assert "radixgate_engine_up 1.0" in up
    assert "radixgate_kv_pages_capacity 64.0" in up
    assert "radixgate_engine_up 0.0" in down
    assert not any(line.startswith("radixgate_kv_pages_capacity") for line in down)
