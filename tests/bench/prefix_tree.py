"""Time and memory of the prefix tree at a million cached tokens, in trees of several shapes.

Run as `python -m tests.bench.prefix_tree`; prints a table. Times are of whole calls of the cache:
`acquire` with its release (match), `publish` and `release` of what a request has computed
(insert), and `extend` where no page is free (evict).
"""

import argparse
import gc
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from prefix_cache import PrefixCache
from prefix_cache.observer import Cause
from prefix_cache.tree import descendants
from tests.bench.machine import this_machine

PAGE_SIZE = 16
NUM_PAGES = 62_500
PROMPT_LEN = 4_000
PROMPT_PAGES = PROMPT_LEN // PAGE_SIZE
TOKEN_BYTES = 4
VOCABULARY = 150_000
NUM_EVICTED = 10_000
NAMESPACE = b"tenant"
_ROW = "{:42} {:>7} {:>15} {:>15} {:>15} {:>17} {:>17} {:>10}"

Prompts = Callable[[random.Random], Iterator[list[int]]]


class Forgetful:
    """Is told what the server's observer is told, so that names of prefixes are kept for it."""

    def evicted(
        self,
        namespace: bytes,
        parent_key: int,
        *,
        first_page: bytes,
        num_pages: int,
        cause: Cause,
        for_owner: str,
    ) -> None:
        pass


