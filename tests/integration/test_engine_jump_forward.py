"""Forced tokens in the engine: the same answers as without them, in fewer steps, however the tokens
are computed."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.jump_forward import JumpForward
from runtime.messages import ErrorCode, Sampling, Submit
from runtime.request import Sequence
from telemetry import names
from tests.engine_harness import PAGE_SIZE, make_submit
from tests.fake_grammar import scripted
from tests.grammar_harness import GrammarHarness, MakeHarness

PROMPT = list(range(40))
FREE = [3, 4, 5, 6, 7]
OPENING = [[10], [11], [12]]
SCRIPT = [*OPENING, FREE, [13], [14], FREE, [15], FREE]


def mixed_script(num_tokens: int, *, seed: int) -> list[list[int]]:
    """Runs of forced tokens between free ones."""
    rng = random.Random(seed)
    return [FREE if rng.random() < 0.4 else [rng.randrange(8, 90)] for _ in range(num_tokens)]


def answers(
    harness: GrammarHarness, requests: list[Submit]
) -> dict[tuple[str, int], tuple[list[int], str | None]]:
    for request in requests:
        harness.submit(request)
    for _ in requests:
        harness.run()
        while not all(harness.is_done(request.request_id) for request in requests):
            harness.wait_for_build()
            harness.run()
    harness.assert_idle()
    return {
        (request.request_id, choice): (answer.token_ids, answer.finish_reason)
        for request in requests
        for choice in range(request.num_choices)
        for answer in [harness.answer(request.request_id, choice)]
    }


def test_forced_tokens_come_with_the_sampled_one_and_are_computed_in_one_row(
    make_grammar_harness: MakeHarness,
) -> None:
    harness = make_grammar_harness()
    answer = harness.ask(make_submit("a", PROMPT, max_tokens=99, constraint=scripted(*SCRIPT)))
    shape = [len(event.token_ids) for event in answer.events if event.token_ids]
    rows = [row for batch in harness.executor.batches for row in batch.rows]
    assert shape == [len(OPENING) + 1 + 2, 1 + 1, 1]
    assert [len(row.token_ids) for row in rows] == [len(PROMPT) + len(OPENING), 3, 2]
    assert [row.sample_offsets for row in rows] == [(42,), (2,), (1,)]
    assert answer.finish_reason == "stop"


def test_usage_stats_and_trace_count_what_was_forced(make_grammar_harness: MakeHarness) -> None:
    harness = make_grammar_harness()
    answer = harness.ask(make_submit("a", PROMPT, max_tokens=99, constraint=scripted(*SCRIPT)))
    usage = answer.last.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.forced_tokens) == (40, 9, 6)
    assert (harness.stats.generated_tokens, harness.stats.forced_tokens) == (9, 6)
    assert harness.stats.computed_prompt_tokens == 40
    (decode,) = [phase for phase in answer.phases if phase.name == names.SPAN_DECODE]
    attributes = decode.attributes
    assert attributes[names.ATTR_TOKENS] == 9
    assert attributes[names.ATTR_STEPS] == 3
    assert attributes[names.ATTR_FORCED_TOKENS] == 6


def test_each_forced_token_is_sampled_where_log_probabilities_are_wanted(
    make_grammar_harness: MakeHarness,
) -> None:
    harness = make_grammar_harness()
    sampling = Sampling(max_tokens=99, num_logprobs=1)
    request = make_submit("a", PROMPT, sampling=sampling, constraint=scripted(*SCRIPT))
    answer = harness.ask(request)
    logprobs = [logprob for event in answer.events for logprob in event.logprobs]
    assert len(logprobs) == len(answer.token_ids) == len(SCRIPT)
    assert harness.stats.forced_tokens == 0


def test_all_choices_begin_with_what_is_asked_for_once(
    make_grammar_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long opening takes a library long to find."""
    opened: list[int] = []
    open_one = JumpForward.open

    def count(self: JumpForward, sequence: Sequence) -> None:
        opened.append(sequence.choice)
        open_one(self, sequence)

    monkeypatch.setattr(JumpForward, "open", count)
    harness = make_grammar_harness()
    script = scripted(*OPENING, FREE, list(range(20, 90)), [13])
    harness.ask(make_submit("a", PROMPT, max_tokens=99, constraint=script, num_choices=4))
    found = [harness.answer("a", choice) for choice in range(4)]
    assert opened == [0]
    assert [one.token_ids[:3] for one in found] == [[10, 11, 12]] * 4
    assert len({tuple(one.token_ids) for one in found}) > 1
    assert [one.finish_reason for one in found] == ["stop"] * 4


def test_max_tokens_cuts_a_forced_run(make_grammar_harness: MakeHarness) -> None:
    harness = make_grammar_harness()
    answer = harness.ask(make_submit("a", PROMPT, max_tokens=5, constraint=scripted(*SCRIPT)))
    assert (len(answer.token_ids), answer.token_ids[-1]) == (5, 13)
    assert answer.finish_reason == "length"


def test_a_forced_opening_that_may_not_come_first_is_an_error(
    make_grammar_harness: MakeHarness,
) -> None:
    request = make_submit("a", PROMPT, constraint=scripted(*SCRIPT), first_forbidden=(10,))
    answer = make_grammar_harness().ask(request)
    assert (answer.error_code, answer.token_ids) == (ErrorCode.CONSTRAINT_FAILED, [])


