"""What one request computed is not computed again: later requests, next turns, choices, company."""

import pytest

from runtime.messages import ChoiceUsage, Sampling
from telemetry import names
from tests.engine_harness import Answer, EngineHarness, alone, make_submit

PREFIX = [(i * 31) % 96 for i in range(1_400)]
SYSTEM = PREFIX[:100]


def usage_of(answer: Answer) -> ChoiceUsage:
    assert answer.last.usage is not None
    return answer.last.usage


def num_prompt_tokens_computed(answer: Answer) -> int:
    return sum(
        int(phase.attributes[names.ATTR_TOKENS])
        for phase in answer.phases
        if phase.name == names.SPAN_PREFILL
    )


def test_the_second_request_with_a_long_prefix_computes_next_to_nothing() -> None:
    harness = EngineHarness()
    harness.ask(make_submit("a", [*PREFIX, 1, 2, 3]))
    before = harness.stats.computed_prompt_tokens
    request = make_submit("b", [*PREFIX, 4, 5, 6])
    second = harness.ask(request)
    assert usage_of(second).cached_tokens >= 1_390
    assert harness.stats.computed_prompt_tokens - before <= 26
    assert num_prompt_tokens_computed(second) == harness.stats.computed_prompt_tokens - before
    assert second.token_ids == alone(request)


def test_a_match_is_exact_to_the_token() -> None:
    harness = EngineHarness()
    harness.ask(make_submit("a", [*SYSTEM, 1, 2, 3]))
    second = harness.ask(make_submit("b", [*SYSTEM, 4, 5, 6]))
    assert usage_of(second).cached_tokens == len(SYSTEM)


def test_the_next_turn_reuses_the_answer_too() -> None:
    harness = EngineHarness()
    first = harness.ask(make_submit("a", SYSTEM, max_tokens=50))
    turn = [*SYSTEM, *first.token_ids, 7, 8, 9]
    second = harness.ask(make_submit("b", turn))
    # The very last token of an answer is sampled but never computed.
    assert usage_of(second).cached_tokens == len(SYSTEM) + 49


def test_the_same_prompt_again_computes_its_last_token_only() -> None:
    harness = EngineHarness()
    first = harness.ask(make_submit("a", SYSTEM))
    second = harness.ask(make_submit("b", SYSTEM))
    assert usage_of(second).cached_tokens == len(SYSTEM) - 1
    assert second.token_ids == first.token_ids


def test_cached_and_computed_tokens_make_up_the_prompt() -> None:
    harness = EngineHarness(max_step_tokens=7)
    for number, prompt in enumerate((SYSTEM, SYSTEM[:50], [*SYSTEM, 1], SYSTEM[3:])):
        answer = harness.ask(make_submit(f"r{number}", prompt))
        usage = usage_of(answer)
        assert usage.cached_tokens + num_prompt_tokens_computed(answer) == usage.prompt_tokens
    stats = harness.stats
    assert stats.cached_tokens + stats.computed_prompt_tokens == stats.prompt_tokens


def test_choices_share_one_prefill_and_differ_by_their_noise() -> None:
    harness = EngineHarness()
    request = make_submit("a", PREFIX, num_choices=4, max_tokens=20)
    harness.submit(request)
    harness.run()
    assert harness.stats.computed_prompt_tokens <= 1_400 + 3 * 16
    answers = [harness.answer("a", choice).token_ids for choice in range(4)]
    assert answers == [alone(request, choice) for choice in range(4)]
    assert len({tuple(answer) for answer in answers}) == 4


def test_sixteen_clients_with_one_new_prefix_prefill_it_once() -> None:
    harness = EngineHarness()
    requests = [make_submit(f"r{number}", [*PREFIX, number]) for number in range(16)]
    for request in requests:
        harness.submit(request)
    harness.run()
    assert harness.stats.computed_prompt_tokens <= 1_401 + 15 * 17
    for request in requests[::5]:
        assert harness.answer(request.request_id).token_ids == alone(request)


def test_sixteen_clients_with_one_prompt_prefill_it_once() -> None:
    harness = EngineHarness()
    for number in range(16):
        harness.submit(make_submit(f"r{number}", PREFIX))
    harness.run()
    assert harness.stats.computed_prompt_tokens <= 1_400 + 15 * 16
    expected = alone(make_submit("r0", PREFIX))
    assert all(harness.answer(f"r{number}").token_ids == expected for number in range(16))
    written = sum(usage_of(harness.answer(f"r{number}")).written_tokens for number in range(16))
    assert written == harness.stats.computed_prompt_tokens


