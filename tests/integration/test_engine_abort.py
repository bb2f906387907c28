"""An abort in any state frees all at once; the work ends before the second step after it."""

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from grammar.matcher import Vocabulary
from runtime.grammar_builder import GrammarBuilder
from tests.engine_harness import EOS, GATEWAY, VOCAB_SIZE, EngineHarness, alone, make_submit
from tests.fake_grammar import FakeGrammarEngine, scripted

if TYPE_CHECKING:
    from runtime.messages import Submit

LONG = [(i * 31) % 96 for i in range(600)]


@pytest.fixture
def held_grammar() -> Iterator[GrammarBuilder]:
    """A builder that finishes nothing until the test is over."""
    engine = FakeGrammarEngine()
    engine.gate.clear()
    builder = GrammarBuilder(Vocabulary("{}", VOCAB_SIZE, (EOS,)), load=engine.load)
    yield builder
    engine.gate.set()
    builder.close()


def assert_no_work_for(harness: EngineHarness, request_id: str) -> None:
    """Two more steps compute nothing and say nothing, and nothing is left behind."""
    num_batches = len(harness.executor.batches)
    events = [*harness.step(), *harness.step()]
    assert [event for event in events if event.request_id == request_id] == []
    assert len(harness.executor.batches) == num_batches
    harness.assert_idle()


def test_abort_before_the_first_step(harness: EngineHarness) -> None:
    harness.submit(make_submit("a", LONG))
    harness.abort("a")
    assert_no_work_for(harness, "a")


def test_abort_while_the_matcher_is_built(held_grammar: GrammarBuilder) -> None:
    harness = EngineHarness(grammar=held_grammar)
    harness.submit(make_submit("a", LONG, constraint=scripted([1])))
    harness.step()
    assert (harness.stats.num_waiting, harness.stats.pages_held) == (1, 0)
    harness.abort("a")
    assert_no_work_for(harness, "a")


def test_abort_in_the_queue_leaves_the_running_alone() -> None:
    harness = EngineHarness(max_running=1)
    first = make_submit("first", LONG)
    harness.submit(first)
    harness.step()
    harness.submit(make_submit("a", LONG[5:]))
    harness.step()
    harness.abort("a")
    assert (harness.stats.num_waiting, harness.stats.num_running) == (0, 1)
    harness.run()
    assert harness.answer("first").token_ids == alone(first)
    assert (GATEWAY, "a", 0) not in harness.answers


def test_abort_between_chunks_keeps_what_was_computed() -> None:
    harness = EngineHarness(max_step_tokens=100)
    harness.submit(make_submit("a", LONG))
    harness.step()
    harness.step()
    harness.abort("a")
    assert (harness.stats.pages_held, harness.stats.pages_locked) == (0, 0)
    assert harness.cache.peek(b"", LONG) == 200
    assert_no_work_for(harness, "a")


def test_abort_during_decode_frees_before_the_next_step(harness: EngineHarness) -> None:
    harness.submit(make_submit("a", LONG, max_tokens=50))
    for _ in range(5):
        harness.step()
    harness.abort("a")
    assert (harness.stats.pages_held, harness.stats.pages_locked) == (0, 0)
    assert_no_work_for(harness, "a")


def test_abort_of_a_preempted_sequence() -> None:
    harness = EngineHarness(num_pages=8, watermark=0.0)
    harness.expect_short_answers()
    requests = [make_submit(f"r{number}", [number] * 20, max_tokens=90) for number in range(2)]
    for request in requests:
        harness.submit(request)
    while not harness.stats.preemptions:
        harness.step()
    harness.abort("r1")
    assert harness.stats.num_waiting == 0
    harness.run()
    assert harness.answer("r0").token_ids == alone(requests[0])
    assert not harness.answer("r1").is_done


def test_abort_of_one_choice_leaves_the_others(harness: EngineHarness) -> None:
    request = make_submit("a", LONG, num_choices=3, max_tokens=20)
    harness.submit(request)
    for _ in range(4):
        harness.step()
    harness.abort("a", 1)
    harness.run()
    assert not harness.answer("a", 1).is_done
    assert harness.answer("a", 0).token_ids == alone(request, 0)
    assert harness.answer("a", 2).token_ids == alone(request, 2)
    harness.assert_idle()


