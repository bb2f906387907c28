"""A match against looking at every cached sequence, token by token.

Alphabets of two and three tokens, so that sequences begin alike, contain each other and differ at
any place of a page; pages of 1 to 4 tokens and of 16.
"""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_cache import PrefixCache
from prefix_cache.node import Node
from prefix_cache.packed_tokens import unpack
from tests.property.naive_prefix_cache import common_len

PAGE_SIZES = st.sampled_from([1, 2, 3, 4, 16])
SEEDS = st.integers(0, 2**32)


def sequences(rng: random.Random, *, num_symbols: int, max_len: int, count: int) -> list[list[int]]:
    """Each goes on where an earlier one was left, somewhere."""
    found: list[list[int]] = [[]]
    for _ in range(count):
        base = rng.choice(found)
        base = base[: rng.randrange(len(base) + 1)]
        num_more = rng.randrange(1, 1 + max(1, max_len // 4))
        symbols = [rng.randrange(num_symbols) for _ in range(num_more)]
        found.append((base + symbols)[:max_len])
    return found[1:]


@given(seed=SEEDS, page_size=PAGE_SIZES, num_symbols=st.integers(2, 3))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_a_match_is_the_longest_common_prefix_with_anything_cached(
    seed: int, page_size: int, num_symbols: int
) -> None:
    rng = random.Random(seed)
    max_len = 12 * page_size
    cached = sequences(rng, num_symbols=num_symbols, max_len=max_len, count=40)
    cache = PrefixCache(num_pages=4_000, page_size=page_size)
    for tokens in cached:
        keep(cache, tokens)
    cache.check_invariants()
    for query in sequences(rng, num_symbols=num_symbols, max_len=max_len, count=40) + cached:
        longest = max(common_len(tokens, query) for tokens in cached)
        assert cache.peek(b"", query) == longest
        num_tokens = rng.randrange(len(query) + 1)
        lease = cache.acquire(b"", query, max_tokens=num_tokens)
        assert lease.num_cached_tokens == min(longest, num_tokens)
        assert lease.num_shared_tokens == lease.num_cached_tokens // page_size * page_size
        cache.release(lease, None)
    cache.check_invariants()


@given(seed=SEEDS, page_size=PAGE_SIZES)
@settings(derandomize=True, max_examples=40, deadline=None)
def test_after_evictions_a_match_is_the_longest_prefix_of_what_is_left(
    seed: int, page_size: int
) -> None:
    rng = random.Random(seed)
    cached = sequences(rng, num_symbols=2, max_len=20 * page_size, count=80)
    cache = PrefixCache(num_pages=24, page_size=page_size)
    for tokens in cached:
        keep(cache, tokens)
        left = left_in(cache)
        for query in rng.sample(cached, 5):
            longest = max((common_len(one, query) for one in left), default=0)
            assert cache.peek(b"", query) == longest
    assert cache.num_evicted_pages
    cache.check_invariants()


def left_in(cache: PrefixCache) -> list[list[int]]:
    """The sequences in the tree that nothing continues."""
    return [tokens for root in cache.tree.roots.values() for tokens in below(root)]


def below(node: Node) -> list[list[int]]:
    own = unpack(node.tokens)
    if not node.children:
        return [own]
    return [own + tokens for child in node.children for tokens in below(child)]


def keep(cache: PrefixCache, tokens: list[int]) -> None:
    lease = cache.acquire(b"", tokens, max_tokens=len(tokens) - 1)
    cache.extend(lease, -(-len(tokens) // cache.page_size) - len(lease.page_ids))
    cache.release_tail(lease)
    cache.release(lease, tokens)
