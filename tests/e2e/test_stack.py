"""The stack of compose.yaml, as processes: two of ours over TCP, two real Valkeys, a real
Prometheus that scrapes and evaluates the rules, and a receiver in the collector's place.

Each test leaves all of it running and well.
"""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from telemetry import names
from tests.e2e.server_process import until_status
from tests.e2e.stack import Stack, stack_in
from tests.metric_queries import recording_rules, rules
from tests.model_file import ROOT
from tests.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.promql import plain
from tests.stack_tools import tools_or_skip
from tests.trace_tree import caller, received_trace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

CHAT = "/v1/chat/completions"
PROMPT = "One stack, many processes, and each of them is there for a reason. " * 6
START_S = 90.0
SEEN_S = 30.0
POLL_S = 0.1


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpReceiver]:
    with otlp_receiver("http/protobuf") as receiver:
        yield receiver


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    collector: OtlpReceiver,
    tiny_model: Path,
) -> Iterator[Stack]:
    tools_or_skip()
    variables = {"MODEL": str(tiny_model), "RUNTIME_CPUS": "1", "KV_MEMORY_MB": "64"}
    with stack_in(
        tmp_path_factory.mktemp("stack"),
        collector=collector.endpoint,
        variables=variables,
        more={"OTEL_BSP_SCHEDULE_DELAY": "50"},
    ) as stack:
        with shown_where_it_fails(stack):
            asyncio.run(bring_up(stack))
        yield stack


@contextmanager
def shown_where_it_fails(stack: Stack) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(stack.logs())
        raise


async def bring_up(stack: Stack) -> None:
    """In the order that depends_on asks for."""
    done = stack.run("model")
    assert done.returncode == 0, done.stderr
    for name in ("redis", "redis-cache", "prometheus", "runtime"):
        stack.start(name)
    await until_healthy(stack, "runtime")
    stack.start("gateway")
    await until_healthy(stack, "gateway")


async def until_healthy(stack: Stack, name: str) -> None:
    async with asyncio.timeout(START_S):
        while not await asyncio.to_thread(stack.is_healthy, name):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


