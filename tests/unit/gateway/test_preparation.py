"""Preparation: everything that is refused before the first byte, and what it records."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.chat_template import ChatTemplate
from gateway.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    GatewayError,
    InvalidConstraint,
    InvalidRequest,
    Overloaded,
)
from gateway.generation import ChatPrompt, GenerationRequest, TextPrompt
from gateway.preparation import Preparation
from gateway.prompt_encoding import MAX_INLINE_CHARS
from gateway.tokenizer import Tokenizer
from grammar.errors import ConstraintTooExpensive, GrammarError, UnsupportedConstraint
from grammar.spec import ConstraintSpec
from runtime.messages import Sampling
from telemetry import names
from tests.byte_tokenizer import END_OF_TEXT, VOCAB_SIZE, byte_assets
from tests.fake_constraint_probe import FakeConstraintProbe
from tests.fake_token_engine import FakeTokenEngine

LIMIT = 128  # of the fake engine
SCHEMA = ConstraintSpec(kind="json_schema", value='{"type": "object"}')
NOW_NS = 10**18


class Kit:
    """A preparation and what stands around it."""

    def __init__(self, *, has_template: bool = True) -> None:
        assets = byte_assets()
        self.engine = FakeTokenEngine()
        self.probe = FakeConstraintProbe()
        source = assets.chat_template or ""
        template = ChatTemplate(source, assets.special_tokens) if has_template else None
        self.preparation = Preparation(
            engine=self.engine,
            tokenizer=Tokenizer(assets),
            template=template,
            probe=self.probe,
            clock=lambda: NOW_NS,
        )


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    made = Kit()
    yield made
    made.preparation.close()


def chat(content: Any = "hi", **changes: Any) -> GenerationRequest:
    prompt = ChatPrompt(messages=({"role": "user", "content": content},))
    return request(prompt, **changes)


def request(*prompts: ChatPrompt | TextPrompt, **changes: Any) -> GenerationRequest:
    fields: dict[str, Any] = {
        "request_id": "r",
        "prompts": prompts,
        "sampling": Sampling(max_tokens=0),
        "max_tokens": None,
    }
    return GenerationRequest(**(fields | changes))


def text(value: str, **changes: Any) -> GenerationRequest:
    return request(TextPrompt(text=value), **changes)


async def error_of(kit: Kit, refused: GenerationRequest) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await kit.preparation.prepare(refused)
    return caught.value


async def test_a_chat_is_rendered_and_tokenized(kit: Kit) -> None:
    prepared = await kit.preparation.prepare(chat())
    rendered = kit.preparation._tokenizer
    assert b"".join(map(rendered.token_bytes, prepared.prompt_token_ids[0])).decode() == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_the_tokenize_phase_counts_the_tokens_of_all_prompts(kit: Kit) -> None:
    wanted = request(TextPrompt(text="abc"), TextPrompt(token_ids=(1, 2)))
    prepared = await kit.preparation.prepare(wanted)
    (phase,) = wanted.phase_log
    assert (phase.name, phase.attributes) == (names.SPAN_TOKENIZE, {names.ATTR_TOKENS: 5})
    assert prepared.prompt_token_ids == (tuple(b"abc"), (1, 2))


async def test_chat_with_a_model_without_a_template_says_so() -> None:
    kit = Kit(has_template=False)
    error = await error_of(kit, chat())
    assert isinstance(error, InvalidRequest)
    assert (error.status, error.param) == (400, "messages")
    assert "no chat template" in error.message
    assert (await kit.preparation.prepare(text("a"))).prompt_token_ids == ((ord("a"),),)
    kit.preparation.close()


@pytest.mark.parametrize("prompt", [TextPrompt(), TextPrompt(text="")])
async def test_an_empty_prompt_is_the_start_of_a_document(kit: Kit, prompt: TextPrompt) -> None:
    prepared = await kit.preparation.prepare(request(prompt))
    assert prepared.prompt_token_ids == ((END_OF_TEXT,),)


async def test_without_a_wish_the_answer_may_fill_the_context(kit: Kit) -> None:
    prepared = await kit.preparation.prepare(text("a" * 28))
    assert prepared.max_tokens == (LIMIT - 28,)


@pytest.mark.parametrize(("length", "expected"), [(28, 16), (LIMIT - 16, 16), (LIMIT - 1, 1)])
async def test_a_limit_that_nobody_asked_for_gives_way_to_a_long_prompt(
    kit: Kit, length: int, expected: int
) -> None:
    wanted = text("a" * length, max_tokens=16, has_default_limit=True)
    assert (await kit.preparation.prepare(wanted)).max_tokens == (expected,)
    error = await error_of(kit, text("a" * LIMIT, max_tokens=16, has_default_limit=True))
    assert "for the completion" not in error.message


async def test_prompt_and_answer_may_fill_the_context_exactly(kit: Kit) -> None:
    prepared = await kit.preparation.prepare(text("a" * 28, max_tokens=LIMIT - 28))
    assert prepared.max_tokens == (LIMIT - 28,)


@pytest.mark.parametrize(("length", "max_tokens"), [(LIMIT, None), (LIMIT + 9, 1), (28, 101)])
async def test_too_long_a_request_is_refused_with_the_counts(
    kit: Kit, length: int, max_tokens: int | None
) -> None:
    error = await error_of(kit, text("a" * length, max_tokens=max_tokens))
    assert isinstance(error, ContextLengthExceeded)
    assert (error.code, error.param) == ("context_length_exceeded", "prompt")
    assert f"maximum context length is {LIMIT} tokens" in error.message
    assert f"{length} in the prompt" in error.message
    assert "context_length_exceeded" in error.message, "some clients read the message only"
    assert max_tokens is None or f"{max_tokens} for the completion" in error.message


async def test_too_long_a_chat_names_the_messages(kit: Kit) -> None:
    refused = chat("a" * LIMIT)
    error = await error_of(kit, refused)
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
    assert [phase.name for phase in refused.phase_log] == [names.SPAN_TOKENIZE]


async def test_min_tokens_beyond_what_fits_is_refused(kit: Kit) -> None:
    error = await error_of(kit, text("a", sampling=Sampling(max_tokens=0, min_tokens=LIMIT)))
    assert error.param == "min_tokens"


@pytest.mark.parametrize("bad_id", [-1, VOCAB_SIZE, 10**9])
@pytest.mark.parametrize("param", ["prompt", "logit_bias", "stop_token_ids"])
async def test_ids_out_of_the_vocabulary_are_refused_by_name(
    kit: Kit, param: str, bad_id: int
) -> None:
    sampling = Sampling(
        max_tokens=0,
        logit_bias={bad_id: 1.0} if param == "logit_bias" else {},
        stop_token_ids=(bad_id,) if param == "stop_token_ids" else (),
    )
    prompt = TextPrompt(token_ids=(bad_id if param == "prompt" else 1,))
    error = await error_of(kit, request(prompt, sampling=sampling))
    assert (error.status, error.param) == (400, param)
    assert str(bad_id) in error.message


async def test_the_last_id_of_the_vocabulary_is_taken(kit: Kit) -> None:
    prepared = await kit.preparation.prepare(request(TextPrompt(token_ids=(VOCAB_SIZE - 1,))))
    assert prepared.prompt_token_ids == ((VOCAB_SIZE - 1,),)


@pytest.mark.parametrize("make", [chat, text])
async def test_text_that_cannot_fit_is_refused_without_tokenizing_it(
    kit: Kit, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_options: Any) -> None:
        pytest.fail("it was tokenized")

    monkeypatch.setattr(Tokenizer, "encode", fail)
    error = await error_of(kit, make("a" * 1_000_000))
    assert error.code == "context_length_exceeded"
    assert "1000" in error.message


async def test_too_many_ids_are_refused_for_their_number(kit: Kit) -> None:
    error = await error_of(kit, request(TextPrompt(token_ids=(VOCAB_SIZE,) * LIMIT)))
    assert error.code == "context_length_exceeded"


async def test_an_empty_list_of_ids_is_refused(kit: Kit) -> None:
    error = await error_of(kit, request(TextPrompt(token_ids=())))
    assert (error.code, error.param) == ("empty_array", "prompt")


@pytest.mark.parametrize(
    ("refused", "param"),
    [
        (chat("\ud83d"), "messages"),
        (text("\ud83d"), "prompt"),
        (text("a", stop=("\ud83d",)), "stop"),
        (
            text("a", constraint=ConstraintSpec(kind="regex", value="\ud83d")),
            "response_format",
        ),
        (text("a", stop=("",)), "stop"),
        (text("a", stop=("x" * 9000,)), "stop"),
    ],
)
async def test_text_that_cannot_be_used_is_refused_by_name(
    kit: Kit, refused: GenerationRequest, param: str
) -> None:
    error = await error_of(kit, refused)
    assert (error.status, error.param) == (400, param)


async def test_a_constraint_is_compiled_once_and_its_phase_says_by_whom(kit: Kit) -> None:
    first = await kit.preparation.prepare(chat(constraint=SCHEMA))
    second = await kit.preparation.prepare(chat(constraint=SCHEMA))
    phases = [prepared.request.phase_log[-1] for prepared in (first, second)]
    assert [phase.name for phase in phases] == [names.SPAN_GRAMMAR_COMPILE] * 2
    assert [phase.attributes[names.ATTR_COMPILE_CACHED] for phase in phases] == [False, True]
    assert phases[0].attributes[names.ATTR_GRAMMAR_ENGINE] == "llguidance"


async def test_stop_strings_beside_a_constraint_are_named_as_ignored(kit: Kit) -> None:
    assert (await kit.preparation.prepare(chat(stop=("a",)))).ignored == ()
    assert (await kit.preparation.prepare(chat(constraint=SCHEMA))).ignored == ()
    both = await kit.preparation.prepare(chat(constraint=SCHEMA, stop=("a",)))
    assert both.ignored == ("stop",)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (SCHEMA, "invalid_json_schema"),
        (ConstraintSpec(kind="json_object"), "invalid_json_schema"),
        (ConstraintSpec(kind="regex", value="("), "invalid_grammar"),
        (ConstraintSpec(kind="choice", value="[]"), "invalid_grammar"),
    ],
)
async def test_a_refused_constraint_says_where_and_why(
    kit: Kit, spec: ConstraintSpec, code: str
) -> None:
    kit.probe.error = UnsupportedConstraint("'contains' is not enforced", pointer="/a/contains")
    refused = chat(constraint=spec, constraint_param="structured_outputs")
    error = await error_of(kit, refused)
    assert isinstance(error, InvalidConstraint)
    assert (error.code, error.param) == (code, "structured_outputs")
    assert "'/a/contains'" in error.message
    assert "'contains' is not enforced" in error.message
    assert refused.phase_log[-1].name == names.SPAN_GRAMMAR_COMPILE


async def test_a_constraint_that_is_too_expensive_is_a_400(kit: Kit) -> None:
    kit.probe.error = ConstraintTooExpensive("10 s")
    error = await error_of(kit, chat(constraint=SCHEMA))
    assert (error.status, error.code) == (400, "schema_too_complex")
    assert "10 s" in error.message


async def test_a_probe_that_cannot_work_is_a_503_and_not_the_constraints_fault(kit: Kit) -> None:
    kit.probe.error = GrammarError("no process can be started")
    error = await error_of(kit, chat(constraint=SCHEMA))
    assert isinstance(error, Overloaded)
    assert "no process can be started" in error.message


async def test_a_deadline_that_passes_while_compiling_ends_the_request(kit: Kit) -> None:
    kit.probe.is_held = True
    late = chat(constraint=SCHEMA, deadline_ns=NOW_NS + 10**6)
    assert isinstance(await error_of(kit, late), DeadlineExceeded)
    assert late.phase_log[-1].name == names.SPAN_GRAMMAR_COMPILE
    assert kit.probe.num_waiting == 0


async def test_a_deadline_in_the_past_ends_the_request_at_once(kit: Kit) -> None:
    assert isinstance(await error_of(kit, chat(deadline_ns=NOW_NS)), DeadlineExceeded)


async def test_a_request_cancelled_while_compiling_leaves_its_phases_in_the_log(kit: Kit) -> None:
    kit.probe.is_held = True
    cancelled = chat(constraint=SCHEMA)
    task = asyncio.ensure_future(kit.preparation.prepare(cancelled))
    await kit.probe.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [phase.name for phase in cancelled.phase_log] == [
        names.SPAN_TOKENIZE,
        names.SPAN_GRAMMAR_COMPILE,
    ]
    assert kit.probe.num_waiting == 0


async def test_while_the_model_is_loaded_requests_are_told_to_come_back(kit: Kit) -> None:
    kit.engine.info = None
    error = await error_of(kit, chat())
    assert isinstance(error, Overloaded)
    assert error.retry_after_s == 1


@pytest.mark.parametrize(
    "long_request",
    [
        text("a" * (MAX_INLINE_CHARS + 1)),
        chat("a" * MAX_INLINE_CHARS),
        chat([{"type": "text", "text": "a" * MAX_INLINE_CHARS}]),
        request(ChatPrompt(messages=({"role": "user", "content": ""},) * 600)),
        request(*[TextPrompt(text="a")] * 600, TextPrompt(text="a" * LIMIT)),
    ],
)
async def test_the_event_loop_goes_on_while_a_long_prompt_is_tokenized(
    kit: Kit, long_request: GenerationRequest
) -> None:
    task = asyncio.ensure_future(error_of(kit, long_request))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    assert (await task).code == "context_length_exceeded"


async def test_a_short_prompt_needs_no_worker(kit: Kit) -> None:
    kit.preparation.close()
    assert (await kit.preparation.prepare(chat())).num_prompt_tokens > 0
