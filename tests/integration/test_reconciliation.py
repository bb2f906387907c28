"""Counters, usage and traces are one account: whatever mix of requests comes, they add up."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from telemetry import names
from telemetry.testing import in_memory_tracing
from tests.gateway_harness import CHAT, COMPLETIONS, chat, completion
from tests.key_files import key_file
from tests.raw_client import connection, raw_request
from tests.sse_machine import check_chat_stream
from tests.waiting import until
from tests.whole_path import WholePath, byte_engine, serving

CHUNK = 32
PREFIX = "What is counted for one is counted for all, "
NUM_CHUNKS = 3
KEYS = ("key-a", "key-b")
MONITOR = "key-of-a-monitor"
PRICES = {"input": Decimal("0.15"), "cached_input": Decimal("0.075"), "output": Decimal("0.6")}

Sample = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(eq=False)
class Account:
    """A server under way, and what its clients were told so far."""

    path: WholePath
    spans: InMemorySpanExporter
    usages: list[dict[str, Any]] = field(default_factory=list)
    outcomes: Counter[tuple[str, int]] = field(default_factory=Counter)

    async def answered(self, path: str, body: dict[str, Any], key: str = KEYS[0]) -> None:
        """Notes the usage of a whole answer or of a stream."""
        async with self.path.client() as client:
            reply = await client.post(path, json=body, headers=bearer(key))
        assert reply.status_code == 200, reply.text
        usage = reply.json()["usage"] if not body.get("stream") else streamed_usage(reply)
        self.usages.append(usage)
        self.outcomes["ok", 200] += 1

    async def not_answered(
        self, body: dict[str, Any], status: int, outcome: str = "rejected"
    ) -> None:
        async with self.path.client() as client:
            reply = await client.post(CHAT, json=body, headers=bearer(KEYS[0]))
        assert reply.status_code == status, reply.text
        self.outcomes[outcome, status] += 1

    async def left_after(self, num_steps: int, body: dict[str, Any], *, status: int) -> None:
        """A client that leaves after so many steps of the engine."""
        engine = self.path.engine
        num_before, num_lost = len(engine.submitted), len(self.path.lost_at)
        engine.hold()
        async with connection(self.path.base_url) as writer:
            writer.write(raw_request(body, headers=bearer(KEYS[1])))
            await until(lambda: len(engine.submitted) > num_before)
            for _ in range(num_steps):
                await engine.step()
            writer.close()
            await until(lambda: len(self.path.lost_at) > num_lost)
        self.outcomes["aborted", status] += 1
        await until(lambda: len(self.server_spans()) == self.outcomes.total())
        engine.release()
        await until(lambda: not engine.runtime.has_work())

    def server_spans(self) -> list[ReadableSpan]:
        finished = self.spans.get_finished_spans()
        return [span for span in finished if span.kind.name == "SERVER"]

    def model_spans(self) -> list[ReadableSpan]:
        ids = {context_id(span) for span in self.server_spans()}
        finished = self.spans.get_finished_spans()
        return [span for span in finished if span.parent and span.parent.span_id in ids]

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name == name]

    async def samples(self) -> dict[Sample, float]:
        # The runtime's own counters come with its next heartbeat.
        self.path.engine.beat()
        for _ in range(100):
            await asyncio.sleep(0)
        async with self.path.client() as client:
            reply = await client.get("/metrics", headers=bearer(MONITOR))
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(reply.text)
            for sample in family.samples
        }


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def streamed_usage(reply: httpx2.Response) -> dict[str, Any]:
    usage = check_chat_stream(reply.content, includes_usage=True).usage
    assert usage is not None
    return usage


def context_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def total(spans: Iterable[ReadableSpan], attribute: str) -> int:
    values = [(span.attributes or {}).get(attribute, 0) for span in spans]
    return sum(value for value in values if isinstance(value, int))


def endless(word: str, **parameters: Any) -> dict[str, Any]:
    return chat(PREFIX + word, max_tokens=1000, ignore_eos=True, seed=1, **parameters)


def short(word: str, **parameters: Any) -> dict[str, Any]:
    return chat(PREFIX + word, **{"max_tokens": 5, "ignore_eos": True, "seed": 1, **parameters})


@asynccontextmanager
async def account(folder: Path) -> AsyncIterator[Account]:
    """A server that has had one request of each kind."""
    prices = folder / "prices.yaml"
    fields = ", ".join(f"{kind}: {price}" for kind, price in PRICES.items())
    prices.write_text(f"currency: USD\nmodels: {{tiny: {{{fields}}}}}", encoding="utf-8")
    tracing, spans = in_memory_tracing()
    async with serving(
        byte_engine(max_running=4, max_step_tokens=CHUNK),
        tracing=tracing,
        api_keys=KEYS,
        key_file=str(key_file(folder, {MONITOR: {"tenant": "monitor", "role": "monitor"}})),
        price_file=str(prices),
        keepalive="off",
    ) as path:
        made = Account(path, spans)
        await whatever_comes(made)
        yield made


async def whatever_comes(to: Account) -> None:
    usage_wanted = {"stream": True, "stream_options": {"include_usage": True}}
    # What a grammar forces from the start would be computed with the prompt.
    forced = {"structured_outputs": {"regex": "[gh]abcdef"}, "ignore_eos": False, "max_tokens": 9}
    await to.answered(CHAT, short("one"))
    await to.answered(CHAT, short("one"))  # from the cache
    await to.answered(CHAT, short("two", **usage_wanted), KEYS[1])
    await to.answered(CHAT, short("three", n=2, temperature=1.0))
    await to.answered(COMPLETIONS, completion(["four " * 9, "five " * 9], n=2, max_tokens=3))
    await to.answered(CHAT, short("six", **forced))
    await to.answered(CHAT, short("six", **forced, **usage_wanted), KEYS[1])
    await asyncio.gather(*(to.answered(CHAT, short(f"many {i % 2}")) for i in range(4)))
    await to.not_answered(short("seven", temperature=9), 400)
    await to.not_answered(short("eight") | {"model": "none"}, 404)
    await to.left_after(NUM_CHUNKS + 4, endless("nine", stream=True), status=200)
    await to.left_after(NUM_CHUNKS + 6, endless("ten"), status=499)
    await to.left_after(0, endless("eleven"), status=499)  # in the queue
    await late(to)


async def late(to: Account) -> None:
    """A request that its deadline ends in the middle; the last one, as the clock stays ahead."""
    to.path.engine.hold()
    running = asyncio.create_task(to.not_answered(endless("twelve"), 504, "error"))
    num_before = len(to.path.engine.submitted)
    await until(lambda: len(to.path.engine.submitted) > num_before)
    for _ in range(NUM_CHUNKS + 3):
        await to.path.engine.step()
    to.path.engine.clock.skip(10_000.0)
    await to.path.engine.step()
    await running
    to.path.engine.release()


async def test_whatever_ran_is_counted_once_everywhere(tmp_path: Path) -> None:
    async with account(tmp_path) as to:
        found = await to.samples()
        assert_requests(to, found)
        assert_tokens(to, found)
        assert_engine(to, found)
        assert_tenants(to, found)
        assert_times(to, found)


def assert_requests(to: Account, found: dict[Sample, float]) -> None:
    counted: Counter[tuple[str, int]] = Counter()
    for (name, pairs), value in found.items():
        if name == "radixgate_requests_total":
            labels = dict(pairs)
            counted[labels["outcome"], int(labels["status"])] += int(value)
    assert counted == to.outcomes
    told = Counter(
        (str(attributes[names.ATTR_OUTCOME]), attributes[names.HTTP_STATUS])
        for attributes in (span.attributes or {} for span in to.server_spans())
    )
    assert told == to.outcomes
    assert found["radixgate_requests_in_flight", ()] == 0
    results = {
        dict(pairs)["result"]: value
        for (name, pairs), value in found.items()
        if name == "radixgate_goodput_requests_total"
    }
    assert results == {"good": len(to.usages), "failed": 1, "slow_ttft": 0, "slow_tpot": 0}


def assert_tokens(to: Account, found: dict[Sample, float]) -> None:
    models = to.model_spans()
    ended = [span for span in models if names.ERROR_TYPE in (span.attributes or {})]
    told = {
        "prompt": sum(usage["prompt_tokens"] for usage in to.usages),
        "cached": sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in to.usages),
        "cache_written": sum(
            usage["prompt_tokens_details"]["cache_write_tokens"] for usage in to.usages
        ),
        "generated": sum(usage["completion_tokens"] for usage in to.usages),
    }
    attributes = {
        "prompt": names.GEN_AI_USAGE_INPUT,
        "cached": names.GEN_AI_USAGE_CACHE_READ,
        "cache_written": names.GEN_AI_USAGE_CACHE_CREATION,
        "generated": names.GEN_AI_USAGE_OUTPUT,
    }
    for kind, attribute in attributes.items():
        counted = found[f"radixgate_{kind}_tokens_total", ()]
        taken = total(ended, attribute)
        assert taken > 0, kind
        assert told[kind] + taken == counted == total(models, attribute), kind
    decoded = [span for span in to.named(names.SPAN_DECODE) if is_child(span, ended)]
    assert len(decoded) == len(ended) - 1  # of one that never left the queue there is none
    assert total(decoded, names.ATTR_TOKENS) == total(ended, names.GEN_AI_USAGE_OUTPUT)
    device = found["radixgate_cached_tokens_by_tier_total", (("tier", "device"),)]
    assert device == found["radixgate_cached_tokens_total", ()]
    forced = found["radixgate_forced_tokens_total", ()]
    assert forced == total(to.named(names.SPAN_DECODE), names.ATTR_FORCED_TOKENS) > 0


def assert_engine(to: Account, found: dict[Sample, float]) -> None:
    """Its own counts, of all choices, are those of the spans; of one choice they are the usage."""
    prefilled = total(to.named(names.SPAN_PREFILL), names.ATTR_TOKENS)
    computed = found["radixgate_computed_prompt_tokens_total", ()]
    assert computed == prefilled
    single = [span for span in to.model_spans() if is_single(span)]
    of_single = [span for span in to.named(names.SPAN_PREFILL) if is_child(span, single)]
    assert total(single, names.GEN_AI_USAGE_CACHE_READ) + total(
        of_single, names.ATTR_TOKENS
    ) == total(single, names.GEN_AI_USAGE_INPUT)


def is_child(span: ReadableSpan, parents: Iterable[ReadableSpan]) -> bool:
    return span.parent is not None and span.parent.span_id in map(context_id, parents)


def is_single(span: ReadableSpan) -> bool:
    return names.GEN_AI_REQUEST_CHOICES not in (span.attributes or {})


def assert_tenants(to: Account, found: dict[Sample, float]) -> None:
    tenants = {
        context_id(span): str((span.attributes or {})[names.ATTR_TENANT])
        for span in to.server_spans()
    }
    assert len(set(tenants.values())) == len(KEYS)
    expected: Counter[tuple[str, str]] = Counter()
    for span in to.model_spans():
        assert span.parent is not None
        tenant = tenants[span.parent.span_id]
        cached = total([span], names.GEN_AI_USAGE_CACHE_READ)
        expected[tenant, "cached_input"] += cached
        expected[tenant, "input"] += total([span], names.GEN_AI_USAGE_INPUT) - cached
        expected[tenant, "output"] += total([span], names.GEN_AI_USAGE_OUTPUT)
    for (tenant, kind), num_tokens in expected.items():
        labels = (("kind", kind), ("tenant", tenant))
        assert found["radixgate_tenant_tokens_total", labels] == num_tokens
        cost = found["radixgate_cost_total", (("currency", "USD"), *labels)]
        assert cost == float(PRICES[kind] * num_tokens / 1_000_000)
    totals = Counter(kind for _, kind in expected)
    for kind in totals:
        totals[kind] = sum(count for (_, one), count in expected.items() if one == kind)
    assert totals["input"] + totals["cached_input"] == found["radixgate_prompt_tokens_total", ()]
    assert totals["output"] == found["radixgate_generated_tokens_total", ()]


def assert_times(to: Account, found: dict[Sample, float]) -> None:
    models = [span.attributes or {} for span in to.model_spans()]
    ttft = sum(
        value for (name, _), value in found.items() if name.endswith("first_token_seconds_count")
    )
    assert ttft == sum(names.ATTR_TTFT_MS in attributes for attributes in models)
    assert found["radixgate_queue_seconds_count", ()] == len(models)
    constrained = sum(names.ATTR_CONSTRAINT in attributes for attributes in models)
    assert found["radixgate_mask_seconds_count", ()] == constrained == 2
