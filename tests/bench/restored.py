"""First requests with a prefix that somebody else computed, beside requests with one that is new.

Shared by the benches of the lower tiers: pairs of times, their ratio, and waiting until a server
has written what it computed.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from telemetry import catalog
from telemetry.answer_stream import Answer, StreamError
from tests.bench.client import ask, client_session
from tests.bench.servers import Contender, Endpoint, product
from tests.bench.workloads import Body, make_long_prompt, make_questions

# Servers find each other's pages only with the same secret behind their namespaces.
SECRET = "the secret of the benches of the tiers"
# Numbers in /metrics are those of the last heartbeat; pages are written when a server is idle.
_QUIET_S = 3.0
_POLL_S = 0.1
_TIMEOUT_S = 60.0
_MIN_RESTORED_SHARE = 0.95
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Pair:
    """Times to first token of one server: with a known prefix, then with one that is new."""

    known_ms: float
    cold_ms: float
    known_tokens: int
    cached_tokens: int

    @property
    def ratio(self) -> float:
        return self.known_ms / self.cold_ms

    @property
    def is_restored(self) -> bool:
        return self.cached_tokens >= _MIN_RESTORED_SHARE * self.known_tokens

    def describe(self) -> str:
        return (
            f"first token after {self.known_ms:.1f} ms with the prefix"
            f" ({self.cached_tokens} of {self.known_tokens} tokens cached),"
            f" cold {self.cold_ms:.1f} ms: {self.ratio:.3f}"
        )


def judge(name: str, pairs: Sequence[Pair], *, max_ratio: float) -> bool:
    """Prints the median ratio; whether it is within the target and every prefix was found."""
    ratio = statistics.median(pair.ratio for pair in pairs)
    num_restored = sum(pair.is_restored for pair in pairs)
    print(
        f"{name}: median ratio {ratio:.3f}, target {max_ratio};"
        f" {num_restored} of {len(pairs)} prefixes found",
        flush=True,
    )
    return ratio <= max_ratio and num_restored == len(pairs)


def tiered_product(**variables: str) -> Contender:
    """The server of this checkout with lower tiers."""
    return product(RADIXGATE_SERVER_SECRET=SECRET, **variables)


def two_questions(model: str, seed: str) -> tuple[Body, Body]:
    """Behind one prefix of about 1,400 tokens."""
    first, second = make_questions(model, num_questions=2, seed=seed)
    return first, second


async def measure_pair(endpoint: Endpoint, known: Body, cold: Body) -> Pair:
    """Raises: StreamError."""
    async with client_session() as session:
        first = await ask(session, endpoint.base_url, known)
        second = await ask(session, endpoint.base_url, cold)
    return Pair(_ttft_ms(first), _ttft_ms(second), first.prompt_tokens, first.cached_tokens or 0)


def _ttft_ms(answer: Answer) -> float:
    if answer.timing is None:
        raise StreamError("an answer without text")
    return answer.timing.ttft_s * _MS


async def warm_up(endpoint: Endpoint, tier: str, *, seed: str) -> None:
    """An unrelated request, which teaches a server what prefill costs; its pages are written."""
    body = make_long_prompt(endpoint.model, num_words=700, max_tokens=8, seed=f"warm-up/{seed}")
    await ask_and_store(endpoint, body, tier)


async def ask_and_store(endpoint: Endpoint, body: Body, tier: str) -> None:
    """Returns once the server has written what it computed, and writes no more.

    Raises: StreamError; TimeoutError where it writes nothing.
    """
    async with client_session() as session:
        before = await tier_number(session, endpoint, catalog.TIER_PAGES_STORED.exposed_name, tier)
        await ask(session, endpoint.base_url, body)
        async with asyncio.timeout(_TIMEOUT_S):
            stored, since_s = before, time.monotonic()
            while stored == before or time.monotonic() - since_s < _QUIET_S:
                await asyncio.sleep(_POLL_S)
                now = await tier_number(
                    session, endpoint, catalog.TIER_PAGES_STORED.exposed_name, tier
                )
                if now != stored:
                    stored, since_s = now, time.monotonic()


async def tier_number(
    session: aiohttp.ClientSession, endpoint: Endpoint, metric: str, tier: str
) -> float:
    """A gauge or a counter of one tier, summed over other labels; 0 where there is none yet."""
    async with session.get(endpoint.base_url.removesuffix("/v1") + "/metrics") as reply:
        text = await reply.text()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == metric and sample.labels.get("tier") == tier
    )