def body(**parameters: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": PROMPT}]
    return {"model": "tiny", "messages": messages, "max_tokens": 8, "temperature": 0, **parameters}


def cached_tokens(response: httpx2.Response) -> int:
    assert response.status_code == 200, response.text
    return int(response.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


class Prometheus:
    """Its HTTP API."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, **parameters: str) -> Any:
        answer = (await self._client.get(path, params=parameters)).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    async def value(self, query: str) -> float | None:
        """Of a query that finds one series or none."""
        found = (await self.get("/query", query=query))["result"]
        return float(found[0]["value"][1]) if found else None

    async def until(self, query: str, wanted: float, *, timeout_s: float = SEEN_S) -> None:
        """Returns once the query has at least that value."""
        async with asyncio.timeout(timeout_s):
            # Of nothing that has happened yet it says that it is no number, which is no value.
            while (value := await self.value(query)) is None or not value >= wanted:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)

    async def until_exemplar(self, series: str, trace_id: str) -> None:
        asked = {"query": series, "start": "0", "end": "9e9"}
        async with asyncio.timeout(SEEN_S):
            while trace_id not in json.dumps(await self.get("/query_exemplars", **asked)):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)

    async def until_alert(self, name: str, *, is_firing: bool) -> None:
        async with asyncio.timeout(SEEN_S):
            while is_firing != await self._is_firing(name):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)

    async def _is_firing(self, name: str) -> bool:
        alerts = (await self.get("/alerts"))["alerts"]
        return any(a["labels"]["alertname"] == name and a["state"] == "firing" for a in alerts)


@pytest.fixture
async def prometheus(stack: Stack) -> AsyncIterator[Prometheus]:
    async with httpx2.AsyncClient(base_url=f"{stack.prometheus_url}/api/v1", timeout=10) as client:
        yield Prometheus(client)


async def test_an_answer_comes_and_the_second_one_finds_the_prompt(stack: Stack) -> None:
    async with stack.client() as client:
        first = await client.post(CHAT, json=body())
        second = await client.post(CHAT, json=body())
    assert first.json()["choices"][0]["message"]["content"]
    assert cached_tokens(first) < 16
    assert cached_tokens(second) > 64


async def test_a_trace_has_spans_of_both_processes(stack: Stack, collector: OtlpReceiver) -> None:
    by = caller(1)
    async with stack.client() as client:
        await client.post(CHAT, json=body(), headers=by.headers)
    trace = await received_trace(collector, by)
    assert {names.SPAN_TOKENIZE, names.SPAN_QUEUE, names.SPAN_PREFILL, names.SPAN_DECODE} <= set(
        trace.num_phases
    )
    assert trace.inner.attributes[names.ATTR_ENGINE_ID] == socket.gethostname()
    assert trace.server.resource["service.name"] == "radixgate"
    assert trace.server.resource["deployment.environment.name"] == "production"


async def test_prometheus_scrapes_the_gateway_and_evaluates_every_rule(
    stack: Stack, prometheus: Prometheus
) -> None:
    # A rate is of what has come since the first scrape.
    await prometheus.until('up{job="gateway"}', 1)
    async with stack.client() as client:
        await client.post(CHAT, json=body())
    await prometheus.until("radixgate:ttft_seconds:p95_5m", 0.0001)
    await prometheus.until("radixgate:cache_hit_ratio:5m", 0.01)
    targets = (await prometheus.get("/targets"))["activeTargets"]
    (gateway,) = [target for target in targets if target["labels"]["job"] == "gateway"]
    assert (gateway["health"], gateway["lastError"]) == ("up", "")
    groups = (await prometheus.get("/rules"))["groups"]
    loaded = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert loaded.keys() == {*recording_rules(), *(rule["alert"] for rule in rules("alerts.yml"))}
    assert set(loaded.values()) == {"ok"}


async def test_a_point_of_the_ttft_leads_to_its_trace(stack: Stack, prometheus: Prometheus) -> None:
    by = caller(2)
    async with stack.client() as client:
        await client.post(CHAT, json=body(), headers=by.headers)
    await prometheus.until_exemplar("radixgate_time_to_first_token_seconds_bucket", by.trace_id)


async def test_every_query_of_the_dashboards_can_be_answered(prometheus: Prometheus) -> None:
    panels = [
        panel
        for file in (ROOT / "deploy/grafana/dashboards").iterdir()
        for panel in json.loads(file.read_text())["panels"]
    ]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    answers = {query: await prometheus.get("/query", query=plain(query)) for query in queries}
    shown = [query for query, answer in answers.items() if answer["result"]]
    assert len(shown) > len(queries) / 2


async def test_keys_open_what_they_are_for(stack: Stack) -> None:
    async with stack.client() as client:
        url = str(client.base_url)
    keys = {"none": "", "metrics": stack.secret("metrics_key.txt")}
    codes = {}
    for name, key in keys.items():
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=10) as client:
            codes[name] = (
                (await client.get("/metrics")).status_code,
                (await client.post(CHAT, json=body())).status_code,
            )
    assert codes == {"none": (401, 401), "metrics": (200, 404)}


async def test_each_redis_has_its_own_and_neither_answers_without_the_password(
    stack: Stack, prometheus: Prometheus
) -> None:
    async with stack.client() as client:
        answer = await client.post(
            "/v1/responses", json={"model": "tiny", "input": "Hello.", "max_output_tokens": 16}
        )
    assert answer.status_code == 200, answer.text
    kept, pages = (
        Redis.from_url(stack.secret(name)) for name in ("redis_url.txt", "cache_redis_url.txt")
    )
    with kept, pages:
        assert any(answer.json()["id"].encode() in key for key in kept.keys("*"))
        assert pages.dbsize()
        assert pages.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}
        assert kept.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    host = stack.secret("redis_url.txt").rpartition("@")[2]
    with Redis.from_url(f"redis://{host}") as nobody, pytest.raises(AuthenticationError):
        nobody.ping()
    await prometheus.until('min(radixgate_cache_tier_up{tier=~"disk|redis"})', 1)


async def test_a_killed_runtime_is_a_503_and_an_alert_until_it_is_back(
    stack: Stack, prometheus: Prometheus
) -> None:
    with shown_where_it_fails(stack):
        stack.kill("runtime")
        async with stack.client() as client:
            await until_status(client, 503, timeout_s=30)
            assert (await client.post(CHAT, json=body())).status_code == 503
            assert not stack.is_healthy("runtime")
            await prometheus.until_alert("EngineDown", is_firing=True)
            stack.start("runtime")
            await until_status(client, 200, timeout_s=START_S)
            assert (await client.post(CHAT, json=body())).status_code == 200
        assert stack.is_healthy("runtime")
        await prometheus.until_alert("EngineDown", is_firing=False)


async def test_a_gateway_that_is_stopped_and_started_finds_its_runtime_and_the_cache(
    stack: Stack,
) -> None:
    with shown_where_it_fails(stack):
        async with stack.client() as client:
            await client.post(CHAT, json=body())
        assert stack.stop("gateway") == -signal.SIGTERM  # as any program that the signal ends
        assert stack.is_healthy("runtime")
        stack.start("gateway")
        await until_healthy(stack, "gateway")
        async with stack.client() as client:
            assert cached_tokens(await client.post(CHAT, json=body())) > 64
