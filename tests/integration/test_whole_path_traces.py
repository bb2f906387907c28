"""What a collector gets of one request, however it ends: the whole tree, and numbers that fit."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import httpx2
import pytest

from grammar.errors import UnsupportedConstraint
from telemetry import tracing
from telemetry.tracing import Tracing
from tests.fake_grammar import BROKEN, FakeGrammarEngine
from tests.gateway_harness import CHAT, chat, error_of
from tests.otlp_receiver import (
    OtlpReceiver,
    Protocol,
    ReceivedSpan,
    black_hole,
    closed_port,
    otlp_receiver,
)
from tests.raw_client import connection, raw_request
from tests.sse_machine import check_chat_stream
from tests.stepped_engine import SteppedEngine
from tests.trace_tree import Caller, caller, received_trace
from tests.waiting import until
from tests.whole_path import WholePath, byte_engine, serving

PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http/protobuf")
CHUNK = 32
PREFIX = "Trace every request from its first byte to its last, "
NUM_CHUNKS = 3  # of a prompt of PREFIX and a word, with the template's words around it
PLAIN_PHASES = {"tokenize": 1, "queue": 1, "cache.match": 1, "prefill": NUM_CHUNKS, "decode": 1}
CALLER = caller(0)

Serve = Callable[..., AbstractAsyncContextManager[WholePath]]


@pytest.fixture(params=PROTOCOLS)
def receiver(request: pytest.FixtureRequest) -> Iterator[OtlpReceiver]:
    with otlp_receiver(cast("Protocol", request.param)) as receiver:
        yield receiver


@pytest.fixture
def serve(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """A server that exports to the receiver."""
    for key, value in receiver.environment.items():
        monkeypatch.setenv(key, value)
    return exporting


@asynccontextmanager
async def exporting(
    engine: SteppedEngine | None = None, **settings: Any
) -> AsyncIterator[WholePath]:
    """A server that exports where the environment says; of the engine made here, each step."""
    target = Tracing.from_environment(service_version="1")
    if engine is None:
        engine = byte_engine(
            max_running=1, max_step_tokens=CHUNK, trace_steps=1.0, on_step=target.record_step
        )
    try:
        async with serving(engine, tracing=target, **settings) as path:
            yield path
    finally:
        await asyncio.to_thread(target.shutdown)


def body(word: str = "please", **parameters: Any) -> dict[str, Any]:
    return chat(PREFIX + word, **{"max_tokens": 1000, "ignore_eos": True, "seed": 1, **parameters})


async def post(path: WholePath, parameters: dict[str, Any], by: Caller = CALLER) -> httpx2.Response:
    async with path.client() as client:
        return await client.post(CHAT, json=parameters, headers=by.headers)


@asynccontextmanager
async def posting(
    path: WholePath, parameters: dict[str, Any]
) -> AsyncIterator["asyncio.Task[httpx2.Response]"]:
    """A request that has come to the held engine's inbox."""
    num_before = len(path.engine.submitted)
    task = asyncio.create_task(post(path, parameters))
    try:
        await until(lambda: len(path.engine.submitted) > num_before)
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def steps_in(spans: Sequence[ReceivedSpan]) -> list[ReceivedSpan]:
    return [span for span in spans if span.name == "engine.step"]


async def steps(path: WholePath, num_steps: int) -> None:
    for _ in range(num_steps):
        await path.engine.step()


def usage_of(response: httpx2.Response, *, is_stream: bool) -> dict[str, Any]:
    if not is_stream:
        usage: dict[str, Any] = response.json()["usage"]
        return usage
    streamed = check_chat_stream(response.content, includes_usage=True)
    assert streamed.usage is not None
    return streamed.usage


def constrained(*, is_stream: bool) -> dict[str, Any]:
    """Six tokens, as the grammar allows no others; its end is the answer's."""
    asked = body(structured_outputs={"regex": "[a-d]{6}"}, ignore_eos=False)
    return asked | (
        {"stream": True, "stream_options": {"include_usage": True}} if is_stream else {}
    )


