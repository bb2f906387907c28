"""Answers that are validated and mended before they are told, over a scripted engine.

The engine's tokens are bytes, so that a script reads like the text.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from gateway.errors import ConstraintUnmet, DeadlineExceeded, GatewayError, Overloaded
from gateway.generation import (
    ChoiceFinished,
    Completed,
    GenerationEvent,
    GenerationRequest,
    TextDelta,
    TextOptions,
    TextPrompt,
)
from gateway.token_generator import TokenGenerator
from gateway.tokenizer import Tokenizer
from grammar.spec import ConstraintSpec, Gap
from runtime.messages import EngineFault, ErrorCode, Sampling, Submit, TokenEvent
from telemetry import names
from tests.byte_tokenizer import IM_END, byte_assets
from tests.fake_constraint_probe import FakeConstraintProbe
from tests.fake_token_engine import FakeTokenEngine

GAP = Gap("/x", "contains", "counts are not kept")
Model = Callable[[bytes, set[int]], bytes]


class ScriptedModel(FakeTokenEngine):
    """Answers with `model(kept, forbidden)`: what follows the kept bytes, given the bytes that may
    not come first. None of them left is the fault that the runtime has for it."""

    def __init__(self, model: Model, **kwargs: Any) -> None:
        super().__init__(self._answer, **kwargs)
        self._model = model

    def _answer(self, submit: Submit, _choice: int) -> Sequence[int]:
        return list(self._model(bytes(submit.output_prefix), set(submit.first_forbidden)))

    def _events(self, request: Submit, choice: int) -> list[TokenEvent]:
        answer = self._answer(request, choice)
        if request.first_forbidden and answer and answer[0] in request.first_forbidden:
            error = EngineFault(ErrorCode.CONSTRAINT_FAILED, "no token is left")
            return [TokenEvent(request.request_id, choice, 0, error=error)]
        return super()._events(request, choice)


def greedy(*answers: str) -> Model:
    """Takes the first of its answers that begins as it must and not as it may not."""

    def model(kept: bytes, forbidden: set[int]) -> bytes:
        for answer in map(str.encode, answers):
            rest = answer.removeprefix(kept)
            if answer.startswith(kept) and (rest[0] if rest else IM_END) not in forbidden:
                return rest
        return bytes(sorted(forbidden)[:1])

    return model


def generator(engine: FakeTokenEngine, *, retries: int = 8) -> TokenGenerator:
    probe = FakeConstraintProbe()
    probe.gaps = (GAP,)
    return TokenGenerator(
        engine=engine,
        tokenizer=Tokenizer(byte_assets()),
        template=None,
        probe=probe,
        checked_retries=retries,
    )


def request(schema: object, **changes: Any) -> GenerationRequest:
    fields: dict[str, Any] = {
        "request_id": "r",
        "prompts": (TextPrompt(text="x"),),
        "sampling": Sampling(max_tokens=0),
        "max_tokens": 64,
        "constraint": ConstraintSpec(
            "json_schema", msgspec.json.encode(schema).decode(), allows_checked=True
        ),
    }
    return GenerationRequest(**(fields | changes))


async def run(
    engine: FakeTokenEngine, wanted: GenerationRequest, *, retries: int = 8
) -> list[GenerationEvent]:
    made = generator(engine, retries=retries)
    prepared = await made.prepare(wanted)
    return [event async for event in made.generate(prepared)]


async def failure(
    engine: FakeTokenEngine, wanted: GenerationRequest, **kwargs: Any
) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await run(engine, wanted, **kwargs)
    return caught.value


def text_of(events: Sequence[GenerationEvent], choice: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta) and e.choice == choice)


def usage_of(events: Sequence[GenerationEvent]) -> Any:
    (last,) = [event for event in events if isinstance(event, Completed)]
    return last.usage


HAS_FIVE = {"contains": {"const": 5}}


async def test_a_valid_answer_comes_whole_and_costs_nothing_more() -> None:
    engine = ScriptedModel(greedy("[1,5]"))
    events = await run(engine, request(HAS_FIVE))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["[1,5]"]
    assert len(engine.submitted) == 1
    assert usage_of(events).retried_tokens == 0


async def test_a_list_that_ended_too_early_goes_on() -> None:
    engine = ScriptedModel(greedy("[1]", "[1,5]"))
    wanted = request(HAS_FIVE)
    events = await run(engine, wanted)
    assert text_of(events) == "[1,5]"
    later = engine.submitted[1]
    assert (bytes(later.output_prefix), later.first_forbidden) == (b"[1", (ord("]"),))
    assert later.sampling.max_tokens == 64 - 2
    assert later.prompt_token_ids == engine.submitted[0].prompt_token_ids
    assert later.constraint == engine.submitted[0].constraint
    assert wanted.retry_log == [1]


async def test_an_answer_that_is_mended_has_its_scored_prompt_once() -> None:
    engine = ScriptedModel(greedy("[1]", "[1,5]"))
    scored = {"text": TextOptions(echoes=True), "sampling": Sampling(max_tokens=0, num_logprobs=0)}
    prompts = (TextPrompt(text="ab"),)
    events = await run(engine, request(HAS_FIVE, prompts=prompts, **scored))
    assert text_of(events) == "ab[1,5]"
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert [e.logprob for delta in deltas for e in delta.logprobs][:2] == [None, -0.5]
    assert [submit.num_prompt_logprobs for submit in engine.submitted] == [0, None]


async def test_usage_counts_the_answer_that_is_told_and_the_rest_apart() -> None:
    events = await run(ScriptedModel(greedy("[1,22]", "[1,5]")), request(HAS_FIVE))
    assert text_of(events) == "[1,5]"
    usage = usage_of(events)
    assert usage.completion_tokens == len("[1,5]") + 1
    # Nothing else came where only the bracket, or a digit with it, was taken back.
    assert usage.retried_tokens == len("22]")


class WarmedModel(ScriptedModel):
    """Of a prompt of 12 tokens 4 were cached, 3 of these on a disk; whatever goes on with the
    answer finds what the first attempt computed."""

    def _events(self, request: Submit, choice: int) -> list[TokenEvent]:
        is_first = not request.output_prefix
        self.cached_tokens, self.tier_tokens = (4, {"disk": 3}) if is_first else (11, {})
        return super()._events(request, choice)


WARM = {"prompts": (TextPrompt(text="twelve bytes"),)}


async def test_usage_of_the_prompt_is_that_of_its_first_attempt() -> None:
    events = await run(WarmedModel(greedy("[1,22]", "[1,5]")), request(HAS_FIVE, **WARM))
    usage = usage_of(events)
    assert usage.retried_tokens > 0
    assert (usage.cached_tokens, usage.written_tokens) == (4, 8)
    assert usage.tier_tokens == {"disk": 3}


async def test_an_answer_that_is_never_valid_has_computed_its_prompt() -> None:
    wanted = request(HAS_FIVE, **WARM)
    await failure(WarmedModel(greedy("[1]", "[2]", "[3]")), wanted, retries=2)
    (usage,) = wanted.usage_log
    assert (usage.completion_tokens, usage.forced_tokens) == (0, 0)
    assert (usage.cached_tokens, usage.written_tokens) == (4, 8)
    assert usage.tier_tokens == {"disk": 3}


async def test_a_value_that_is_no_good_is_begun_anew_when_its_end_was_not_to_blame() -> None:
    schema = {"properties": {"a": {"pattern": "^y"}}}
    answers = ('{"a":"x1"}', '{"a":"x12"}', '{"a":"x1z"}', '{"a":"yes"}')
    engine = ScriptedModel(greedy(*answers))
    assert text_of(await run(engine, request(schema))) == '{"a":"yes"}'
    kept = [bytes(submit.output_prefix) for submit in engine.submitted[1:]]
    assert kept[0] == b'{"a":"x1'
    assert b'{"a":"' in kept


async def test_what_was_forbidden_at_a_place_stays_so_while_the_tokens_before_it_do() -> None:
    schema = {"items": {"enum": [7]}}
    engine = ScriptedModel(greedy("[1]", "[2]", "[3]", "[7]"))
    assert text_of(await run(engine, request(schema))) == "[7]"
    forbidden = [set(submit.first_forbidden) for submit in engine.submitted[1:]]
    assert forbidden == [{ord("1")}, {ord("1"), ord("2")}, {ord("1"), ord("2"), ord("3")}]


async def test_a_place_where_nothing_else_can_come_is_left_for_one_before_it() -> None:
    schema = {"properties": {"a": {"const": 1}, "b": {"const": 2}}}
    engine = ScriptedModel(greedy('{"a":1,"b":9}', '{"a":1}'))
    wanted = request(schema)
    assert text_of(await run(engine, wanted)) == '{"a":1}'
    assert len(engine.submitted) > len(wanted.retry_log) + 1, "dead ends are no retries"


async def test_an_answer_that_is_never_valid_is_an_error_and_never_the_text() -> None:
    numbers = [f"[{number}]" for number in range(10, 99)]
    engine = ScriptedModel(greedy(*numbers))
    wanted = request({"items": {"const": 5}})
    error = await failure(engine, wanted, retries=3)
    assert isinstance(error, ConstraintUnmet)
    assert (error.status, error.code, error.is_refusal) == (400, "constraint_failed", False)
    assert len(wanted.retry_log) == 3
    assert engine.open_requests == set()


async def test_no_retries_is_no_answer_that_fails() -> None:
    engine = ScriptedModel(greedy("[1]", "[1,5]"))
    assert isinstance(await failure(engine, request(HAS_FIVE), retries=0), ConstraintUnmet)
    assert len(engine.submitted) == 1


async def test_an_answer_cut_by_its_limit_is_told_as_it_is() -> None:
    events = await run(ScriptedModel(greedy("[1,2,3]")), request(HAS_FIVE, max_tokens=4))
    (finished,) = [event for event in events if isinstance(event, ChoiceFinished)]
    assert (text_of(events), finished.reason) == ("[1,2", "length")


async def test_going_on_keeps_to_the_limit_of_the_whole_answer() -> None:
    engine = ScriptedModel(greedy("[1]", "[1,2,3,4,5]"))
    events = await run(engine, request(HAS_FIVE, max_tokens=6))
    (finished,) = [event for event in events if isinstance(event, ChoiceFinished)]
    assert (text_of(events), finished.reason) == ("[1,2,3", "length")
    assert usage_of(events).completion_tokens == 6


async def test_each_choice_is_mended_by_itself() -> None:
    def script(submit: Submit, choice: int) -> Sequence[int]:
        if submit.output_prefix:
            return list(b",5]")
        return list([b"[5]", b"[1]", b"[2]"][choice])

    engine = FakeTokenEngine(script)
    events = await run(engine, request(HAS_FIVE, num_choices=3))
    assert [text_of(events, choice) for choice in range(3)] == ["[5]", "[1,5]", "[2,5]"]
    assert [submit.num_choices for submit in engine.submitted] == [3, 1, 1]
    assert len({submit.request_id for submit in engine.submitted}) == 3
    assert usage_of(events).completion_tokens == 4 + 6 + 6


async def test_kept_log_probabilities_come_with_the_answer() -> None:
    engine = ScriptedModel(greedy("[1]", "[1,5]"))
    sampling = Sampling(max_tokens=0, num_logprobs=1)
    events = await run(engine, request(HAS_FIVE, sampling=sampling))
    entries = [entry for e in events if isinstance(e, TextDelta) for entry in e.logprobs]
    assert "".join(entry.token for entry in entries).startswith("[1,5]")


async def test_all_that_was_computed_is_on_the_trace_under_its_choice() -> None:
    def script(submit: Submit, choice: int) -> Sequence[int]:
        return list(b",5]" if submit.output_prefix else [b"[5]", b"[1]"][choice])

    wanted = request(HAS_FIVE, num_choices=2)
    await run(FakeTokenEngine(script), wanted)
    decoded = [
        phase.attributes[names.ATTR_CHOICE]
        for phase in wanted.phase_log
        if phase.name == names.SPAN_DECODE
    ]
    assert decoded == [0, 1, 1]


async def test_leaving_aborts_what_goes_on_too() -> None:
    engine = ScriptedModel(greedy("[1]", "[1,5]"))
    made = generator(engine)
    stream = made.generate(await made.prepare(request(HAS_FIVE)))
    async for _ in stream:
        engine.hold("queue")
        if len(engine.submitted) > 1:
            break
        if engine.open_requests == {"r"}:
            engine.release()
    await stream.aclose()
    assert engine.open_requests == set()


async def test_a_fault_while_going_on_is_the_requests_error() -> None:
    class Failing(ScriptedModel):
        def _events(self, request: Submit, choice: int) -> list[TokenEvent]:
            if request.output_prefix:
                fault = EngineFault(ErrorCode.DEADLINE_EXCEEDED, "too late")
                return [TokenEvent(request.request_id, choice, 0, error=fault)]
            return super()._events(request, choice)

    error = await failure(Failing(greedy("[1]", "[1,5]")), request(HAS_FIVE))
    assert isinstance(error, DeadlineExceeded)


async def test_an_engine_that_went_away_meanwhile_is_a_503() -> None:
    class Leaving(ScriptedModel):
        def submit(self, request: Submit) -> Any:
            if request.output_prefix:
                self.unavailable = "no runtime"
            return super().submit(request)

    error = await failure(Leaving(greedy("[1]", "[1,5]")), request(HAS_FIVE))
    assert isinstance(error, Overloaded)


async def test_a_constraint_that_is_no_json_cannot_be_checked() -> None:
    wanted = request({}, constraint=ConstraintSpec("structural_tag", "{}", allows_checked=True))
    error = await failure(ScriptedModel(greedy("x")), wanted)
    assert (error.status, error.code) == (400, "invalid_grammar")
    assert "'/x'" in error.message
