"""What is explained is what a request then gets, after any requests, evictions and flushes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_cache import OutOfPages
from tests.unit.prefix_cache.cache_bench import CacheBench

prompts = st.lists(st.integers(0, 2), min_size=1, max_size=30)
steps = st.lists(
    st.one_of(
        prompts.map(lambda prompt: ("serve", prompt)),
        st.tuples(st.just("flush"), st.just([0])),
    ),
    max_size=12,
)


def brute_force(cached: list[list[int]], prompt: list[int]) -> int:
    """The longest common prefix with anything, of which the last token does not count."""
    best = 0
    for sequence in cached:
        pairs = zip(sequence, prompt[:-1], strict=False)
        same = next((k for k, (a, b) in enumerate(pairs) if a != b), None)
        best = max(best, min(len(sequence), len(prompt) - 1) if same is None else same)
    return best


def play(bench: CacheBench, history: list[tuple[str, list[int]]]) -> None:
    for action, prompt in history:
        if action == "flush":
            bench.cache.flush()
            continue
        try:
            bench.serve(prompt)
        except OutOfPages:
            bench.cache.flush()


@given(history=steps, prompt=prompts, num_pages=st.integers(4, 24))
@settings(derandomize=True, max_examples=300, deadline=None)
def test_matched_tokens_are_those_that_acquire_gives(
    history: list[tuple[str, list[int]]], prompt: list[int], num_pages: int
) -> None:
    bench = CacheBench(num_pages=num_pages)
    play(bench, history)
    before = bench.cache.counts()
    told = bench.explain(prompt)
    assert bench.cache.counts() == before
    bench.cache.check_invariants()
    reason = bench.reason_at_admission(prompt)
    lease = bench.cache.acquire(b"namespace", prompt, max_tokens=len(prompt) - 1)
    assert told.matched_tokens == lease.num_cached_tokens
    assert (told.reason is None) == (told.matched_tokens == len(prompt) - 1)
    assert told.reason == reason
    bench.cache.release(lease, None)


@given(history=steps, prompt=prompts)
@settings(derandomize=True, max_examples=200, deadline=None)
def test_where_nothing_was_evicted_it_is_the_longest_common_prefix_and_how_it_goes_on(
    history: list[tuple[str, list[int]]], prompt: list[int]
) -> None:
    served = [token_ids for action, token_ids in history if action == "serve"]
    bench = CacheBench(num_pages=400)
    play(bench, [("serve", token_ids) for token_ids in served])
    told = bench.explain(prompt)
    matched = brute_force(served, prompt)
    assert told.matched_tokens == matched
    if told.reason is None:
        return
    beginnings = [*prompt[:matched], *told.cached_ids]
    goes_on = [one[matched : matched + 16] for one in served if one[:matched] == prompt[:matched]]
    if matched == 0:
        assert (told.reason, told.cached_ids) == ("never_seen", [])
    elif any(goes_on):
        assert told.reason == "differs"
        assert any(one[: len(beginnings)] == beginnings for one in served)
        assert told.cached_ids[0] != prompt[matched]
    else:
        assert (told.reason, told.cached_ids) == ("grows", [])
