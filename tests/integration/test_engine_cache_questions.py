"""What an engine answers about its prefix cache, against what its requests then get."""

from typing import Any

from runtime.cache_messages import (
    CacheAnswer,
    CacheDescription,
    CacheExplanation,
    CacheFault,
    CacheFlushed,
    CacheQuery,
    DescribeCache,
    ExplainCache,
    FlushCache,
    HitWindow,
)
from runtime.messages import CacheHints, Pin
from telemetry import names
from tests.engine_harness import PAGE_SIZE, VOCAB_SIZE, EngineHarness, make_submit

US, THEM = CacheHints(owner="us"), CacheHints(owner="them")


def prompt(seed: int, length: int = 100) -> list[int]:
    return [(seed * 37 + index * (seed + 5)) % 90 for index in range(length)]


def answer(harness: EngineHarness, query: CacheQuery) -> CacheAnswer:
    told = harness.engine.answer(query)
    return told if isinstance(told, CacheAnswer) else told.result(timeout=0)


def explain(harness: EngineHarness, token_ids: list[int], **about: Any) -> CacheExplanation:
    query = ExplainCache("q", token_ids, **{"namespace": b"us", "owner": "us", **about})
    told = answer(harness, query)
    assert isinstance(told, CacheExplanation)
    harness.check_pages()
    return told


def describe(harness: EngineHarness, owner: str | None, **about: Any) -> CacheDescription:
    told = answer(harness, DescribeCache("q", owner, **about))
    assert isinstance(told, CacheDescription)
    return told


class Traffic:
    """Requests of two owners, one after the other."""

    def __init__(self, *, num_pages: int = 256) -> None:
        self.harness = EngineHarness(num_pages=num_pages, page_bytes=4096)
        self._num_requests = 0

    def ask(self, token_ids: list[int], hints: CacheHints = US, **about: Any) -> tuple[int, Any]:
        """Runs a request; how many of its tokens were cached, and the reason in its trace."""
        self._num_requests += 1
        request = make_submit(
            f"r{self._num_requests}",
            token_ids,
            cache=hints,
            **{"max_tokens": 1, "namespace": hints.owner.encode(), **about},
        )
        done = self.harness.ask(request)
        assert done.last.usage is not None
        (match,) = [phase for phase in done.phases if phase.name == names.SPAN_CACHE_MATCH]
        return done.last.usage.cached_tokens, match.attributes.get(names.ATTR_MISS_REASON)


def windows(told: CacheDescription) -> list[HitWindow]:
    assert [window.window_s for window in told.windows] == [60, 300, 3600, None]
    return list(told.windows)


def test_each_reason_is_told_before_a_request_and_stands_in_its_trace() -> None:
    traffic = Traffic()
    harness = traffic.harness
    first, branch = prompt(1), [*prompt(1)[:70], 1, 2, 3]
    cases: list[tuple[list[int], int, str | None]] = [
        (first, 0, "never_seen"),
        (first, 99, None),
        ([*first, 5, 6, 7], 100, "grows"),
        (branch, 70, "differs"),
        (prompt(2), 0, "never_seen"),
    ]
    for token_ids, matched, reason in cases:
        told = explain(harness, token_ids)
        assert (told.num_tokens, told.matched_tokens) == (len(token_ids), matched)
        assert told.reason == reason
        assert told.cached_ids == (first[70:86] if reason == "differs" else [])
        assert traffic.ask(token_ids) == (matched, reason)


def test_what_another_owner_and_what_an_own_request_evicted_is_told_apart() -> None:
    traffic = Traffic(num_pages=24)
    harness = traffic.harness
    traffic.ask(prompt(1, 160))
    before_ns = harness.clock.now_ns
    traffic.ask(prompt(2, 300), THEM)
    told = explain(harness, prompt(1, 160))
    assert (told.reason, told.evicted_for) == ("evicted", "other_tenant")
    assert told.evicted_at_ns is not None
    assert before_ns < told.evicted_at_ns < harness.clock.now_ns
    assert traffic.ask(prompt(1, 160)) == (told.matched_tokens, "evicted")
    assert explain(harness, prompt(2, 300), namespace=b"them", owner="them").reason == "evicted"
    # Now it is the own request that needs the pages of the other one.
    for seed in (3, 4):
        traffic.ask(prompt(seed, 180))
    assert explain(harness, prompt(1, 160)).evicted_for == "own_request"


def test_a_quota_and_a_flush_are_told_as_what_pages_went_for() -> None:
    traffic = Traffic()
    harness = traffic.harness
    bounded = CacheHints(owner="us", quota_bytes=8 * 4096)
    traffic.ask(prompt(1, 100), bounded)
    traffic.ask(prompt(2, 100), bounded)
    told = explain(harness, prompt(1, 100))
    assert (told.reason, told.evicted_for) == ("evicted", "quota")
    (use,) = describe(harness, "us").owners
    assert (use.num_pages, use.quota_pages) == (8, 8)
    flushed = answer(harness, FlushCache("q"))
    assert flushed == CacheFlushed("q", 8)
    told = explain(harness, prompt(2, 100))
    assert (told.matched_tokens, told.reason, told.evicted_for) == (0, "evicted", "flush")


def test_other_namespaces_are_told_to_their_owner_and_to_who_sees_all() -> None:
    traffic = Traffic()
    harness = traffic.harness
    traffic.ask(prompt(1), THEM)
    assert explain(harness, prompt(1)).reason == "never_seen"
    assert explain(harness, prompt(1), sees_all=True).reason == "other_tenant"
    traffic.ask(prompt(1), US, namespace=b"salted")
    assert explain(harness, prompt(1)).reason == "other_salt"
    # A trace tells no other namespace.
    assert traffic.ask(prompt(1)) == (0, "never_seen")


