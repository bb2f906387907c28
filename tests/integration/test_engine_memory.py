"""The engine over the real prefix cache when memory is short: all finish, with the same tokens."""

import pytest

from runtime.messages import ErrorCode, Sampling
from telemetry import names
from tests.engine_harness import PAGE_SIZE, EngineHarness, alone, make_submit

# Six requests of 20 + 90 tokens need 7 pages each; 14 pages hold two of them.
SIX = [
    make_submit(f"r{number}", [(number * 7 + i) % 96 for i in range(20)], max_tokens=90)
    for number in range(6)
]


@pytest.mark.parametrize("max_step_tokens", [7, 512])
@pytest.mark.parametrize("watermark", [0.0, 0.01, 0.2])
def test_six_requests_finish_with_their_tokens_in_a_pool_for_two(
    watermark: float, max_step_tokens: int
) -> None:
    harness = EngineHarness(num_pages=14, watermark=watermark, max_step_tokens=max_step_tokens)
    for request in SIX:
        harness.submit(request)
    harness.run()
    answers = [harness.answer(request.request_id).token_ids for request in SIX]
    assert answers == [alone(request) for request in SIX]
    harness.assert_idle()


def surprised_harness(*, num_pages: int) -> EngineHarness:
    """Lets in more than fit, as it expects answers of one token."""
    harness = EngineHarness(num_pages=num_pages, watermark=0.0)
    harness.expect_short_answers()
    return harness


def test_where_lengths_are_known_the_pool_for_two_preempts_hardly_ever() -> None:
    harness = EngineHarness(num_pages=14, watermark=0.0)
    for request in SIX:
        harness.submit(request)
    harness.run()
    assert harness.stats.preemptions <= 1
    assert harness.stats.recomputed_tokens <= harness.stats.generated_tokens / 8


def test_answers_longer_than_expected_preempt_and_the_usage_says_so() -> None:
    harness = surprised_harness(num_pages=14)
    for request in SIX:
        harness.submit(request)
    harness.run()
    stats = harness.stats
    usages = [harness.answer(request.request_id).last.usage for request in SIX]
    assert stats.preemptions >= 4
    assert stats.recomputed_tokens == sum(usage.recomputed_tokens for usage in usages if usage) > 0
    assert stats.cached_tokens + stats.computed_prompt_tokens == stats.prompt_tokens == 121


def test_recomputed_tokens_are_never_reported_as_hits() -> None:
    harness = surprised_harness(num_pages=14)
    for request in SIX:
        harness.submit(request)
    harness.run()
    usages = [harness.answer(request.request_id).last.usage for request in SIX]
    assert [usage.cached_tokens for usage in usages if usage] == [0] * 6


def test_a_preempted_choice_reports_it_on_its_decode_phase() -> None:
    harness = surprised_harness(num_pages=14)
    for request in SIX:
        harness.submit(request)
    harness.run()
    decodes = [
        phase
        for request in SIX
        for phase in harness.answer(request.request_id).phases
        if phase.name == names.SPAN_DECODE
    ]
    preemptions = [int(phase.attributes[names.ATTR_PREEMPTIONS]) for phase in decodes]
    assert sum(preemptions) == harness.stats.preemptions
    assert len(decodes) == 6


def test_a_sequence_alone_may_use_the_whole_pool() -> None:
    harness = EngineHarness(num_pages=4, max_model_len=4096, watermark=0.5)
    request = make_submit("a", range(20), max_tokens=1_000)
    answer = harness.ask(request)
    assert (len(answer.token_ids), answer.finish_reason) == (4 * PAGE_SIZE - 20, "length")
    assert answer.token_ids == alone(request)[:44]


def test_the_whole_pool_can_be_reused_by_the_same_prompt() -> None:
    harness = EngineHarness(num_pages=4)
    first = harness.ask(make_submit("a", range(63), max_tokens=1))
    second = harness.ask(make_submit("b", range(63), max_tokens=1))
    assert first.token_ids == second.token_ids
    assert second.last.usage is not None
    assert second.last.usage.cached_tokens >= 48


def test_a_prompt_longer_than_the_pool_is_refused_at_once() -> None:
    harness = EngineHarness(num_pages=4, max_model_len=4096)
    answer = harness.ask(make_submit("a", [1] * 64))
    assert answer.error_code is ErrorCode.INVALID_REQUEST


def test_old_prefixes_make_room_for_new_ones() -> None:
    harness = EngineHarness(num_pages=16)
    for number in range(12):
        request = make_submit(f"r{number}", [number] * 60, max_tokens=20)
        assert harness.ask(request).token_ids == alone(request)
    assert harness.stats.evicted_pages > 0


def test_a_long_prompt_does_not_stop_running_streams() -> None:
    harness = EngineHarness(max_step_tokens=8)
    harness.submit(make_submit("stream", range(5), max_tokens=40))
    harness.step()
    harness.submit(make_submit("long", range(90), max_tokens=1))
    tokens_per_step = []
    while not harness.answers.get((b"gateway", "long", 0)) or not harness.answer("long").token_ids:
        events = harness.step()
        tokens_per_step.append(sum(len(e.token_ids) for e in events if e.request_id == "stream"))
    assert tokens_per_step == [1] * len(tokens_per_step)
    # 90 tokens beside one of the stream's, and a step of the stream alone to measure it.
    assert len(tokens_per_step) == 14


def test_penalties_see_the_same_history_after_a_preemption() -> None:
    sampling = Sampling(max_tokens=60, repetition_penalty=1.1, ignore_eos=True)
    requests = [make_submit(f"r{n}", [n] * 30, sampling=sampling) for n in range(4)]
    harness = surprised_harness(num_pages=10)
    for request in requests:
        harness.submit(request)
    harness.run()
    assert harness.stats.preemptions > 0
    for plan in harness.executor.plans:
        assert all(len(row.output_ids) == row.position for row in plan.rows)
