"""The server as it is started, its OTEL_ variables set: what a collector gets of each ending."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from tests.conformance.target import Target
from tests.e2e.conftest import EXACT
from tests.e2e.processes import runtime_child
from tests.e2e.scrape import scrape, until_running
from tests.e2e.server_process import ServerProcess, serving, until_status
from tests.otlp_points import ReceivedMetrics
from tests.otlp_receiver import OtlpReceiver, Protocol, black_hole, otlp_receiver
from tests.sse_machine import check_chat_stream
from tests.trace_tree import Caller, caller, received_trace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

CHAT = "/v1/chat/completions"
PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http/protobuf")
# Small, so that a prompt of a few lines is prefilled in several chunks.
CHUNK = 64
PROMPT = "Every request leaves a trace, and every phase of it is a span of its own. " * 4
ENDLESS = {"max_tokens": 30_000, "ignore_eos": True}
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
# The chunk before has the role and an empty content.
FIRST_WORDS = b'"delta":{"content":"'
HEALED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Observed:
    """A server that exports to a receiver."""

    server: ServerProcess
    target: Target
    receiver: OtlpReceiver

    async def post(self, by: Caller, **parameters: Any) -> httpx2.Response:
        async with self.target.http() as client:
            body = self.target.chat(PROMPT, **parameters)
            return await client.post(CHAT, json=body, headers=by.headers)

    @asynccontextmanager
    async def running(
        self, client: httpx2.AsyncClient, by: Caller, **parameters: Any
    ) -> AsyncIterator[tuple[bytes, AsyncIterator[bytes]]]:
        """A stream that has said something and has much to say: what came, and the rest."""
        body = self.target.chat(PROMPT, **ENDLESS, stream=True, **parameters)
        async with client.stream("POST", CHAT, json=body, headers=by.headers) as response:
            parts = response.aiter_bytes()
            seen = b""
            while FIRST_WORDS not in seen:
                seen += await anext(parts)
            yield seen, parts


@pytest.fixture(scope="module", params=PROTOCOLS)
def observed(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[Observed]:
    with otlp_receiver(cast("Protocol", request.param)) as receiver:
        flags = (*EXACT, "--max-step-tokens", str(CHUNK))
        settings = {"model": str(tiny_model), "trace_steps": "1", **receiver.environment}
        with serving(*flags, **settings) as (server, target):
            yield Observed(server, target, receiver)


def response_format() -> dict[str, Any]:
    schema = {"name": "answer", "strict": True, "schema": SCHEMA}
    return {"type": "json_schema", "json_schema": schema}


async def test_constrained_answer_has_every_phase_with_the_numbers_of_its_usage(
    observed: Observed,
) -> None:
    cold, warm = caller(1), caller(2)
    asked = {"max_tokens": 40, "response_format": response_format()}
    responses = [await observed.post(by, **asked) for by in (cold, warm)]
    trees = [await received_trace(observed.receiver, by) for by in (cold, warm)]
    for response, tree, by in zip(responses, trees, (cold, warm), strict=True):
        usage = response.json()["usage"]
        assert tree.ending == ("ok", 200, None)
        # Beside the prompt's own, the tokens that the schema forces from the start.
        num_chunks = -(-tree.total("prefill", "radixgate.tokens") // CHUNK)
        assert tree.num_phases == {
            "tokenize": 1,
            "grammar.compile": 2,
            "queue": 1,
            "cache.match": 1,
            "prefill": num_chunks,
            "decode": 1,
            "validate": 1,
        }
        tree.assert_fits(usage)
        tree.assert_in_order()
        assert tree.one("decode").attributes["radixgate.grammar.mask_time_ms"] > 0
        assert response.headers["traceparent"] == f"00-{by.trace_id}-{tree.server.span_id}-01"
        assert tree.server.resource["service.name"] == "radixgate"
    assert trees[0].num_phases["prefill"] > 2
    assert trees[1].num_phases["prefill"] == 1
    is_cached = [
        [span.attributes["radixgate.grammar.cached"] for span in tree.named("grammar.compile")]
        for tree in trees
    ]
    assert is_cached == [[False, False], [True, True]]


async def test_steps_and_requests_of_two_processes_are_linked(observed: Observed) -> None:
    callers = [caller(10), caller(11)]
    asked = [observed.post(by, max_tokens=20, cache_salt=by.span_id) for by in callers]
    await asyncio.gather(*asked)
    trees = [await received_trace(observed.receiver, by) for by in callers]
    links = {link for tree in trees for chunk in tree.named("prefill") for link in chunk.links}
    spans = await asyncio.to_thread(
        observed.receiver.wait_for_spans,
        lambda spans: links <= {(span.trace_id, span.span_id) for span in spans},
    )
    steps = {(span.trace_id, span.span_id): span for span in spans if span.name == "engine.step"}
    for tree in trees:
        server = (tree.server.trace_id, tree.server.span_id)
        for chunk in tree.named("prefill"):
            (link,) = chunk.links
            step = steps[link].attributes
            assert server in steps[link].links
            assert step["radixgate.batch.rows"] == chunk.attributes["radixgate.batch.rows"]
            assert step["radixgate.step.prefill_tokens"] >= chunk.attributes["radixgate.tokens"]
            assert step["radixgate.step.forward_ms"] > 0
        decoded = [step for step in steps.values() if server in step.links]
        assert len(decoded) >= tree.one("decode").attributes["radixgate.decode.steps"]


async def test_abort_has_the_phases_until_the_client_left(observed: Observed) -> None:
    by = caller(3)
    async with observed.target.http() as client:
        async with observed.running(client, by, cache_salt="abort"):
            pass
        await until_running(client, 0)
    tree = await received_trace(observed.receiver, by)
    assert tree.ending == ("aborted", 200, "aborted")
    assert tree.inner.events == ("first_token", "aborted")
    num_prefills = tree.num_phases["prefill"]
    assert num_prefills > 2
    assert tree.num_phases == {
        "tokenize": 1,
        "queue": 1,
        "cache.match": 1,
        "prefill": num_prefills,
        "decode": 1,
    }
    assert 0 < tree.one("decode").attributes["radixgate.tokens"] < ENDLESS["max_tokens"]


async def test_refused_schema_has_the_compilation_that_refused_it(observed: Observed) -> None:
    by = caller(4)
    refused = {"regex": "(?<=a)b"}
    response = await observed.post(by, structured_outputs=refused)
    tree = await received_trace(observed.receiver, by)
    assert response.json()["error"]["code"] == "invalid_grammar"
    assert tree.ending == ("rejected", 400, "invalid_grammar")
    assert tree.num_phases == {"tokenize": 1, "grammar.compile": 1}


async def test_killed_runtime_is_an_error_with_the_phases_until_then(observed: Observed) -> None:
    whole_by, stream_by, later_by = caller(5), caller(6), caller(7)
    async with observed.target.http() as client:
        whole = asyncio.create_task(observed.post(whole_by, **ENDLESS))
        await until_running(client, 1)
        async with observed.running(client, stream_by) as (seen, parts):
            os.kill(runtime_child(observed.server.pid), signal.SIGKILL)
            async for part in parts:
                seen += part
        assert (await whole).status_code == 503
        assert check_chat_stream(seen).error is not None
        await until_status(client, 200, timeout_s=HEALED_WITHIN_S)
    for by, status in ((whole_by, 503), (stream_by, 200)):
        tree = await received_trace(observed.receiver, by)
        assert tree.ending == ("error", status, "engine_died")
        assert tree.server.status == "ERROR"
        assert tree.num_phases.keys() == {"tokenize", "queue", "cache.match", "prefill", "decode"}
        assert tree.one("decode").attributes["radixgate.tokens"] > 0
        tree.assert_in_order()
    await observed.post(later_by)
    assert (await received_trace(observed.receiver, later_by)).ending == ("ok", 200, None)


async def test_with_a_collector_that_never_answers_the_server_answers_and_stops(
    tiny_model: Path,
) -> None:
    with black_hole() as endpoint:
        variables = {
            "trace_steps": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_BSP_SCHEDULE_DELAY": "10",
            # Full at once: what comes then must be dropped and not waited for.
            "OTEL_BSP_MAX_QUEUE_SIZE": "8",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4",
        }
        with serving(*EXACT, model=str(tiny_model), **variables) as (server, target):
            async with target.http() as client:
                bodies = [target.chat(f"Request {number}") for number in range(20)]
                responses = await asyncio.gather(*(client.post(CHAT, json=b) for b in bodies))
                metrics = await scrape(client)
            server.signal(signal.SIGTERM)
            code = await asyncio.to_thread(server.wait)
    assert [response.status_code for response in responses] == [200] * 20
    assert metrics["radixgate_spans_dropped_total"] > 20
    assert metrics["radixgate_spans_exported_total"] == 0
    assert code == -signal.SIGTERM
    assert "Traceback" not in server.output()


async def test_the_collector_gets_the_metrics_that_a_scrape_gets(observed: Observed) -> None:
    await observed.post(caller(99), max_tokens=3)
    async with observed.target.http() as client:
        scraped = await scrape(client)
    wanted = {
        "radixgate.generated_tokens": scraped["radixgate_generated_tokens_total"],
        "radixgate.prompt_tokens": scraped["radixgate_prompt_tokens_total"],
        "radixgate.kv_pages_capacity": scraped["radixgate_kv_pages_capacity"],
    }

    def are_there(received: ReceivedMetrics) -> bool:
        return {name: received.one(name).value for name in wanted} == wanted

    await asyncio.to_thread(observed.receiver.wait_for_metrics, are_there)
    assert wanted["radixgate.generated_tokens"] >= 3
