"""From Submit to the last event: order of events, ends, deadlines, refusals, phases, statistics."""

import pytest

from runtime.batch import SamplePlan, ScheduledBatch
from runtime.messages import ErrorCode, Sampling
from telemetry import names
from tests.engine_harness import EOS, GATEWAY, EngineHarness, alone, make_submit

PROMPT = [(i * 31) % 96 for i in range(100)]
SECOND_NS = 1_000_000_000


def test_the_first_event_says_admitted_and_only_the_last_has_usage(harness: EngineHarness) -> None:
    answer = harness.ask(make_submit("a", PROMPT, max_tokens=5))
    assert [event.admitted for event in answer.events] == [True] + [False] * 4
    assert [event.usage is not None for event in answer.events] == [False] * 4 + [True]
    usage = answer.last.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (100, 5)


def test_admission_and_each_chunk_are_told_before_the_first_token() -> None:
    harness = EngineHarness(max_step_tokens=40)
    answer = harness.ask(make_submit("a", PROMPT, max_tokens=2))
    assert [len(event.token_ids) for event in answer.events] == [0, 0, 1, 1]
    assert [event.admitted for event in answer.events] == [True, False, False, False]


def test_the_end_of_sequence_is_the_last_token_and_counts() -> None:
    harness = EngineHarness(choose=lambda history, _: EOS if len(history) == 102 else 5)
    answer = harness.ask(make_submit("a", PROMPT, sampling=Sampling(max_tokens=20)))
    assert (answer.token_ids, answer.last.stop_token_id) == ([5, 5, EOS], EOS)
    assert answer.last.usage is not None
    assert (answer.finish_reason, answer.last.usage.completion_tokens) == ("stop", 3)


def test_ignore_eos_and_min_tokens_reach_the_sampler() -> None:
    harness = EngineHarness(choose=lambda _history, _row: EOS)
    sampling = Sampling(max_tokens=9, min_tokens=2)
    assert harness.ask(make_submit("a", PROMPT, sampling=sampling)).token_ids == [0, 0, EOS]
    sampling = Sampling(max_tokens=3, ignore_eos=True)
    assert harness.ask(make_submit("b", PROMPT, sampling=sampling)).token_ids == [0, 0, 0]


def test_logprobs_come_with_their_tokens_only_where_wanted(harness: EngineHarness) -> None:
    wanted = Sampling(max_tokens=3, num_logprobs=0, ignore_eos=True)
    answer = harness.ask(make_submit("a", PROMPT, sampling=wanted))
    assert [len(event.logprobs) for event in answer.events] == [1, 1, 1]
    answer = harness.ask(make_submit("b", PROMPT, max_tokens=3))
    assert [len(event.logprobs) for event in answer.events] == [0, 0, 0]


def test_phases_come_in_the_order_of_a_requests_life() -> None:
    harness = EngineHarness(max_step_tokens=40)
    answer = harness.ask(make_submit("a", PROMPT, max_tokens=4))
    queue, match, *chunks, decode = answer.phases
    assert [phase.name for phase in (queue, match, decode)] == [
        names.SPAN_QUEUE,
        names.SPAN_CACHE_MATCH,
        names.SPAN_DECODE,
    ]
    assert [phase.attributes[names.ATTR_TOKENS] for phase in chunks] == [40, 40, 20]
    assert decode.attributes[names.ATTR_TOKENS] == 4
    assert decode.attributes[names.ATTR_FINISH_REASON] == "length"
    starts = [phase.start_ns for phase in answer.phases]
    assert starts == sorted(starts)


def test_a_match_says_what_was_cached_and_what_is_left(harness: EngineHarness) -> None:
    harness.ask(make_submit("a", PROMPT))
    answer = harness.ask(make_submit("b", [*PROMPT, 1, 2]))
    match = next(phase for phase in answer.phases if phase.name == names.SPAN_CACHE_MATCH)
    assert match.attributes[names.ATTR_CACHED_TOKENS] == 100
    assert match.attributes[names.ATTR_COMPUTED_TOKENS] == 2


def test_a_request_that_waits_too_long_in_the_queue_is_told() -> None:
    harness = EngineHarness(max_running=1)
    first = make_submit("first", PROMPT, max_tokens=30)
    harness.submit(first)
    deadline_ns = harness.clock.now_ns + SECOND_NS
    harness.step()
    harness.submit(make_submit("late", PROMPT[5:], queue_deadline_ns=deadline_ns))
    harness.step()
    assert harness.engine.next_deadline_ns() == deadline_ns
    harness.clock.now_ns = deadline_ns
    harness.step()
    answer = harness.answer("late")
    assert answer.error_code is ErrorCode.QUEUE_TIMEOUT
    assert answer.phases[0].attributes[names.ATTR_QUEUE_REASON] == "slots"
    harness.run()
    assert harness.answer("first").token_ids == alone(first)


def test_the_queue_deadline_is_void_once_admitted(harness: EngineHarness) -> None:
    deadline_ns = harness.clock.now_ns + SECOND_NS
    request = make_submit("a", PROMPT, queue_deadline_ns=deadline_ns)
    harness.submit(request)
    harness.step()
    assert harness.engine.next_deadline_ns() is None
    harness.clock.now_ns = deadline_ns + 1
    harness.run()
    assert harness.answer("a").token_ids == alone(request)