def test_a_long_forced_run_is_computed_in_chunks_beside_others(
    make_grammar_harness: MakeHarness,
) -> None:
    """As a prompt of that length would be: streams get a token at each step meanwhile."""
    harness = make_grammar_harness(max_step_tokens=64)
    harness.submit(make_submit("stream", [50] * 8, max_tokens=200))
    harness.step()
    script = [FREE, *([20 + number % 60] for number in range(300)), FREE]
    harness.submit(make_submit("a", PROMPT, max_tokens=400, constraint=scripted(*script)))
    harness.wait_for_build()
    harness.run()
    assert len(harness.answer("a").token_ids) == 302
    lengths = [len(event.token_ids) for event in harness.answer("stream").events]
    assert lengths == [1] * 200
    assert max(len(row.token_ids) for batch in harness.executor.batches for row in batch.rows) <= 64


def test_each_decoding_choice_gets_a_token_of_a_budget_that_is_short(
    make_grammar_harness: MakeHarness,
) -> None:
    """Four rows of eleven tokens each in steps of sixteen."""
    harness = make_grammar_harness(max_step_tokens=16)
    script = scripted(*[FREE, *([20 + number] for number in range(10))] * 6)
    for number in range(4):
        request = make_submit(f"r{number}", [number] * 3, max_tokens=99, constraint=script)
        harness.submit(request)
    harness.wait_for_build()
    harness.run()
    assert [len(harness.answer(f"r{number}").token_ids) for number in range(4)] == [66] * 4
    full = [batch for batch in harness.executor.batches if batch.num_tokens == 16]
    assert any(len(batch.rows) == 4 for batch in full)


def test_preempted_and_not_the_tokens_are_the_same(make_grammar_harness: MakeHarness) -> None:
    script = scripted(*mixed_script(70, seed=3))
    requests = [
        make_submit(f"r{number}", [number] * 20, max_tokens=90, constraint=script)
        for number in range(3)
    ]
    small = make_grammar_harness(num_pages=8, watermark=0.0)
    small.expect_short_answers()
    found = answers(small, requests)
    assert small.stats.preemptions >= 1
    assert small.stats.recomputed_tokens > 0
    assert small.stats.forced_tokens > 0
    assert found == answers(make_grammar_harness(jump_forward=False), requests)
    assert all(len(token_ids) == 70 for token_ids, _ in found.values())


def test_what_was_forced_is_found_in_the_prefix_cache(make_grammar_harness: MakeHarness) -> None:
    harness = make_grammar_harness()
    script = scripted(FREE, *([20 + number] for number in range(30)), FREE, FREE)
    first = harness.ask(make_submit("a", PROMPT, max_tokens=99, constraint=script))
    turn = [*PROMPT, *first.token_ids, 88]
    second = harness.ask(make_submit("b", turn, max_tokens=2))
    assert second.last.usage is not None
    # The last token of an answer is sampled, not computed.
    assert second.last.usage.cached_tokens == len(turn) - 2
    assert len(turn) > 4 * PAGE_SIZE


def test_a_forced_opening_is_neither_prompt_nor_a_hit(make_grammar_harness: MakeHarness) -> None:
    harness = make_grammar_harness()
    script = scripted(*([20 + number] for number in range(30)), FREE, FREE)
    for number, expected in enumerate((0, len(PROMPT))):
        answer = harness.ask(make_submit(f"r{number}", PROMPT, max_tokens=99, constraint=script))
        match = next(phase for phase in answer.phases if phase.name == names.SPAN_CACHE_MATCH)
        assert match.attributes[names.ATTR_CACHED_TOKENS] == expected
        assert match.attributes[names.ATTR_COMPUTED_TOKENS] == len(PROMPT) - expected
        assert answer.last.usage is not None
        assert answer.last.usage.cached_tokens == expected


REQUESTS = st.lists(
    st.tuples(
        st.integers(1, 60),  # length of the prompt
        st.integers(1, 40),  # length of the script
        st.integers(0, 99),  # seed of the script
        st.integers(1, 50),  # max_tokens
        st.integers(1, 3),  # choices
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    shapes=REQUESTS,
    num_pages=st.sampled_from([8, 256]),
    max_step_tokens=st.sampled_from([5, 16, 512]),
)
def test_jump_forward_changes_no_answer(
    shapes: list[tuple[int, int, int, int, int]], num_pages: int, max_step_tokens: int
) -> None:
    requests = [
        make_submit(
            f"r{number}",
            [number, *range(prompt_len)],
            sampling=Sampling(max_tokens=max_tokens, min_tokens=3, seed=seed, stop_token_ids=(20,)),
            constraint=scripted(*mixed_script(script_len, seed=seed)),
            num_choices=num_choices,
        )
        for number, (prompt_len, script_len, seed, max_tokens, num_choices) in enumerate(shapes)
    ]
    found = []
    for jump_forward, pages, budget in ((True, num_pages, max_step_tokens), (False, 256, 512)):
        harness = GrammarHarness(
            num_pages=pages, watermark=0.0, max_step_tokens=budget, jump_forward=jump_forward
        )
        try:
            found.append(answers(harness, requests))
        finally:
            harness.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("jump_forward", [True, False])
def test_a_choice_in_between_is_sampled(
    make_grammar_harness: MakeHarness, jump_forward: bool
) -> None:
    harness = make_grammar_harness(jump_forward=jump_forward)
    answer = harness.ask(make_submit("a", PROMPT, max_tokens=99, constraint=scripted(*SCRIPT)))
    assert all(token in options for token, options in zip(answer.token_ids, SCRIPT, strict=True))
    assert harness.stats.steps == (3 if jump_forward else len(SCRIPT))
