"""Pages leave the engine for a lower tier and come back, also to another engine after a restart."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from prefix_cache.tiers.tier import PageTier
from runtime import promotion
from runtime.cache_messages import CacheExplanation, CacheFlushed, ExplainCache, FlushCache
from runtime.messages import CacheHints, ErrorCode, Phase
from telemetry import names
from tests.engine_harness import PAGE_SIZE, EngineHarness, alone, make_submit
from tests.memory_tier import MemoryTier
from tests.tiered_engine import TOKEN_NS, TieredEngine

Start = Callable[..., TieredEngine]
PROMPT = [(7 * i + i * i) % 90 for i in range(10 * PAGE_SIZE + 3)]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts engines over tiers; they end with the test."""
    engines: list[TieredEngine] = []

    def make(*tiers: PageTier, **options: object) -> TieredEngine:
        engines.append(TieredEngine(tiers, **options))  # type: ignore[arg-type]
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def fetches(phases: list[Phase]) -> list[tuple[object, object, object]]:
    """Tier, decision and tokens of each."""
    keys = (names.ATTR_CACHE_TIER, names.ATTR_FETCH_DECISION, names.ATTR_FETCH_TOKENS)
    found = [one.attributes for one in phases if one.name == names.SPAN_CACHE_FETCH]
    return [(one[keys[0]], one[keys[1]], one[keys[2]]) for one in found]


def fill(start: Start, tier: MemoryTier, prompt: list[int] = PROMPT) -> list[int]:
    """Another engine has answered the prompt and kept it; what it said."""
    engine = start(tier)
    answer = engine.ask(make_submit("first", prompt))
    engine.settle()
    return answer.token_ids


def test_a_restarted_engine_hits_what_the_one_before_computed(start: Start) -> None:
    tier = MemoryTier()
    first = fill(start, tier)
    assert tier.num_pages == (len(PROMPT) + 8) // PAGE_SIZE
    engine = start(tier)
    answer = engine.ask(make_submit("again", PROMPT))
    assert answer.token_ids == first == alone(make_submit("first", PROMPT))
    assert answer.last.usage is not None
    assert answer.last.usage.cached_tokens == 10 * PAGE_SIZE
    assert answer.last.usage.tier_tokens == {"disk": 10 * PAGE_SIZE}
    assert engine.executor.num_computed_tokens == 3 + 7
    assert fetches(answer.phases) == [("disk", "fetched", 10 * PAGE_SIZE)]


