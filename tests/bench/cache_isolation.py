"""Whether one key's cache shows in another's times: `python -m tests.bench.cache_isolation`.

Key A computes a prompt; key B then asks it, and by turns one that nobody has asked. Were A's pages
of use to B, its first token would come much sooner, as it does where A asks again (the control).
Prints the p-values of two tests whether B's times are of one distribution.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import aiohttp

from telemetry.answer_stream import StreamError
from tests.bench.client import ask, client_session
from tests.bench.processor import ProcessorTimes
from tests.bench.rank_tests import kolmogorov_smirnov, mann_whitney
from tests.bench.servers import Contender, Endpoint, product, running
from tests.bench.single_bench import run_single
from tests.bench.workloads import Body, make_long_prompt

KEY_A, KEY_B = "bench-a", "bench-b"
MIN_P_VALUE = 0.01
MIN_CONTROL_RATIO = 3.0
# What any two prompts have in common: the template's beginning, and words that agree by chance.
MAX_CACHED = 64
KINDS = ("known", "fresh")
_MS = 1e3


@dataclass(eq=False, slots=True)
class Times:
    """Times to first token in ms: of B with what A has computed, of B with a prompt that is new, of
    A the second time. `most_cached` is the most that B was told was cached of a prompt of A's."""

    known: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    most_cached: int = 0

    def lines(self) -> list[str]:
        """What was measured, a line a kind of request."""
        control = f"{self.control_ratio:.1f} times as fast"
        cached = f"of A's prompts at most {self.most_cached} tokens cached"
        return [
            f"B, prompt that A computed  {_describe(self.known)}",
            f"B, prompt that is new      {_describe(self.fresh)}",
            f"A, the same again          {_describe(self.own)}: {control}",
            f"B's two kinds: Mann-Whitney p = {self.p_mann_whitney:.3f}, {self._smirnov}; {cached}",
        ]

    @property
    def _smirnov(self) -> str:
        return f"Kolmogorov-Smirnov p = {self.p_smirnov:.3f}"

    @property
    def p_mann_whitney(self) -> float:
        return mann_whitney(self.known, self.fresh)

    @property
    def p_smirnov(self) -> float:
        return kolmogorov_smirnov(self.known, self.fresh)

    @property
    def control_ratio(self) -> float:
        """How much faster a prompt is that the same key has computed."""
        return statistics.median(self.fresh) / statistics.median(self.own)

    @property
    def is_isolated(self) -> bool:
        return (
            self.most_cached <= MAX_CACHED
            and min(self.p_mann_whitney, self.p_smirnov) >= MIN_P_VALUE
            and self.control_ratio >= MIN_CONTROL_RATIO
        )


def _describe(values: Sequence[float]) -> str:
    low, median, high = statistics.quantiles(values, n=4)
    return f"median {median:.1f} ms, quartiles {low:.1f} and {high:.1f} (n = {len(values)})"


def _server() -> Contender:
    return replace(product(RADIXGATE_API_KEYS=f"{KEY_A},{KEY_B}"), api_key=KEY_A)


async def measure_times(endpoint: Endpoint, *, num_pairs: int, num_words: int) -> Times:
    """Raises: StreamError."""
    rng, times = random.Random(1), Times()
    async with client_session(KEY_A) as a, client_session(KEY_B) as b:
        for number in range(-1, num_pairs):  # the first one warms up
            bodies = {
                kind: make_long_prompt(
                    endpoint.model, num_words=num_words, max_tokens=2, seed=f"{kind}/{number}"
                )
                for kind in KINDS
            }
            await _ask(a, endpoint, bodies["known"])
            found = {kind: await _ask(b, endpoint, bodies[kind]) for kind in rng.sample(KINDS, 2)}
            own_ms, _ = await _ask(a, endpoint, bodies["known"])
            if number >= 0:
                times.known.append(found["known"][0])
                times.fresh.append(found["fresh"][0])
                times.own.append(own_ms)
                times.most_cached = max(times.most_cached, found["known"][1])
    return times


async def _ask(session: aiohttp.ClientSession, endpoint: Endpoint, body: Body) -> tuple[float, int]:
    """Time to first token in ms, and how many tokens were cached. Raises: StreamError."""
    answer = await ask(session, endpoint.base_url, body)
    if answer.timing is None:
        raise StreamError("an answer without text")
    return answer.timing.ttft_s * _MS, answer.cached_tokens or 0


async def measure(options: argparse.Namespace) -> bool:
    """Raises: ServerError, StreamError."""
    async with running(_server()) as endpoint:
        start = ProcessorTimes.now(endpoint.pid)
        times = await measure_times(endpoint, num_pairs=options.pairs, num_words=options.words)
        print("\n".join(times.lines()))
        print(ProcessorTimes.now(endpoint.pid).describe_since(start))
    print(
        f"targets: p >= {MIN_P_VALUE}, at most {MAX_CACHED} tokens cached,"
        f" control >= {MIN_CONTROL_RATIO}"
    )
    return times.is_isolated


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--words", type=int, default=700, help="of a prompt")
    return parser


if __name__ == "__main__":
    sys.exit(run_single("cache_isolation", _parser(), measure))
