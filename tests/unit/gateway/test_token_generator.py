"""TokenGenerator over a scripted engine: events, usage, stops, faults and early ends."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.chat_template import ChatTemplate
from gateway.errors import EngineDied, GatewayError, Overloaded, ServerError
from gateway.generation import (
    Admitted,
    ChatPrompt,
    ChoiceFinished,
    Completed,
    GenerationEvent,
    GenerationRequest,
    Submitted,
    TextDelta,
    TextPrompt,
)
from gateway.token_generator import TokenGenerator
from gateway.tokenizer import Tokenizer
from grammar.spec import ConstraintSpec, PreparedConstraint
from runtime.gguf_vocabulary import build_tokenizer_json
from runtime.messages import EngineFault, ErrorCode, Sampling, Submit, TokenEvent, TraceContext
from telemetry import names
from tests.byte_tokenizer import byte_assets
from tests.fake_constraint_probe import FakeConstraintProbe
from tests.fake_token_engine import INFO, FakeTokenEngine, Script
from tests.sentencepiece import SPACE, sentencepiece_metadata

HELLO = TextPrompt(text="hello")


def script(*answers: bytes) -> Script:
    """Choice i of each prompt gets answer i."""
    return lambda _submit, choice: list(answers[choice])


def generator(engine: FakeTokenEngine) -> TokenGenerator:
    assets = byte_assets()
    return TokenGenerator(
        engine=engine,
        tokenizer=Tokenizer(assets),
        template=ChatTemplate(assets.chat_template or "", assets.special_tokens),
        probe=FakeConstraintProbe(),
    )


def request(*prompts: TextPrompt | ChatPrompt, **changes: Any) -> GenerationRequest:
    fields: dict[str, Any] = {
        "request_id": "r",
        "prompts": prompts or (HELLO,),
        "sampling": Sampling(max_tokens=0),
        "max_tokens": 32,
    }
    return GenerationRequest(**(fields | changes))


async def start(
    engine: FakeTokenEngine, wanted: GenerationRequest
) -> AsyncGenerator[GenerationEvent, None]:
    made = generator(engine)
    return made.generate(await made.prepare(wanted))


async def run(engine: FakeTokenEngine, wanted: GenerationRequest) -> list[GenerationEvent]:
    return [event async for event in await start(engine, wanted)]


async def failure(engine: FakeTokenEngine, wanted: GenerationRequest) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await run(engine, wanted)
    return caught.value


def text_of(events: Sequence[GenerationEvent], choice: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta) and e.choice == choice)


def reasons(events: Sequence[GenerationEvent]) -> dict[int, str]:
    return {e.choice: e.reason for e in events if isinstance(e, ChoiceFinished)}


def completed(events: Sequence[GenerationEvent]) -> Completed:
    last = events[-1]
    assert isinstance(last, Completed)
    return last


async def test_events_come_in_order() -> None:
    events = await run(FakeTokenEngine(script(b"ab")), request())
    assert [type(event) for event in events] == [
        Submitted,
        Admitted,
        TextDelta,
        TextDelta,
        TextDelta,  # the end of sequence: no text, but a token
        ChoiceFinished,
        Completed,
    ]
    assert events[0] == Submitted(INFO.engine_id, INFO.incarnation)
    assert text_of(events) == "ab"
    assert reasons(events) == {0: "stop"}


async def test_usage_counts_prompt_cached_and_generated_tokens() -> None:
    engine = FakeTokenEngine(script(b"ab"))
    engine.cached_tokens = 1
    usage = completed(await run(engine, request(TextPrompt(text="xyz")))).usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (3, 1, 3)


async def test_an_answer_cut_by_max_tokens_ends_by_length() -> None:
    events = await run(FakeTokenEngine(script(b"abcdef")), request(max_tokens=2))
    assert (text_of(events), reasons(events)) == ("ab", {0: "length"})
    assert completed(events).usage.completion_tokens == 2


async def test_an_answer_that_a_stop_string_ended_waits_for_no_event_of_the_engine() -> None:
    engine = FakeTokenEngine(script(b"abcdef"))
    engine.hold("decode")
    async with asyncio.timeout(5):
        events = await run(engine, request(stop=("a",)))
    assert (text_of(events), reasons(events)) == ("", {0: "stop"})
    assert engine.aborted == [("r", 0)]


async def test_everything_the_runtime_needs_is_in_the_submit() -> None:
    engine = FakeTokenEngine()
    spec = ConstraintSpec(kind="regex", value="a+")
    wanted = request(
        TextPrompt(token_ids=(1, 2)),
        sampling=Sampling(max_tokens=0, temperature=0.5, seed=7),
        num_choices=2,
        constraint=spec,
        namespace=b"salt",
        queue_deadline_ns=2**62,
        deadline_ns=2**62 + 1,
        traceparent="00-1-2-01",
        tracestate="a=b",
    )
    await run(engine, wanted)
    assert engine.submitted == [
        Submit(
            request_id="r",
            prompt_token_ids=[1, 2],
            sampling=Sampling(max_tokens=32, temperature=0.5, seed=7),
            num_choices=2,
            constraint=PreparedConstraint("llguidance", "regex", "a+"),
            namespace=b"salt",
            queue_deadline_ns=2**62,
            deadline_ns=2**62 + 1,
            trace=TraceContext("00-1-2-01", "a=b"),
        )
    ]


async def test_nothing_is_submitted_before_the_first_step() -> None:
    engine = FakeTokenEngine()
    stream = await start(engine, request())
    assert engine.submitted == []
    await stream.aclose()
    assert engine.aborted == []


async def test_choices_of_several_prompts_are_numbered_through() -> None:
    def answer(submit: Submit, choice: int) -> Sequence[int]:
        return [*submit.prompt_token_ids, ord("0") + choice]

    engine = FakeTokenEngine(answer)
    prompts = [TextPrompt(text=letter) for letter in "abc"]
    events = await run(engine, request(*prompts, num_choices=2))
    texts = [text_of(events, choice) for choice in range(6)]
    assert texts == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert [type(event) for event in events].count(Admitted) == 1
    usage = completed(events).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 6 * 3)


async def test_prompts_of_one_request_have_their_own_ids_and_seeds() -> None:
    engine = FakeTokenEngine()
    await run(engine, request(HELLO, HELLO, sampling=Sampling(max_tokens=0, seed=7)))
    assert [submit.request_id for submit in engine.submitted] == ["r.0", "r.1"]
    first, second = [submit.sampling.seed for submit in engine.submitted]
    assert first == 7
    assert second != 7
    assert 0 <= second < 2**63


async def test_cached_tokens_are_summed_over_prompts_and_not_over_choices() -> None:
    engine = FakeTokenEngine()
    engine.cached_tokens = 2
    prompts = [TextPrompt(text="abc"), TextPrompt(text="abc")]
    assert completed(await run(engine, request(*prompts, num_choices=3))).usage.cached_tokens == 4


async def test_a_stop_string_ends_its_choice_in_the_runtime_too() -> None:
    engine = FakeTokenEngine(script(b"one END two", b"no such thing"))
    events = await run(engine, request(stop=("END",), num_choices=2))
    assert (text_of(events, 0), text_of(events, 1)) == ("one ", "no such thing")
    assert reasons(events) == {0: "stop", 1: "stop"}
    assert engine.aborted == [("r", 0)]


async def test_a_stop_string_ends_a_single_choice_without_waiting_for_the_engine() -> None:
    engine = FakeTokenEngine(script(b"a.b"))
    engine.cached_tokens = 3
    events = await run(engine, request(stop=(".",)))
    usage = completed(events).usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (1, 0, 2)
    assert engine.aborted == [("r", 0)]
    assert engine.open_requests == set()


@pytest.mark.parametrize("tokens_per_event", [1, 2, 3, 50])
async def test_text_and_usage_do_not_depend_on_the_engines_steps(tokens_per_event: int) -> None:
    engine = FakeTokenEngine(script("é: 漢 END!".encode()), tokens_per_event=tokens_per_event)
    events = await run(engine, request(stop=("END", "NEVER")))
    assert text_of(events) == "é: 漢 "
    assert completed(events).usage.completion_tokens == len("é: 漢 END".encode())


async def test_a_choice_ended_by_a_stop_string_has_a_decode_phase() -> None:
    wanted = request(stop=("b",))
    await run(FakeTokenEngine(script(b"ab")), wanted)
    decode = [phase for phase in wanted.phase_log if phase.name == names.SPAN_DECODE]
    assert [phase.attributes[names.ATTR_TOKENS] for phase in decode] == [2]
    assert decode[0].start_ns <= decode[0].end_ns


async def test_stop_strings_do_not_cut_a_constrained_answer() -> None:
    spec = ConstraintSpec(kind="json_object")
    engine = FakeTokenEngine(script(b'{"a":1}'))
    assert text_of(await run(engine, request(stop=(":",), constraint=spec))) == '{"a":1}'
    assert engine.aborted == []


async def test_log_probabilities_cover_the_text() -> None:
    sampling = Sampling(max_tokens=0, num_logprobs=2)
    events = await run(FakeTokenEngine(script("aé".encode())), request(sampling=sampling))
    entries = [e for event in events if isinstance(event, TextDelta) for e in event.logprobs]
    assert b"".join(entry.raw for entry in entries).decode() == "aé"
    assert {len(entry.top) for entry in entries} == {2}


@pytest.mark.parametrize("fault_after", [None, 0, 2])
async def test_a_fault_fails_the_request_and_ends_its_other_choices(
    fault_after: int | None,
) -> None:
    engine = FakeTokenEngine()
    engine.fault = EngineFault(code=ErrorCode.ENGINE_DIED, message="the runtime died")
    engine.fault_after = fault_after
    error = await failure(engine, request(HELLO, HELLO, num_choices=2))
    assert isinstance(error, EngineDied)
    assert (error.code, error.retry_after_s) == ("engine_died", 1)
    assert {request_id for request_id, _ in engine.aborted} == {"r.0", "r.1"}
    assert engine.open_requests == set()


@pytest.mark.parametrize(
    ("fault_after", "last_phase"),
    [(None, names.SPAN_QUEUE), (0, names.SPAN_PREFILL), (2, names.SPAN_DECODE)],
)
async def test_a_death_leaves_the_phase_that_it_interrupted(
    fault_after: int | None, last_phase: str
) -> None:
    engine = FakeTokenEngine()
    engine.fault = EngineFault(code=ErrorCode.ENGINE_DIED, message="the runtime died")
    engine.fault_after = fault_after
    failed = request()
    await failure(engine, failed)
    assert failed.phase_log[-1].name == last_phase


async def test_an_engine_that_takes_nothing_is_a_503_and_leaves_nothing_behind() -> None:
    engine = FakeTokenEngine()
    engine.unavailable = "the runtime is being restarted"
    error = await failure(engine, request())
    assert isinstance(error, Overloaded)
    assert (error.message, error.retry_after_s) == ("the runtime is being restarted", 1)
    assert engine.aborted == []


async def test_an_engine_that_goes_away_between_two_prompts_frees_the_first() -> None:
    class Fading(FakeTokenEngine):
        def submit(self, request: Submit) -> AsyncIterator[TokenEvent]:
            stream = super().submit(request)
            self.unavailable = "gone"
            return stream

    engine = Fading()
    assert isinstance(await failure(engine, request(HELLO, HELLO)), Overloaded)
    assert engine.aborted == [("r.0", None)]


async def test_an_engine_that_ends_without_an_answer_is_an_error() -> None:
    class Silent(FakeTokenEngine):
        async def _run(self, request: Submit) -> AsyncIterator[TokenEvent]:
            yield self._admission(request, 0)

    assert isinstance(await failure(Silent(), request()), ServerError)


@pytest.mark.parametrize("num_prompts", [1, 2])
@pytest.mark.parametrize("num_events", [1, 2, 4])
async def test_closing_early_aborts_every_prompt(num_prompts: int, num_events: int) -> None:
    engine = FakeTokenEngine()
    stream = await start(engine, request(*[HELLO] * num_prompts))
    for _ in range(num_events):
        await anext(stream)
    await stream.aclose()
    assert len(engine.aborted) == num_prompts
    assert engine.open_requests == set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("num_prompts", [1, 2])
@pytest.mark.parametrize("point", ["queue", "decode"])
async def test_a_request_cancelled_while_it_waits_is_aborted(num_prompts: int, point: Any) -> None:
    engine = FakeTokenEngine()
    engine.hold(point)
    wanted = request(*[HELLO] * num_prompts)
    task = asyncio.ensure_future(run(engine, wanted))
    for _ in range(40):
        await asyncio.sleep(0)
    assert len(engine.open_requests) == num_prompts
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(engine.aborted) == num_prompts
    assert engine.open_requests == set()
    expected = names.SPAN_QUEUE if point == "queue" else names.SPAN_DECODE
    assert wanted.phase_log[-1].name == expected


async def test_a_finished_request_is_not_aborted() -> None:
    engine = FakeTokenEngine()
    await run(engine, request(HELLO, HELLO, num_choices=2))
    assert engine.aborted == []


async def test_what_the_model_can_do_is_known_once_the_engine_is_there() -> None:
    engine = FakeTokenEngine()
    assert generator(engine).capabilities.max_model_len == 128
    engine.info = None
    assert generator(engine).capabilities.max_model_len is None


@pytest.mark.parametrize(
    ("prompt", "constraint", "expected"),
    [
        ("a</s>", None, "a"),
        ("a</s>b", None, " a"),
        ("a</s>", ConstraintSpec("regex", " a", "llguidance"), " a"),
    ],
)
async def test_the_space_that_the_tokenizer_puts_after_special_tokens_is_no_text(
    prompt: str, constraint: ConstraintSpec | None, expected: str
) -> None:
    metadata = sentencepiece_metadata([f"{SPACE}a", SPACE, "a", "b"])
    tokens = metadata["tokenizer.ggml.tokens"]
    assets = replace(
        byte_assets(),
        tokenizer_json=build_tokenizer_json(metadata),
        vocab_size=len(tokens),
        eos_token_ids=(2,),
    )
    engine = FakeTokenEngine(lambda _submit, _choice: [tokens.index(f"{SPACE}a")])
    made = TokenGenerator(
        engine=engine, tokenizer=Tokenizer(assets), template=None, probe=FakeConstraintProbe()
    )
    wanted = request(TextPrompt(text=prompt), constraint=constraint)
    events = [event async for event in made.generate(await made.prepare(wanted))]
    assert text_of(events) == expected