def test_a_fetch_says_what_came_and_what_it_was_weighed_against(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    engine = start(tier)
    engine.ask(make_submit("measures", [1] * 300, use_cache=False))
    answer = engine.ask(make_submit("again", PROMPT))
    (fetch,) = [one.attributes for one in answer.phases if one.name == names.SPAN_CACHE_FETCH]
    assert fetch[names.ATTR_FETCH_BYTES] == 10 * tier.num_bytes // tier.num_pages
    compute_ms = 10 * PAGE_SIZE * TOKEN_NS / 1e6
    assert fetch[names.ATTR_FETCH_COMPUTE_MS] == pytest.approx(compute_ms, rel=0.2)
    estimate_ms = fetch[names.ATTR_FETCH_ESTIMATE_MS]
    assert isinstance(estimate_ms, float)
    assert 0 < estimate_ms < compute_ms


def test_the_next_turn_finds_the_answer_too(start: Start) -> None:
    tier = MemoryTier()
    said = fill(start, tier)
    turn = [*PROMPT, *said, 1, 2, 3]
    answer = start(tier).ask(make_submit("next", turn))
    assert answer.last.usage is not None
    assert answer.last.usage.cached_tokens == (len(PROMPT) + 7) // PAGE_SIZE * PAGE_SIZE
    assert answer.token_ids == alone(make_submit("next", turn))


def test_a_prompt_that_no_tier_knows_is_computed(start: Start) -> None:
    answer = start(MemoryTier()).ask(make_submit("new", PROMPT))
    assert answer.token_ids == alone(make_submit("new", PROMPT))
    assert fetches(answer.phases) == [("disk", "nothing_there", 0)]
    assert answer.last.usage is not None
    assert answer.last.usage.tier_tokens == {}


def test_pages_behind_a_missing_one_are_computed(start: Start) -> None:
    tier = MemoryTier()
    first = fill(start, tier)
    del tier.pages[list(tier.pages)[4]]
    answer = start(tier).ask(make_submit("again", PROMPT))
    assert answer.token_ids == first
    assert answer.last.usage is not None
    assert answer.last.usage.tier_tokens == {"disk": 4 * PAGE_SIZE}


def test_a_page_of_other_tokens_or_of_another_length_is_no_page(start: Start) -> None:
    tier = MemoryTier()
    first = fill(start, tier)
    third, fifth = list(tier.pages)[2], list(tier.pages)[4]
    tokens, payload = tier.pages[fifth]
    tier.pages[fifth] = (tokens, payload[:-1])
    engine = start(tier)
    assert engine.ask(make_submit("short", PROMPT)).token_ids == first
    (use,) = engine.stats.tiers
    assert use.num_rejected == {"payload": 1}
    tokens, payload = tier.pages[third]
    tier.pages[third] = (tokens[:-1] + b"\x01", payload)
    answer = start(tier).ask(make_submit("other", PROMPT))
    assert answer.token_ids == first
    assert answer.last.usage is not None
    assert answer.last.usage.tier_tokens == {"disk": 2 * PAGE_SIZE}


@pytest.mark.parametrize("other", [{"kv_root": b"another model"}, {"namespace": b"another"}])
def test_other_models_and_other_tenants_find_nothing(start: Start, other: dict[str, bytes]) -> None:
    tier = MemoryTier()
    fill(start, tier)
    engine = start(tier, **({"kv_root": other["kv_root"]} if "kv_root" in other else {}))
    request = make_submit("other", PROMPT, namespace=other.get("namespace", b""))
    assert fetches(engine.ask(request).phases) == [("disk", "nothing_there", 0)]


@pytest.mark.parametrize("options", [{"use_cache": False}, {"num_prompt_logprobs": 1}])
def test_who_takes_no_prefix_asks_no_tier(start: Start, options: dict[str, int]) -> None:
    tier = MemoryTier()
    fill(start, tier)
    engine = start(tier)
    answer = engine.ask(make_submit("whole", PROMPT, **options))  # type: ignore[arg-type]
    assert fetches(answer.phases) == []
    assert engine.executor.num_computed_tokens == len(PROMPT) + 7


def test_what_may_not_be_cached_does_not_leave(start: Start) -> None:
    tier = MemoryTier()
    engine = start(tier)
    engine.ask(make_submit("secret", PROMPT, use_cache=False))
    engine.ask(make_submit("kept in part", PROMPT, cache=CacheHints(keep_len=3 * PAGE_SIZE)))
    engine.settle()
    assert tier.num_pages == 3


def test_all_choices_hit_what_one_fetch_brought(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    engine = start(tier)
    request = make_submit("many", PROMPT, num_choices=3)
    engine.submit(request)
    engine.finish("many")
    assert tier.num_calls("fetch") == 1
    for choice in range(3):
        answer = engine.answer("many", choice)
        assert answer.token_ids == alone(request, choice)
        assert answer.last.usage is not None
        assert answer.last.usage.tier_tokens == {"disk": 10 * PAGE_SIZE}


def test_a_waiting_request_holds_no_slot_and_others_go_on(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    tier.hold()
    engine = start(tier, max_running=1)
    engine.submit(make_submit("waits", PROMPT))
    engine.submit(make_submit("runs", PROMPT, use_cache=False))
    for _ in range(12):
        engine.step()
    assert engine.is_done("runs")
    assert (engine.stats.num_waiting, engine.stats.num_running) == (1, 0)
    counts = engine.cache.counts()
    assert (counts.held, counts.locked) == (0, 0)
    assert not engine.engine.has_work()
    tier.release()
    engine.finish("waits")
    assert engine.answer("waits").token_ids == alone(make_submit("waits", PROMPT))
    reasons = [one.attributes.get(names.ATTR_QUEUE_REASON) for one in engine.answer("waits").phases]
    assert "tier" in reasons


def test_nobody_waits_for_longer_than_computing_would_take(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    engine = start(tier)
    engine.ask(make_submit("measures", range(40), use_cache=False))
    tier.hold()
    engine.submit(make_submit("late", PROMPT))
    since_ns = engine.clock.now_ns
    due_ns = engine.engine.next_deadline_ns()
    assert due_ns is not None
    assert due_ns - since_ns == pytest.approx(10 * PAGE_SIZE * TOKEN_NS, rel=0.2)
    engine.step()
    assert not engine.engine.has_work()
    engine.clock.now_ns = due_ns
    assert engine.engine.has_work()
    engine.finish("late")
    tier.release()
    answer = engine.answer("late")
    assert answer.token_ids == alone(make_submit("late", PROMPT))
    assert fetches(answer.phases) == [("disk", "timed_out", 0)]
    assert engine.engine.next_deadline_ns() is None
    engine.clock.now_ns += 10**9
    (use,) = engine.tier_set.uses()
    assert use.num_failures == 1


def test_an_abort_while_pages_are_fetched_leaves_nothing(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    tier.hold()
    engine = start(tier)
    engine.submit(make_submit("gone", PROMPT, num_choices=2))
    engine.step()
    engine.abort("gone", choice=0)
    assert engine.stats.num_waiting == 1
    engine.abort("gone")
    engine.assert_idle()
    tier.release()
    engine.settle()
    engine.step()
    engine.assert_idle()
    assert engine.cache.counts().cached == 0
    engine.close()
    assert tier.num_calls("fetch") == 0  # it was in its lookup


def test_a_choice_that_is_left_gets_what_was_fetched(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    tier.hold()
    engine = start(tier)
    request = make_submit("half", PROMPT, num_choices=2)
    engine.submit(request)
    engine.step()
    engine.abort("half", choice=0)
    tier.release()
    while not engine.is_done("half", 1):
        engine.step()
    assert engine.answer("half", 1).token_ids == alone(request, 1)
    assert engine.executor.num_computed_tokens == 3 + 7


def test_a_deadline_holds_while_pages_are_fetched(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    tier.hold()
    engine = start(tier)
    engine.submit(make_submit("late", PROMPT, queue_deadline_ns=engine.clock.now_ns + 10**9))
    engine.step()
    engine.clock.now_ns += 10**9
    engine.step()
    tier.release()
    assert engine.answer("late").error_code is ErrorCode.QUEUE_TIMEOUT
    engine.assert_idle()


def test_requests_that_begin_alike_share_a_fetch(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    tier.hold()
    engine = start(tier)
    longer, other = [*PROMPT, 1, 2, 3], [*PROMPT[: 5 * PAGE_SIZE], *range(40)]
    for name, prompt in {"first": PROMPT, "longer": longer, "other": other}.items():
        engine.submit(make_submit(name, prompt))
    engine.step()
    tier.release()
    engine.finish("first", "longer", "other")
    assert tier.num_calls("fetch") == 1
    for name, prompt in {"first": PROMPT, "longer": longer, "other": other}.items():
        assert engine.answer(name).token_ids == alone(make_submit(name, prompt))
    usages = [engine.answer(name).last.usage for name in ("first", "longer", "other")]
    tokens = [one.tier_tokens["disk"] for one in usages if one is not None]
    assert tokens == [10 * PAGE_SIZE, 10 * PAGE_SIZE, 5 * PAGE_SIZE]


def test_who_shared_a_fetch_fetches_the_rest_of_its_own(start: Start) -> None:
    tier = MemoryTier()
    longer = [*PROMPT, *range(5 * PAGE_SIZE)]
    fill(start, tier, longer)
    tier.hold()
    engine = start(tier)
    engine.submit(make_submit("first", PROMPT))
    engine.submit(make_submit("longer", longer))
    engine.step()
    tier.release()
    engine.finish("first", "longer")
    assert tier.num_calls("fetch") == 2
    assert engine.answer("longer").token_ids == alone(make_submit("longer", longer))
    usage = engine.answer("longer").last.usage
    assert usage is not None
    assert usage.tier_tokens == {"disk": 15 * PAGE_SIZE}


def test_a_full_pool_takes_as_many_pages_as_it_has_room_for(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    engine = start(tier, num_pages=12)
    engine.expect_short_answers()
    engine.submit(make_submit("large", range(5 * PAGE_SIZE), max_tokens=40, use_cache=False))
    engine.step()
    engine.submit(make_submit("more", PROMPT))
    engine.finish("large", "more")
    assert engine.answer("more").token_ids == alone(make_submit("more", PROMPT))
    usage = engine.answer("more").last.usage
    assert usage is not None
    assert 0 < usage.tier_tokens.get("disk", 0) < 10 * PAGE_SIZE


def test_pages_that_were_evicted_while_others_were_fetched_leave_no_gap(start: Start) -> None:
    """The first pages are in the tree when the request comes, and not when those behind come."""
    tier = MemoryTier()
    first = fill(start, tier)
    engine = start(tier)
    engine.ask(make_submit("beginning", PROMPT[: 3 * PAGE_SIZE + 1], max_tokens=1))
    tier.hold()
    engine.submit(make_submit("again", PROMPT))
    engine.step()
    assert engine.cache.flush() >= 3
    tier.release()
    engine.finish("again")
    answer = engine.answer("again")
    assert answer.token_ids == first
    assert answer.last.usage is not None
    assert answer.last.usage.cached_tokens == 0


def test_a_tier_that_is_down_is_not_asked(start: Start) -> None:
    tier = MemoryTier()
    first = fill(start, tier)
    tier.is_up = False
    answer = start(tier).ask(make_submit("again", PROMPT))
    assert answer.token_ids == first
    assert fetches(answer.phases) == [("disk", "down", 0)]


def test_what_one_tier_lacks_comes_from_the_next_and_is_kept_above(start: Start) -> None:
    disk, redis = MemoryTier("disk"), MemoryTier("redis")
    first = fill(start, redis)
    disk.pages = dict(list(redis.pages.items())[:4])
    engine = start(disk, redis)
    answer = engine.ask(make_submit("again", PROMPT))
    assert answer.token_ids == first
    assert fetches(answer.phases) == [
        ("disk", "fetched", 4 * PAGE_SIZE),
        ("redis", "fetched", 6 * PAGE_SIZE),
    ]
    assert answer.last.usage is not None
    assert answer.last.usage.tier_tokens == {"disk": 4 * PAGE_SIZE, "redis": 6 * PAGE_SIZE}
    engine.settle()
    assert list(disk.pages.items())[:10] == list(redis.pages.items())[:10]


def test_more_than_a_bound_is_not_on_its_way(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = MemoryTier()
    fill(start, tier)
    tier.hold()
    engine = start(tier)
    monkeypatch.setattr(promotion, "MAX_FETCH_BYTES", 12 * engine.tier_set.page_bytes)
    other = [5, *PROMPT[: 4 * PAGE_SIZE]]
    engine.submit(make_submit("first", PROMPT))
    engine.submit(make_submit("second", other))
    engine.finish("second")
    tier.release()
    engine.finish("first")
    assert fetches(engine.answer("second").phases) == [("disk", "busy", 0)]
    assert fetches(engine.answer("first").phases) == [("disk", "fetched", 10 * PAGE_SIZE)]
    assert engine.answer("second").token_ids == alone(make_submit("second", other))


def test_restored_pages_are_not_stored_again(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    engine = start(tier)
    engine.ask(make_submit("again", PROMPT))
    engine.settle()
    assert tier.num_calls("store") == 1  # by the engine that computed them
    engine.ask(make_submit("another", [5, *PROMPT]))
    engine.settle()
    assert tier.num_calls("store") > 1


def test_what_computing_takes_less_for_than_a_lookup_is_not_looked_up(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    engine = start(tier)
    engine.executor.clock = None  # a step takes a few microseconds
    engine.ask(make_submit("measures", [1] * 300, use_cache=False))
    answer = engine.ask(make_submit("again", PROMPT))
    assert fetches(answer.phases) == [("disk", "too_small", 0)]
    assert tier.num_calls("count") == 1  # of the engine that filled it
    (use,) = engine.tier_set.uses()
    assert use.num_declined == 1


def test_forgotten_pages_are_neither_found_nor_stored(start: Start) -> None:
    tier = MemoryTier()
    engine = start(tier)
    engine.ask(make_submit("first", PROMPT))
    flushed = engine.engine.answer(FlushCache("flush"))
    assert isinstance(flushed, CacheFlushed)
    engine.settle()
    assert tier.num_pages == 0


def test_a_flush_lets_those_go_on_that_wait_for_pages(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    tier.hold()
    engine = start(tier)
    engine.submit(make_submit("waits", PROMPT))
    engine.step()
    engine.engine.answer(FlushCache("flush"))
    assert engine.engine.has_work()
    engine.finish("waits")
    tier.release()
    answer = engine.answer("waits")
    assert answer.token_ids == alone(make_submit("waits", PROMPT))
    assert answer.last.usage is not None
    assert answer.last.usage.cached_tokens == 0


def test_an_explanation_tells_what_tiers_have(start: Start) -> None:
    tier = MemoryTier()
    fill(start, tier)
    engine = start(tier)
    question = ExplainCache("why", PROMPT, b"", "")
    told = engine.engine.answer(question)
    assert isinstance(told, Future)
    explanation = told.result(timeout=10)
    assert isinstance(explanation, CacheExplanation)
    assert explanation.tier_tokens == {"disk": 10 * PAGE_SIZE}


def test_pages_that_nobody_has_stored_yet_are_at_the_end(start: Start) -> None:
    tier = MemoryTier()
    engine = start(tier)
    engine.ask(make_submit("first", PROMPT))
    engine.close()
    assert tier.num_pages == (len(PROMPT) + 7) // PAGE_SIZE
    assert tier.is_closed


def test_without_tiers_there_is_no_thread_and_no_name_of_a_page() -> None:
    before = set(threading.enumerate())
    harness = EngineHarness()
    harness.ask(make_submit("first", PROMPT))
    assert set(threading.enumerate()) == before
    assert harness.cache.take_stored() == []
    assert not harness.engine.idle()
    assert harness.stats.tiers == ()
