"""What the official client does with a server's answers, its types strictly checked."""

import json
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

from tests.conformance.target import Target


class Flag(BaseModel):
    """Every value of it is short, so that any model ends in time."""

    color: Literal["red", "green"]
    size: Literal["small", "large"]


async def test_chat_has_every_required_field(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.chat.completions.create(**target.chat())
    choice = answer.choices[0]
    assert answer.object == "chat.completion"
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.total_tokens == (
        answer.usage.prompt_tokens + answer.usage.completion_tokens
    )


async def test_streamed_chat_says_what_the_whole_answer_says(target: Target) -> None:
    async with target.openai() as client:
        whole = await client.chat.completions.create(**target.chat())
        stream = await client.chat.completions.create(
            **target.chat(), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


async def test_stream_helper_gathers_one_assistant_message(target: Target) -> None:
    async with target.openai() as client:
        # A choice of two texts ends with "stop" whatever the model is.
        async with client.chat.completions.stream(
            **target.chat(n=2, max_tokens=60),
            extra_body={"structured_outputs": {"choice": ["first", "second"]}},
        ) as stream:
            final = await stream.get_final_completion()
    assert [choice.message.role for choice in final.choices] == ["assistant", "assistant"]
    assert final.choices[0].message.content


async def test_parse_gives_an_object_of_the_schema(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.chat.completions.parse(
            **target.chat(max_tokens=60), response_format=Flag
        )
    assert isinstance(answer.choices[0].message.parsed, Flag)


async def test_streamed_schema_answer_parses_as_well(target: Target) -> None:
    async with target.openai() as client:
        async with client.chat.completions.stream(
            **target.chat(max_tokens=60), response_format=Flag
        ) as stream:
            final = await stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Flag)


async def test_chat_logprobs_spell_the_content(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.chat.completions.create(
            **target.chat(), logprobs=True, top_logprobs=2
        )
    choice = answer.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    spelled = b"".join(bytes(entry.bytes or []) for entry in choice.logprobs.content)
    assert spelled.decode("utf-8", "replace") == choice.message.content
    assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)
    assert all(entry.logprob <= 0 for entry in choice.logprobs.content)


async def test_completion_of_several_prompts_keeps_their_order(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.completions.create(**target.completion(["One", "Two"]), n=2)
        single = await client.completions.create(**target.completion("Two"))
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[2].text == single.choices[0].text


async def test_streamed_completion_says_what_the_whole_answer_says(target: Target) -> None:
    # The client's type has no null finish_reason, which OpenAI sends in these chunks too.
    async with target.openai(is_strict=False) as client:
        whole = await client.completions.create(**target.completion())
        stream = await client.completions.create(**target.completion(), stream=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == whole.choices[0].text


async def test_legacy_logprobs_have_the_legacy_shape(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.completions.create(**target.completion(), logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.top_logprobs is not None
    assert logprobs.text_offset is not None
    assert logprobs.text_offset[0] == 0
    assert all(len(row) >= 2 for row in logprobs.top_logprobs)
    assert len(logprobs.tokens) == len(logprobs.text_offset) == len(logprobs.top_logprobs)


async def test_models_are_listed_and_retrieved(target: Target) -> None:
    async with target.openai() as client:
        listed = [model.id async for model in client.models.list()]
        model = await client.models.retrieve(target.model)
    assert target.model in listed
    assert model.object == "model"
    assert (model.model_extra or {})["max_model_len"] > 0


async def test_unknown_model_is_the_clients_not_found_error(target: Target) -> None:
    async with target.openai() as client:
        with pytest.raises(openai.NotFoundError) as caught:
            await client.chat.completions.create(**{**target.chat(), "model": "nope"})
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert target.model in caught.value.message


async def test_bad_value_is_the_clients_bad_request_error(target: Target) -> None:
    async with target.openai() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(**{**target.chat(), "temperature": 3})
    assert caught.value.param == "temperature"
    assert caught.value.request_id


async def test_max_tokens_are_honoured_under_both_names(target: Target) -> None:
    body = target.chat("Tell me a long story.")
    del body["max_tokens"]
    async with target.openai() as client:
        for name in ("max_tokens", "max_completion_tokens"):
            answer = await client.chat.completions.create(**{**body, name: 3})
            assert answer.usage is not None
            assert answer.usage.completion_tokens <= 3
            assert answer.choices[0].finish_reason == "length"


async def test_schema_answers_keep_the_schemas_key_order(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.chat.completions.create(
            **target.chat(max_tokens=60),
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "flag", "schema": Flag.model_json_schema()},
            },
        )
    assert list(json.loads(answer.choices[0].message.content or "")) == ["color", "size"]