async def test_success_has_every_phase_under_the_callers_trace(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve() as path:
        response = await post(path, constrained(is_stream=False))
        tree = await received_trace(receiver, CALLER)
        (submit,) = path.engine.submitted
    assert tree.ending == ("ok", 200, None)
    # tried out by the gateway, built by the runtime
    assert tree.num_phases == PLAIN_PHASES | {"grammar.compile": 2}
    tree.assert_in_order()
    assert (tree.server.status, tree.inner.status) == ("UNSET", "UNSET")
    assert (tree.inner.name, tree.inner.events) == ("chat tiny", ("first_token",))
    traceparent = f"00-{CALLER.trace_id}-{tree.server.span_id}-01"
    assert response.headers["traceparent"] == traceparent
    assert submit.trace is not None
    assert submit.trace.traceparent == traceparent
    assert [
        (span.attributes["radixgate.grammar.where"], span.attributes["radixgate.grammar.engine"])
        for span in tree.named("grammar.compile")
    ] == [("gateway", "llguidance"), ("runtime", "llguidance")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_numbers_of_a_success_are_those_of_its_usage(
    serve: Serve, receiver: OtlpReceiver, stream: bool
) -> None:
    async with serve() as path:
        await post(path, body("first", max_tokens=2), caller(1))
        response = await post(path, constrained(is_stream=stream))
        tree = await received_trace(receiver, CALLER)
    usage = usage_of(response, is_stream=stream)
    assert usage["prompt_tokens_details"]["cached_tokens"] >= len(PREFIX)
    assert usage["completion_tokens"] == 6
    tree.assert_fits(usage)
    model, decode = tree.inner.attributes, tree.one("decode").attributes
    assert model["gen_ai.response.finish_reasons"] == ("stop",)
    assert model["gen_ai.request.stream"] is stream
    first_chunk_ms = model["gen_ai.response.time_to_first_chunk"] * 1e3
    assert model["radixgate.ttft_ms"] == pytest.approx(first_chunk_ms)
    assert decode["radixgate.decode.steps"] == 6
    assert decode["radixgate.grammar.mask_time_ms"] > 0


async def test_a_match_says_why_it_had_no_more(serve: Serve, receiver: OtlpReceiver) -> None:
    expected = [("please", "never_seen"), ("please", None), ("pleased", "differs")]
    told = []
    async with serve() as path:
        for number, (word, _) in enumerate(expected, start=1):
            await post(path, body(word, max_tokens=2), caller(number))
            tree = await received_trace(receiver, caller(number))
            told.append(
                (word, tree.one("cache.match").attributes.get("radixgate.cache.miss_reason"))
            )
    assert told == expected


async def test_each_chunk_of_a_prompt_has_a_span(serve: Serve, receiver: OtlpReceiver) -> None:
    async with serve() as path:
        response = await post(path, body(max_tokens=4))
        tree = await received_trace(receiver, CALLER)
    num_prompt = response.json()["usage"]["prompt_tokens"]
    chunks = [span.attributes["radixgate.tokens"] for span in tree.named("prefill")]
    assert chunks == [CHUNK, CHUNK, num_prompt - 2 * CHUNK]
    tree.assert_in_order()


async def test_each_chunk_and_the_step_that_computed_it_know_each_other(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve() as path:
        await post(path, body(max_tokens=4))
        tree = await received_trace(receiver, CALLER)
        num_steps = NUM_CHUNKS + 3
        spans = await asyncio.to_thread(
            receiver.wait_for_spans, lambda spans: len(steps_in(spans)) == num_steps
        )
    recorded = {(step.trace_id, step.span_id): step for step in steps_in(spans)}
    for chunk in tree.named("prefill"):
        (link,) = chunk.links
        step = recorded[link]
        assert (step.kind, step.parent_id, step.status) == ("INTERNAL", "", "UNSET")
        assert step.trace_id != CALLER.trace_id
        assert step.links == ((CALLER.trace_id, tree.server.span_id),)
        assert (
            step.attributes["radixgate.step.prefill_tokens"]
            == (chunk.attributes["radixgate.tokens"])
        )
        assert step.start_ns <= chunk.start_ns <= chunk.end_ns <= step.end_ns
    assert len({link for chunk in tree.named("prefill") for link in chunk.links}) == NUM_CHUNKS
    assert [span.name for span in tree.phases if span.links] == ["prefill"] * NUM_CHUNKS


async def test_a_request_says_how_its_tokens_came_and_what_it_waited_for(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve() as path:
        await post(path, body(max_tokens=30))
        tree = await received_trace(receiver, CALLER)
    model, queue = tree.inner.attributes, tree.one("queue")
    decode = tree.one("decode").attributes
    for found, kind in ((model, "inter_token"), (decode, "decode.tpot")):
        p50, p99 = (found[f"radixgate.{kind}_{quantile}_ms"] for quantile in ("p50", "p99"))
        assert 0 < p50 <= p99 < (tree.server.end_ns - tree.server.start_ns) / 1e6
    assert model["radixgate.queue.wait_ms"] == (queue.end_ns - queue.start_ns) / 1e6
    assert queue.attributes["radixgate.queue.position"] == 0
    assert model["radixgate.grammar.forced_tokens"] == 0


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_abort_has_the_phases_until_the_client_left(
    serve: Serve, receiver: OtlpReceiver, stream: bool
) -> None:
    async with serve() as path:
        path.engine.hold()
        async with connection(path.base_url) as writer:
            writer.write(raw_request(body(stream=stream), headers=CALLER.headers))
            await until(lambda: len(path.engine.submitted) == 1)
            await steps(path, NUM_CHUNKS + 4)
        tree = await received_trace(receiver, CALLER)
    assert tree.ending == ("aborted", 200 if stream else 499, "aborted")
    assert tree.num_phases == PLAIN_PHASES
    tree.assert_in_order()
    assert (tree.server.status, tree.inner.events) == ("ERROR", ("first_token", "aborted"))
    assert tree.one("decode").attributes["radixgate.tokens"] == 5


async def test_abort_in_the_queue_has_no_phase_of_a_computation(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve() as path:
        path.engine.hold()
        async with connection(path.base_url) as writer:
            writer.write(raw_request(body(), headers=CALLER.headers))
            await until(lambda: len(path.engine.submitted) == 1)
        tree = await received_trace(receiver, CALLER)
    assert tree.ending == ("aborted", 499, "aborted")
    assert tree.num_phases == {"tokenize": 1, "queue": 1}
    assert tree.inner.events == ("aborted",)


async def test_abort_in_the_midst_of_a_prompt_closes_the_prefill(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve() as path:
        path.engine.hold()
        async with connection(path.base_url) as writer:
            writer.write(raw_request(body(), headers=CALLER.headers))
            await until(lambda: len(path.engine.submitted) == 1)
            await steps(path, NUM_CHUNKS - 1)
        tree = await received_trace(receiver, CALLER)
    assert tree.ending == ("aborted", 499, "aborted")
    assert tree.num_phases == {"tokenize": 1, "queue": 1, "cache.match": 1, "prefill": NUM_CHUNKS}
    assert "radixgate.tokens" not in tree.named("prefill")[-1].attributes
    tree.assert_in_order()


async def test_abort_after_a_preemption_closes_both_the_wait_and_the_decode(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    # two prompts of six pages, and the pages that are left are soon used up
    async with serve(byte_engine(num_pages=16, max_step_tokens=CHUNK)) as path:
        await post(path, body("short", max_tokens=1), caller(1))  # so are others expected to be
        path.engine.hold()
        other = asyncio.create_task(post(path, body("other", cache_salt="a"), caller(2)))
        await until(lambda: len(path.engine.submitted) == 2)
        async with connection(path.base_url) as writer:
            asked = body(cache_salt="b", stream=True)
            writer.write(raw_request(asked, headers=CALLER.headers))
            await until(lambda: len(path.engine.submitted) == 3)
            for _ in range(200):
                if path.engine.runtime.stats().preemptions == 0:
                    await steps(path, 1)
        tree = await received_trace(receiver, CALLER)
        path.engine.declare_lost("the test ends")
        await other
    assert tree.ending == ("aborted", 200, "aborted")
    assert tree.inner.events == ("first_token", "preempted", "aborted")
    assert tree.inner.attributes["radixgate.preemptions"] == 1
    assert (tree.num_phases["queue"], tree.num_phases["decode"]) == (2, 1)
    again = tree.named("queue")[1]
    assert again.attributes["radixgate.preemptions"] == 1
    assert again.end_ns == tree.one("decode").end_ns
    assert again.start_ns > tree.one("decode").start_ns


@pytest.mark.parametrize("num_steps", [0, 1])
async def test_runtime_that_dies_before_an_answer_leaves_what_the_request_was_in(
    serve: Serve, receiver: OtlpReceiver, num_steps: int
) -> None:
    async with serve() as path:
        path.engine.hold()
        async with posting(path, body()) as task:
            await steps(path, num_steps)
            path.engine.declare_lost("the runtime was killed by signal 9")
            await task
        tree = await received_trace(receiver, CALLER)
    assert tree.ending == ("error", 503, "engine_died")
    expected = {"tokenize": 1, "queue": 1}
    if num_steps:
        expected |= {"cache.match": 1, "prefill": 2}
    assert tree.num_phases == expected


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_failed_constraint_is_an_error_with_its_phases(
    serve: Serve, receiver: OtlpReceiver, stream: bool
) -> None:
    engine = byte_engine(max_step_tokens=CHUNK, load=FakeGrammarEngine().load)
    async with serve(engine) as path:
        asked = body(stream=stream, structured_outputs={"regex": BROKEN})
        response = await post(path, asked)
        tree = await received_trace(receiver, CALLER)
    if stream:
        error = check_chat_stream(response.content).error
        assert error is not None
    else:
        error = error_of(response)
    assert error["code"] == "constraint_failed"
    assert response.status_code == (200 if stream else 500)
    assert tree.ending == ("error", response.status_code, "constraint_failed")
    assert tree.server.status == "ERROR"
    assert tree.num_phases == {
        "tokenize": 1,
        "grammar.compile": 2,
        "queue": 1,
        "cache.match": 1,
        "prefill": NUM_CHUNKS,
    }


async def test_deadline_in_the_middle_of_an_answer_is_an_error_with_its_phases(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve(request_timeout_s=600.0) as path:
        path.engine.hold()
        async with posting(path, body()) as task:
            await steps(path, NUM_CHUNKS + 4)
            path.engine.clock.skip(601.0)
            await steps(path, 1)
            response = await task
        tree = await received_trace(receiver, CALLER)
        path.engine.assert_idle()
    assert (response.status_code, error_of(response)["code"]) == (504, "deadline_exceeded")
    assert tree.ending == ("error", 504, "deadline_exceeded")
    assert tree.num_phases == PLAIN_PHASES
    assert tree.one("decode").attributes["radixgate.tokens"] == 5


async def test_deadline_in_the_midst_of_a_prompt_closes_the_prefill(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve(request_timeout_s=600.0) as path:
        path.engine.hold()
        async with posting(path, body()) as task:
            await steps(path, NUM_CHUNKS - 1)
            path.engine.clock.skip(601.0)
            await steps(path, 1)
            await task
        tree = await received_trace(receiver, CALLER)
    assert tree.ending == ("error", 504, "deadline_exceeded")
    assert tree.num_phases == {"tokenize": 1, "queue": 1, "cache.match": 1, "prefill": NUM_CHUNKS}


async def test_request_that_waited_too_long_says_for_what(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve(queue_timeout_s=60.0) as path:
        path.engine.hold()
        running = asyncio.create_task(post(path, body(max_tokens=3), caller(1)))
        await until(lambda: len(path.engine.submitted) == 1)
        await steps(path, 1)
        async with posting(path, body("waits")) as task:
            await steps(path, 1)
            path.engine.clock.skip(61.0)
            await steps(path, 1)
            response = await task
        tree = await received_trace(receiver, CALLER)
        path.engine.release()
        assert (await running).status_code == 200
    assert (response.status_code, error_of(response)["code"]) == (503, "queue_timeout")
    assert tree.ending == ("rejected", 503, "queue_timeout")
    assert tree.num_phases == {"tokenize": 1, "queue": 1}
    assert tree.one("queue").attributes["radixgate.queue.reason"] == "slots"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_runtime_that_dies_is_an_error_with_the_phases_until_then(
    serve: Serve, receiver: OtlpReceiver, stream: bool
) -> None:
    async with serve() as path:
        path.engine.hold()
        async with posting(path, body(stream=stream)) as task:
            await steps(path, NUM_CHUNKS + 4)
            path.engine.declare_lost("the runtime was killed by signal 9")
            response = await task
        tree = await received_trace(receiver, CALLER)
    assert response.status_code == (200 if stream else 503)
    assert tree.ending == ("error", response.status_code, "engine_died")
    assert tree.server.status == "ERROR"
    assert tree.num_phases == PLAIN_PHASES
    tree.assert_in_order()


async def test_refused_for_want_of_room_is_a_rejection_without_phases(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve(max_running=1, max_queue=0) as path:
        path.engine.hold()
        accepted = asyncio.create_task(post(path, body(max_tokens=1), caller(1)))
        await until(lambda: len(path.engine.submitted) == 1)
        response = await post(path, body())
        tree = await received_trace(receiver, CALLER)
        path.engine.release()
        assert (await accepted).status_code == 200
    assert tree.ending == ("rejected", 503, "server_is_overloaded")
    assert (tree.server.status, tree.num_phases) == ("ERROR", {})
    assert response.headers["traceparent"].split("-")[1] == CALLER.trace_id


async def test_refused_constraint_is_a_rejection_with_its_compilation(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve() as path:
        path.probe.error = UnsupportedConstraint("no lookbehind")
        response = await post(path, body(structured_outputs={"regex": "(?<=a)b"}))
        tree = await received_trace(receiver, CALLER)
    assert response.status_code == 400
    assert tree.ending == ("rejected", 400, "invalid_grammar")
    assert tree.server.status == "UNSET"
    assert tree.num_phases == {"tokenize": 1, "grammar.compile": 1}


async def test_refused_body_is_a_rejection_without_a_model_span(
    serve: Serve, receiver: OtlpReceiver
) -> None:
    async with serve() as path:
        await post(path, body(temperature=9))
        tree = await received_trace(receiver, CALLER)
    assert tree.ending == ("rejected", 400, "decimal_above_max_value")
    assert (tree.model, tree.phases) == (None, ())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["closed port", "black hole"])
async def test_with_a_dead_collector_requests_are_answered_all_the_same(
    protocol: Protocol, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "DRAIN_S", 0.1)
    with black_hole() as silent:
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", closed_port() if kind == "closed port" else silent
        )
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
        async with exporting() as path:
            responses = [await post(path, body(max_tokens=2)) for _ in range(12)]
            finished = path.tracing
    assert [response.status_code for response in responses] == [200] * 12
    assert len({response.headers["traceparent"] for response in responses}) == 12
    # No span is lost uncounted: six a request, and the chunks of its prompt, of which the later
    # requests compute the end only. Each step but a request's second token's is one of a chunk.
    num_prefills = NUM_CHUNKS + 11
    num_spans = 12 * 6 + num_prefills + (num_prefills + 12)
    assert (finished.num_exported_spans, finished.num_dropped_spans) == (0, num_spans)