def main() -> None:
    """Prints a row for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="matches and insertions a shape")
    num_rounds = parser.parse_args().rounds
    print(f"{this_machine().describe()}\n`{' '.join(sys.orig_argv[1:])}`, pages of {PAGE_SIZE}\n")
    titles = ("shape of the tree", "nodes", "match ms", "no match ms", "insert ms")
    evictions = ("evict by 250 ms", "evict by 1 ms", "bytes/page")
    print(_ROW.format(*titles, *evictions))
    units = (
        "",
        "",
        "p50 / p99",
        "p50 / p99",
        "p50 / p99",
        "10,000 / longest",
        "10,000 / longest",
        "",
    )
    print(_ROW.format(*units))
    for name, prompts in SHAPES.items():
        print(_ROW.format(name, *measure(prompts, num_rounds)), flush=True)


def measure(prompts: Prompts, num_rounds: int) -> list[str]:
    """The cells of one shape."""
    known = prompts_that_fill(prompts)
    overhead = overhead_bytes(known)
    cache = filled(known)
    num_nodes = sum(1 for root in cache.tree.roots.values() for _ in descendants(root))
    rng = random.Random(3)
    queries = [known[rng.randrange(len(known))] for _ in range(num_rounds)]
    warm = [query + tokens(rng, PROMPT_LEN - len(query)) for query in queries]
    cold = [tokens(rng, PROMPT_LEN) for _ in range(num_rounds)]
    matches = [seconds(partial(match, cache, query)) for query in warm]
    misses = [seconds(partial(match, cache, query)) for query in cold]
    cells = [f"{num_nodes:,}", percentiles(matches), percentiles(misses)]
    by_prompt = evictions(cache, num_step_pages=PROMPT_PAGES)
    by_page = evictions(cache, num_step_pages=1)
    inserts = [insertion(cache, prompt) for prompt in cold]
    cells += [percentiles(inserts), total(by_prompt), total(by_page), f"{overhead:.0f}"]
    cache.check_invariants()
    return cells


# Shapes


def tokens(rng: random.Random, num_tokens: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(num_tokens)]


def own_prompts(rng: random.Random) -> Iterator[list[int]]:
    while True:
        yield tokens(rng, PROMPT_LEN)


def long_prompts(rng: random.Random) -> Iterator[list[int]]:
    while True:
        yield tokens(rng, 25 * PROMPT_LEN)


def conversations(rng: random.Random) -> Iterator[list[int]]:
    """Ten system prompts of 1,600 tokens; below, prompts branch off those and each other."""
    systems = [tokens(rng, 1_600) for _ in range(10)]
    known: list[list[int]] = []
    while True:
        base = rng.choice(systems)
        if known and rng.random() < 0.6:
            base = rng.choice(known)
            base = base[: rng.randrange(1_600, len(base))]
        known.append(base + tokens(rng, PROMPT_LEN - len(base)))
        yield known[-1]


def ladders(rng: random.Random) -> Iterator[list[int]]:
    """Paths of 250 pages, at each of which another page branches off: a node for every page."""
    while True:
        trunk = tokens(rng, PROMPT_LEN)
        yield trunk
        for end in range(PAGE_SIZE, PROMPT_LEN, PAGE_SIZE):
            yield trunk[:end] + tokens(rng, PAGE_SIZE)


def fan(rng: random.Random) -> Iterator[list[int]]:
    """One page, and all others behind it, different in their last two tokens only."""
    first, alike = tokens(rng, PAGE_SIZE), tokens(rng, PAGE_SIZE - 2)
    while True:
        yield [*first, *alike, *tokens(rng, 2)]


SHAPES: dict[str, Prompts] = {
    "250 prompts of 4,000 tokens": own_prompts,
    "10 prompts of 100,000 tokens": long_prompts,
    "conversations below 10 system prompts": conversations,
    "ladders: a page branches off at each page": ladders,
    "fan: 62,499 pages behind one": fan,
}


# Trees


def remember(cache: PrefixCache, prompt: Sequence[int]) -> None:
    """One request, from acquire to release."""
    lease = cache.acquire(NAMESPACE, prompt, max_tokens=len(prompt) - 1)
    cache.extend(lease, -(-len(prompt) // PAGE_SIZE) - len(lease.page_ids))
    cache.release_tail(lease)
    cache.release(lease, prompt)


def make_cache() -> PrefixCache:
    return PrefixCache(num_pages=NUM_PAGES, page_size=PAGE_SIZE, observer=Forgetful())


def prompts_that_fill(prompts: Prompts) -> list[list[int]]:
    """As many prompts as fit without an eviction."""
    found: list[list[int]] = []
    cache = make_cache()
    for prompt in prompts(random.Random(7)):
        if cache.counts().free <= len(prompt) // PAGE_SIZE:
            return found
        found.append(prompt)
        remember(cache, prompt)
    raise AssertionError("shapes never end")


def filled(prompts: list[list[int]]) -> PrefixCache:
    cache = make_cache()
    for prompt in prompts:
        remember(cache, prompt)
    return cache


def overhead_bytes(prompts: list[list[int]]) -> float:
    """What the whole cache takes for a page (pool, order of eviction and names of prefixes
    included) beyond its tokens at 4 bytes each."""
    gc.collect()
    tracemalloc.start()
    cache = filled(prompts)
    gc.collect()
    num_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return num_bytes / cache.counts().cached - PAGE_SIZE * TOKEN_BYTES


# Steps


def match(cache: PrefixCache, prompt: Sequence[int]) -> None:
    lease = cache.acquire(NAMESPACE, prompt, max_tokens=len(prompt) - 1)
    cache.release(lease, None)


def insertion(cache: PrefixCache, prompt: Sequence[int]) -> float:
    """Seconds of what follows the computation of a new prompt."""
    lease = cache.acquire(NAMESPACE, prompt, max_tokens=0)
    cache.extend(lease, PROMPT_PAGES)

    def insert() -> None:
        cache.publish(lease, prompt)
        cache.release(lease, prompt)

    return seconds(insert)


def evictions(cache: PrefixCache, *, num_step_pages: int) -> list[float]:
    """Seconds of each of the steps that evict 10,000 pages together."""
    while cache.counts().free:
        cache.extend(cache.acquire_none(), cache.counts().free)
    lease = cache.acquire_none()
    num_evicted = cache.num_evicted_pages
    steps = []
    while cache.num_evicted_pages < num_evicted + NUM_EVICTED:
        steps.append(seconds(lambda: cache.extend(lease, num_step_pages)))
    cache.release(lease, None)
    return steps


def seconds(step: Callable[[], object]) -> float:
    start = time.thread_time()
    step()
    return time.thread_time() - start


def percentiles(steps: list[float]) -> str:
    cuts = statistics.quantiles(steps, n=100)
    return f"{1e3 * cuts[49]:.3f} / {1e3 * cuts[98]:.3f}"


def total(steps: list[float]) -> str:
    return f"{1e3 * sum(steps):.1f} / {1e3 * max(steps):.2f}"


if __name__ == "__main__":
    main()
