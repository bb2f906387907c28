"""Constrained choices: matchers from the side thread, masks, ends, and failures that stay alone."""

import time

import pytest

from runtime.messages import ErrorCode, Sampling
from telemetry import names
from tests.engine_harness import EOS, EngineHarness, alone, make_submit
from tests.fake_grammar import BROKEN, UNSUPPORTED, prepared, scripted
from tests.grammar_harness import GrammarHarness, MakeHarness

PROMPT = list(range(40))


@pytest.fixture
def bench(make_grammar_harness: MakeHarness) -> GrammarHarness:
    return make_grammar_harness()


def test_every_token_is_one_that_the_constraint_allows(bench: GrammarHarness) -> None:
    answer = bench.ask(make_submit("a", PROMPT, constraint=scripted([3, 4], [5], [6, 7])))
    first, second, third = answer.token_ids
    assert (first in (3, 4), second, third in (6, 7)) == (True, 5, True)
    assert (answer.finish_reason, answer.last.stop_token_id) == ("stop", None)


def test_an_end_that_the_grammar_offers_wins_over_ignore_eos_and_min_tokens(
    bench: GrammarHarness,
) -> None:
    sampling = Sampling(max_tokens=9, min_tokens=9, ignore_eos=True)
    spec = scripted([EOS], [1], accepting_from=0)
    answer = bench.ask(make_submit("a", PROMPT, sampling=sampling, constraint=spec))
    assert (answer.token_ids, answer.last.stop_token_id) == ([EOS], EOS)


def test_a_constrained_choice_may_run_out_of_tokens(bench: GrammarHarness) -> None:
    answer = bench.ask(make_submit("a", PROMPT, max_tokens=2, constraint=scripted(*[[1]] * 5)))
    assert (answer.token_ids, answer.finish_reason) == ([1, 1], "length")


def test_a_pending_build_holds_no_slot_and_no_page_and_stops_nobody(bench: GrammarHarness) -> None:
    bench.grammar_engine.gate.clear()
    bench.submit(make_submit("waits", PROMPT, constraint=scripted([1])))
    other = make_submit("goes", PROMPT)
    bench.submit(other)
    bench.run()
    assert bench.answer("goes").token_ids == alone(other)
    assert (bench.stats.num_waiting, bench.stats.pages_held, bench.stats.pages_locked) == (1, 0, 0)
    assert not bench.engine.has_work()
    bench.grammar_engine.gate.set()
    bench.wait_for_build()
    assert bench.engine.has_work()
    bench.run()
    assert bench.answer("waits").token_ids == [1]


def test_the_wait_for_a_matcher_is_in_the_queue_phase_and_has_a_phase_of_its_own(
    bench: GrammarHarness,
) -> None:
    bench.grammar_engine.gate.clear()
    bench.submit(make_submit("a", PROMPT, constraint=scripted([1])))
    bench.step()
    bench.grammar_engine.gate.set()
    bench.wait_for_build()
    bench.run()
    phases = {phase.name: phase.attributes for phase in bench.answer("a").phases}
    assert phases[names.SPAN_QUEUE][names.ATTR_QUEUE_REASON] == "grammar"
    assert phases[names.SPAN_GRAMMAR_COMPILE] == {
        names.ATTR_CHOICE: 0,
        names.ATTR_GRAMMAR_ENGINE: "llguidance",
        names.ATTR_GRAMMAR_WHERE: "runtime",
        names.ATTR_COMPILE_CACHED: False,
    }
    assert float(phases[names.SPAN_DECODE][names.ATTR_MASK_TIME_MS]) > 0


def test_a_known_constraint_is_not_built_again(bench: GrammarHarness) -> None:
    for request_id in ("a", "b"):
        bench.ask(make_submit(request_id, PROMPT, constraint=scripted([1], [2])))
    assert len(bench.grammar_engine.compiled) == 1
    compiles = [
        phase for phase in bench.answer("b").phases if phase.name == names.SPAN_GRAMMAR_COMPILE
    ]
    assert [phase.attributes[names.ATTR_COMPILE_CACHED] for phase in compiles] == [True]
    assert compiles[0].start_ns == compiles[0].end_ns


def test_a_build_that_began_for_another_begins_with_the_request_that_joins_it(
    bench: GrammarHarness,
) -> None:
    bench.grammar_engine.gate.clear()
    bench.submit(make_submit("a", PROMPT, constraint=scripted([1])))
    bench.step()
    assert bench.grammar_engine.begun.wait(5.0)
    bench.clock.now_ns = time.time_ns()  # which the builder goes by
    bench.submit(make_submit("b", PROMPT, constraint=scripted([1])))
    bench.step()
    bench.grammar_engine.gate.set()
    bench.wait_for_build()
    bench.run()
    first, joined = (
        {phase.name: phase for phase in bench.answer(request_id).phases} for request_id in "ab"
    )
    own, build = joined[names.SPAN_QUEUE], joined[names.SPAN_GRAMMAR_COMPILE]
    assert not build.attributes[names.ATTR_COMPILE_CACHED]
    assert own.start_ns <= build.start_ns <= build.end_ns
    assert first[names.SPAN_GRAMMAR_COMPILE].start_ns < build.start_ns


def test_each_choice_has_a_matcher_of_its_own(bench: GrammarHarness) -> None:
    spec = scripted(list(range(90)), [1, 2, 3, 4], [5])
    bench.ask(make_submit("a", PROMPT, num_choices=3, constraint=spec))
    answers = [bench.answer("a", choice) for choice in range(3)]
    assert [answer.finish_reason for answer in answers] == ["stop"] * 3
    assert len({tuple(answer.token_ids) for answer in answers}) > 1
    assert len(bench.grammar_engine.compiled) == 1


def test_a_constraint_that_cannot_be_built_fails_every_choice_and_nothing_else(
    bench: GrammarHarness,
) -> None:
    other = make_submit("goes", PROMPT)
    bench.submit(other)
    bad = prepared(UNSUPPORTED)
    bench.submit(make_submit("fails", PROMPT, num_choices=2, constraint=bad))
    bench.wait_for_build()
    bench.run()
    errors = [bench.answer("fails", choice).last.error for choice in range(2)]
    assert all(error is not None and "lookbehind" in error.message for error in errors)
    assert bench.answer("fails").error_code is ErrorCode.CONSTRAINT_FAILED
    assert bench.answer("goes").token_ids == alone(other)


def test_a_matcher_that_breaks_fails_its_choice_alone(
    bench: GrammarHarness, caplog: pytest.LogCaptureFixture
) -> None:
    other = make_submit("goes", PROMPT)
    bench.submit(other)
    broken = make_submit("fails", PROMPT, constraint=prepared(BROKEN))
    answer = bench.ask(broken)
    assert (answer.error_code, answer.token_ids) == (ErrorCode.CONSTRAINT_FAILED, [])
    assert "mask" in caplog.text
    assert bench.answer("goes").token_ids == alone(other)
    bench.assert_idle()


def test_a_constraint_that_leaves_no_token_is_an_error_not_a_token(bench: GrammarHarness) -> None:
    answer = bench.ask(make_submit("a", PROMPT, constraint=scripted([1, 2], [], [2])))
    assert (len(answer.token_ids), answer.error_code) == (1, ErrorCode.CONSTRAINT_FAILED)
    bench.assert_idle()


def test_without_grammar_engines_a_constraint_is_refused() -> None:
    harness = EngineHarness()
    answer = harness.ask(make_submit("a", PROMPT, constraint=scripted([1])))
    assert answer.error_code is ErrorCode.CONSTRAINT_FAILED