def test_requests_that_take_nothing_from_the_cache_have_no_reason_in_their_trace() -> None:
    traffic = Traffic()
    traffic.ask(prompt(1))
    assert traffic.ask(prompt(1), use_cache=False) == (0, None)
    assert traffic.ask(prompt(1), num_prompt_logprobs=1) == (0, None)


def test_hit_rates_are_those_of_the_first_choices_by_owner_and_in_all() -> None:
    traffic = Traffic()
    harness = traffic.harness
    traffic.ask(prompt(1))
    traffic.ask(prompt(1), num_choices=3)
    traffic.ask(prompt(2, 50), THEM)
    assert {window.cached_tokens for window in windows(describe(harness, "us"))} == {99}
    for owner, expected in [("us", (2, 200, 99)), ("them", (1, 50, 0)), (None, (3, 250, 99))]:
        for window in windows(describe(harness, owner)):
            assert (window.num_requests, window.prompt_tokens, window.cached_tokens) == expected
    by_owner = {use.owner: use.windows for use in describe(harness, None).owners}
    assert by_owner["us"] == describe(harness, "us").windows
    harness.clock.now_ns += 400 * 10**9
    assert [window.num_requests for window in windows(describe(harness, "us"))] == [0, 0, 2, 2]


def test_a_description_has_the_sizes_and_the_tree_of_its_owner_alone() -> None:
    traffic = Traffic()
    harness = traffic.harness
    for token_ids in (prompt(1), [*prompt(1)[:64], *prompt(2)], prompt(3)):
        traffic.ask(token_ids, CacheHints(owner="us", pins=(Pin(32, 600.0),)))
    traffic.ask(prompt(4), THEM)
    told, counts = describe(harness, "us"), harness.cache.counts()
    assert (told.page_size, told.page_bytes) == (PAGE_SIZE, 4096)
    assert (told.pages_free, told.pages_cached) == (counts.free, counts.cached)
    assert (told.pages_locked, told.pages_held, told.pages_total) == (0, 0, 256)
    assert {edge.owner for edge in told.edges} == {"us"}
    (use,) = told.owners
    assert use.num_pages == sum(edge.num_pages for edge in told.edges)
    assert use.num_pinned_pages == harness.stats.pages_pinned == 4
    assert sum(edge.num_pages for edge in told.edges if edge.pinned_until_ns) >= 4
    for edge in told.edges:
        above = [one for one in told.edges if one.id == edge.parent]
        assert edge.start == sum(one.start + one.num_tokens for one in above)
        assert edge.token_ids
    assert told.num_left_out == 0
    assert {edge.token_ids[0] for edge in told.edges} >= {prompt(1)[0], prompt(3)[0]}


def test_of_all_owners_sizes_are_told_but_no_token() -> None:
    traffic = Traffic()
    traffic.ask(prompt(1))
    traffic.ask(prompt(1))
    traffic.ask(prompt(4), THEM)
    told = describe(traffic.harness, None)
    assert {use.owner: use.num_pages for use in told.owners} == {"us": 7, "them": 7}
    assert {edge.owner for edge in told.edges} == {"us", "them"}
    assert all(edge.token_ids == [] for edge in told.edges)
    assert [(hot.num_hits, hot.first_ids, hot.last_ids) for hot in told.hottest] == [(1, [], [])]


def test_an_owner_without_pages_is_described_all_the_same() -> None:
    told = describe(Traffic().harness, "nobody")
    assert [(use.owner, use.num_pages, use.quota_pages) for use in told.owners] == [
        ("nobody", 0, None)
    ]
    assert (told.edges, told.hottest, told.num_left_out) == ([], [], 0)


def test_a_flush_of_one_owner_leaves_the_others_and_who_is_running() -> None:
    traffic = Traffic()
    harness = traffic.harness
    traffic.ask(prompt(1))
    traffic.ask(prompt(2), THEM)
    harness.submit(make_submit("runs", prompt(3), namespace=b"us", cache=US, max_tokens=50))
    for _ in range(4):
        harness.step()
    assert answer(harness, FlushCache("q", owner="us")) == CacheFlushed("q", 7)
    harness.run()
    assert explain(harness, prompt(3)).reason is None
    assert explain(harness, prompt(2), namespace=b"them", owner="them").reason is None
    assert explain(harness, prompt(1)).evicted_for == "flush"


def test_a_prompt_of_tokens_that_do_not_exist_is_a_fault() -> None:
    harness = Traffic().harness
    for token_ids in ([1, VOCAB_SIZE], [-1], [2**40]):
        told = answer(harness, ExplainCache("q", token_ids, b"us", owner="us"))
        assert isinstance(told, CacheFault)
        assert f"[0, {VOCAB_SIZE})" in told.reason


def test_questions_change_nothing_for_the_requests_after_them() -> None:
    def outcomes(*, asks: bool) -> list[Any]:
        traffic = Traffic(num_pages=30)
        told: list[Any] = []
        for index in range(40):
            if asks:
                explain(traffic.harness, prompt(index % 7, 90), sees_all=True)
                describe(traffic.harness, None)
                describe(traffic.harness, "us")
            told.append(traffic.ask(prompt(index * 5 % 7, 60 + 10 * (index % 4))))
        return told

    assert outcomes(asks=True) == outcomes(asks=False)