def test_only_the_choices_still_in_the_queue_time_out() -> None:
    harness = EngineHarness(max_running=2)
    deadline_ns = harness.clock.now_ns + SECOND_NS
    request = make_submit(
        "a", PROMPT[:10], num_choices=3, max_tokens=20, queue_deadline_ns=deadline_ns
    )
    harness.submit(request)
    harness.step()
    harness.clock.now_ns = deadline_ns
    harness.run()
    assert harness.answer("a", 2).error_code is ErrorCode.QUEUE_TIMEOUT
    assert harness.answer("a", 1).token_ids == alone(request, 1)


@pytest.mark.parametrize("num_steps", [0, 1, 4])
def test_the_deadline_ends_a_request_wherever_it_is(num_steps: int) -> None:
    harness = EngineHarness(max_step_tokens=60)
    deadline_ns = harness.clock.now_ns + SECOND_NS
    harness.submit(make_submit("a", PROMPT, max_tokens=50, deadline_ns=deadline_ns))
    for _ in range(num_steps):
        harness.step()
    assert harness.engine.next_deadline_ns() == deadline_ns
    harness.clock.now_ns = deadline_ns
    harness.step()
    assert harness.answer("a").error_code is ErrorCode.DEADLINE_EXCEEDED
    assert harness.answer("a").phases[0].name == names.SPAN_QUEUE
    harness.assert_idle()


def test_an_error_after_the_first_token_brings_the_decode_phase(harness: EngineHarness) -> None:
    deadline_ns = harness.clock.now_ns + SECOND_NS
    harness.submit(make_submit("a", PROMPT, max_tokens=50, deadline_ns=deadline_ns))
    for _ in range(3):
        harness.step()
    harness.clock.now_ns = deadline_ns
    harness.step()
    (decode,) = harness.answer("a").last.phases
    assert decode.attributes[names.ATTR_TOKENS] == 3
    assert names.ATTR_FINISH_REASON not in decode.attributes


def test_an_invalid_request_gets_an_error_for_each_choice_and_the_next_is_unharmed(
    harness: EngineHarness,
) -> None:
    harness.submit(make_submit("bad", [5000], num_choices=2))
    assert harness.engine.has_work()
    harness.run()
    errors = [harness.answer("bad", choice).error_code for choice in range(2)]
    assert errors == [ErrorCode.INVALID_REQUEST] * 2
    good = make_submit("good", PROMPT)
    assert harness.ask(good).token_ids == alone(good)


def test_a_repeated_id_does_not_disturb_the_request_that_has_it(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    first = make_submit("a", PROMPT)
    harness.submit(first)
    harness.step()
    harness.submit(make_submit("a", PROMPT[50:]))
    harness.submit(make_submit("a", []))
    harness.run()
    assert harness.answer("a").token_ids == alone(first)
    assert "twice" in caplog.text


def test_two_gateways_may_use_the_same_id(harness: EngineHarness) -> None:
    one, two = make_submit("a", PROMPT), make_submit("a", PROMPT[50:])
    harness.submit(one)
    harness.submit(two, gateway=b"second")
    harness.run()
    assert harness.answer("a").token_ids == alone(one)
    assert harness.answer("a", gateway=b"second").token_ids == alone(two)


def test_an_id_may_be_used_again_after_its_end(harness: EngineHarness) -> None:
    harness.ask(make_submit("a", PROMPT))
    del harness.answers[GATEWAY, "a", 0]
    again = make_submit("a", PROMPT[7:])
    assert harness.ask(again).token_ids == alone(again)


def test_statistics_count_what_happened() -> None:
    harness = EngineHarness(max_running=2)
    for number in range(3):
        harness.submit(make_submit(f"r{number}", [number, *PROMPT], max_tokens=4))
    harness.step()
    assert (harness.stats.num_running, harness.stats.num_waiting) == (2, 1)
    harness.run()
    stats = harness.stats
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert (stats.prompt_tokens, stats.computed_prompt_tokens) == (303, 303)
    assert stats.generated_tokens == 12
    assert stats.steps == len(harness.executor.batches)
    assert [batch.step for batch in harness.executor.batches] == list(range(stats.steps))


def test_an_idle_engine_steps_without_touching_the_device(harness: EngineHarness) -> None:
    assert not harness.engine.has_work()
    assert harness.step() == []
    assert harness.executor.batches == []


def test_a_failing_device_is_not_hidden(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_batch: ScheduledBatch) -> None:
        raise RuntimeError("device lost")

    monkeypatch.setattr(harness.executor, "forward", fail)
    harness.submit(make_submit("a", PROMPT))
    with pytest.raises(RuntimeError, match="device lost"):
        harness.engine.step()


def test_masks_are_filled_while_the_device_works(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan, and with it every mask, is made between forward and sample."""
    order: list[str] = []
    forward, sample = harness.executor.forward, harness.executor.sample

    def note_forward(batch: ScheduledBatch) -> None:
        order.append("forward")
        forward(batch)

    def note_sample(plan: SamplePlan) -> object:
        order.append("sample")
        return sample(plan)

    monkeypatch.setattr(harness.executor, "forward", note_forward)
    monkeypatch.setattr(harness.executor, "sample", note_sample)
    harness.ask(make_submit("a", PROMPT, max_tokens=2))
    assert order == ["forward", "sample"] * 2
