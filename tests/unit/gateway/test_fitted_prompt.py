"""How a conversation is made to fit its model."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.conversation import Conversation
from gateway.errors import ContextLengthExceeded, InvalidConstraint, InvalidRequest
from gateway.fitted_prompt import ANSWER_SHARE, FittedGenerator
from gateway.generation import (
    Capabilities,
    ChatPrompt,
    GenerationEvent,
    GenerationRequest,
    PreparedGeneration,
)
from gateway.schemas.response_items import InputText, Item, MessageItem
from runtime.messages import Sampling

LIMIT = 800
# Each message costs as many tokens as its text says.


class CountingGenerator:
    """Prepares what fits LIMIT; `asked` are the numbers of messages it was given."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.error: InvalidRequest | None = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            True, frozenset(), logprobs=True, cached_tokens=True, max_model_len=LIMIT
        )

    async def prepare(self, request: GenerationRequest) -> PreparedGeneration:
        (prompt,) = request.prompts
        assert isinstance(prompt, ChatPrompt)
        self.asked.append(len(prompt.messages))
        if self.error is not None:
            raise self.error
        num_tokens = sum(int(message["content"]) for message in prompt.messages)
        if num_tokens >= LIMIT or num_tokens + (request.max_tokens or 0) > LIMIT:
            raise ContextLengthExceeded("reduce the messages", param="messages")
        wanted = request.max_tokens or LIMIT - num_tokens
        ids = tuple(range(num_tokens))
        return PreparedGeneration(request, (ids,), request.sampling, (wanted,), ignored=("stop",))

    def generate(self, prepared: PreparedGeneration) -> AsyncIterator[GenerationEvent]:
        raise NotImplementedError


def user(num_tokens: int) -> Item:
    return MessageItem("msg", "completed", "user", [InputText(str(num_tokens))])


def request_for(conversation: Conversation, **changes: Any) -> GenerationRequest:
    sampling = Sampling(max_tokens=1)
    request = GenerationRequest("r", (conversation.prompt(),), sampling, max_tokens=None)
    return replace(request, **changes)


async def fitted(
    *sizes: int, truncates: bool = True, **changes: Any
) -> tuple[PreparedGeneration, CountingGenerator]:
    conversation = Conversation(tuple(map(user, sizes)))
    generator = CountingGenerator()
    fitting = FittedGenerator(generator, conversation, truncates=truncates)
    return await fitting.prepare(request_for(conversation, **changes)), generator


def num_messages(prepared: PreparedGeneration) -> int:
    (prompt,) = prepared.request.prompts
    assert isinstance(prompt, ChatPrompt)
    return len(prompt.messages)


async def test_what_fits_is_left_as_it_is() -> None:
    prepared, generator = await fitted(100, 100)
    assert (num_messages(prepared), generator.asked) == (2, [2])
    assert (prepared.max_tokens, prepared.request.max_tokens) == ((600,), None)


@pytest.mark.parametrize("num_items", [*range(71, 80), 200])
async def test_as_few_as_possible_are_left_out(num_items: int) -> None:
    prepared, generator = await fitted(*[10] * num_items)
    room = LIMIT // ANSWER_SHARE
    assert num_messages(prepared) == (LIMIT - room) // 10
    assert prepared.max_tokens == (LIMIT - 10 * num_messages(prepared),)
    assert len(generator.asked) <= 10


async def test_a_given_length_of_the_answer_is_what_is_kept_free() -> None:
    prepared, _ = await fitted(*[10] * 200, max_tokens=500)
    assert (num_messages(prepared), prepared.max_tokens) == (30, (500,))


async def test_the_last_item_may_take_the_answers_room() -> None:
    prepared, _ = await fitted(10, 790)
    assert (num_messages(prepared), prepared.max_tokens) == (1, (10,))


async def test_what_never_fits_is_refused_by_its_name_here() -> None:
    for size, max_tokens in ((900, None), (500, 400)):
        with pytest.raises(ContextLengthExceeded) as caught:
            await fitted(10, size, max_tokens=max_tokens)
        assert caught.value.param == "input"
        assert caught.value.message.startswith("reduce the input")


async def test_without_truncation_nothing_is_left_out() -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        await fitted(500, 500, truncates=False)
    assert caught.value.code == "context_length_exceeded"


async def test_other_errors_keep_their_kind_and_name() -> None:
    conversation = Conversation((user(1),))
    generator = CountingGenerator()
    generator.error = InvalidConstraint("no", code="schema_too_complex", param="text.format")
    fitting = FittedGenerator(generator, conversation, truncates=True)
    with pytest.raises(InvalidConstraint) as caught:
        await fitting.prepare(request_for(conversation))
    assert (caught.value.code, caught.value.param) == ("schema_too_complex", "text.format")
    assert generator.asked == [1]