def test_abort_is_idempotent_and_unknown_ids_are_fine(harness: EngineHarness) -> None:
    harness.submit(make_submit("a", LONG))
    harness.step()
    for request_id, choice in (("a", 7), ("a", 0), ("a", 0), ("a", None), ("nobody", None)):
        harness.abort(request_id, choice)
    assert_no_work_for(harness, "a")


def test_an_id_may_be_used_again_after_an_abort(harness: EngineHarness) -> None:
    harness.submit(make_submit("a", LONG))
    harness.abort("a")
    again = make_submit("a", LONG[3:90])
    assert harness.ask(again).token_ids == alone(again)


def test_no_error_event_follows_the_abort_of_a_refused_request(harness: EngineHarness) -> None:
    harness.submit(make_submit("a", []))
    harness.abort("a")
    assert not harness.engine.has_work()
    assert harness.step() == []


def test_a_vanished_gateway_loses_its_requests_and_no_other_does(harness: EngineHarness) -> None:
    requests = [make_submit(f"r{number}", LONG[number:]) for number in range(3)]
    for request in requests:
        harness.submit(request, gateway=b"gone")
        harness.submit(request)
    harness.step()
    harness.submit(make_submit("wrong", []), gateway=b"gone")
    harness.engine.abort_gateway(b"gone")
    harness.run()
    lost = [answer for key, answer in harness.answers.items() if key[0] == b"gone"]
    assert [answer.is_done for answer in lost] == [False]
    for request in requests:
        assert harness.answer(request.request_id).token_ids == alone(request)
    harness.assert_idle()


class Chaos:
    """Random submits, steps and aborts over prompts that share prefixes, in a small pool."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.harness = EngineHarness(
            num_pages=24, watermark=0.0, max_running=5, max_step_tokens=40, max_model_len=300
        )
        self.live: dict[str, Submit] = {}
        self.num_submitted = 0
        self.num_aborts = 0

    def submit(self) -> None:
        self.num_submitted += 1
        start = self.random.randrange(3) * 16
        prompt = LONG[start : start + self.random.randrange(1, 150)]
        request = make_submit(
            f"r{self.num_submitted}",
            prompt,
            max_tokens=self.random.randrange(1, 60),
            num_choices=self.random.choice((1, 1, 1, 3)),
            use_cache=self.random.random() < 0.8,
            namespace=self.random.choice((b"", b"other")),
        )
        self.live[request.request_id] = request
        self.harness.submit(request)

    def abort(self) -> None:
        self.num_aborts += 1
        request_id = self.random.choice(list(self.live))
        choice = self.random.choice((None, None, 0))
        self.harness.abort(request_id, choice)
        self.harness.check_pages()
        if choice is None:
            del self.live[request_id]

    def act(self) -> None:
        action = self.random.choices(("submit", "step", "abort"), weights=(3, 6, 2))[0]
        if action == "step":
            self.harness.step()
        elif action == "abort" and self.live:
            self.abort()
        elif len(self.live) < 12:
            self.submit()
        self.forget_the_done()

    def forget_the_done(self) -> None:
        self.live = {
            request_id: request
            for request_id, request in self.live.items()
            if not all(
                self.harness.is_done(request_id, choice) for choice in range(request.num_choices)
            )
        }


@pytest.mark.parametrize("seed", range(4))
def test_fifty_random_aborts_leave_every_page_accounted_for(seed: int) -> None:
    chaos = Chaos(seed)
    while chaos.num_aborts < 50:
        chaos.act()
    for request_id in chaos.live:
        chaos.harness.abort(request_id)
    chaos.harness.check_pages()
    chaos.harness.assert_idle()


@pytest.mark.parametrize("seed", range(4, 7))
def test_random_aborts_do_not_change_what_the_others_get(seed: int) -> None:
    chaos = Chaos(seed)
    while chaos.num_aborts < 15:
        chaos.act()
    survivors = dict(chaos.live)
    chaos.harness.run()
    finished = [
        (choice, request)
        for request in survivors.values()
        for choice in range(request.num_choices)
        if chaos.harness.is_done(request.request_id, choice)
    ]
    assert finished
    for choice, request in finished:
        answer = chaos.harness.answer(request.request_id, choice)
        assert answer.token_ids == alone(request, choice)
    chaos.harness.assert_idle()