def test_followers_go_on_when_their_leader_is_aborted() -> None:
    harness = EngineHarness(max_step_tokens=100)
    requests = [make_submit(f"r{number}", [*PREFIX, number]) for number in range(3)]
    for request in requests:
        harness.submit(request)
    harness.step()
    harness.abort("r0")
    harness.run()
    assert harness.stats.computed_prompt_tokens <= 1_401 + 17
    assert harness.answer("r2").token_ids == alone(requests[2])


def test_a_follower_says_that_it_waited_for_a_prefix() -> None:
    harness = EngineHarness()
    for number in range(2):
        harness.submit(make_submit(f"r{number}", [*PREFIX, number]))
    harness.run()
    queue = harness.answer("r1").phases[0]
    assert (queue.name, queue.attributes[names.ATTR_QUEUE_REASON]) == (names.SPAN_QUEUE, "prefix")


@pytest.mark.parametrize("is_together", [False, True])
def test_namespaces_share_nothing(is_together: bool) -> None:
    harness = EngineHarness()
    for number, namespace in enumerate((b"one", b"two")):
        harness.submit(make_submit(f"r{number}", SYSTEM, namespace=namespace))
        if not is_together:
            harness.run()
    harness.run()
    assert harness.stats.cached_tokens == 0
    assert usage_of(harness.answer("r1")).cached_tokens == 0


def test_without_the_cache_nothing_is_matched_and_nothing_left() -> None:
    harness = EngineHarness()
    request = make_submit("a", SYSTEM, use_cache=False, num_choices=2)
    harness.submit(request)
    harness.run()
    harness.ask(make_submit("b", SYSTEM, use_cache=False))
    assert harness.stats.cached_tokens == 0
    assert harness.stats.pages_free == harness.stats.pages_total
    assert harness.answer("a").token_ids == alone(request)


@pytest.mark.parametrize("max_tokens", [0, 8])
def test_without_the_cache_a_warm_tree_gives_nothing_and_stays_as_it_is(max_tokens: int) -> None:
    harness = EngineHarness()
    harness.ask(make_submit("warm", SYSTEM))
    before, num_computed = harness.stats.pages_cached, harness.executor.num_computed_tokens
    request = make_submit("a", SYSTEM, use_cache=False, max_tokens=max_tokens)
    answer = harness.ask(request)
    assert usage_of(answer).cached_tokens == 0
    assert harness.executor.num_computed_tokens - num_computed == len(SYSTEM) + max(
        0, max_tokens - 1
    )
    assert harness.stats.pages_cached == before
    other = harness.ask(make_submit("b", [*SYSTEM, 1, 2], use_cache=False, max_tokens=1))
    assert usage_of(other).cached_tokens == 0
    assert harness.stats.pages_cached == before
    if max_tokens:
        assert answer.token_ids == alone(request)


def test_without_the_cache_a_preempted_request_computes_all_once_more() -> None:
    harness = EngineHarness(num_pages=9, watermark=0.0)
    harness.expect_short_answers()
    requests = [
        make_submit(f"r{number}", SYSTEM[number : number + 40], use_cache=False, max_tokens=60)
        for number in range(2)
    ]
    for request in requests:
        harness.submit(request)
    harness.run()
    assert harness.stats.preemptions > 0
    assert harness.stats.recomputed_tokens >= 40
    for request in requests:
        assert harness.answer(request.request_id).token_ids == alone(request)
        assert usage_of(harness.answer(request.request_id)).cached_tokens == 0
    assert harness.stats.pages_free == harness.stats.pages_total


def test_the_engine_returns_to_the_cached_level_with_no_lock_left() -> None:
    harness = EngineHarness(max_running=8)
    sampling = Sampling(max_tokens=30, ignore_eos=True)
    for number in range(40):
        harness.submit(make_submit(f"r{number}", [*SYSTEM, number], sampling=sampling))
    harness.run()
    harness.assert_idle()
    stats = harness.stats
    assert stats.pages_free + stats.pages_cached == stats.pages_total
    assert stats.pages_cached > 0
    assert harness.cache.flush() == stats.pages_cached
