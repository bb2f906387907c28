"""What the official client does with responses, its types strictly checked."""

import json
from typing import Any

import openai
import pytest

from tests.conformance.openai_client import Flag
from tests.conformance.target import Target


def asked(target: Target, **parameters: Any) -> dict[str, Any]:
    """Gives the same short text each time."""
    return {
        "model": target.model,
        "input": "Say hello.",
        "temperature": 0,
        "max_output_tokens": 60,
        **parameters,
    }


async def test_response_has_every_required_field(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.responses.create(
            **asked(target, instructions="Be brief.", metadata={"a": "b"})
        )
    assert answer.object == "response"
    assert answer.output_text
    assert answer.metadata == {"a": "b"}
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


async def test_streamed_response_says_what_the_whole_one_says(target: Target) -> None:
    async with target.openai() as client:
        whole = await client.responses.create(**asked(target))
        stream = await client.responses.create(**asked(target), stream=True)
        events = [event async for event in stream]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type in ("response.completed", "response.incomplete")


async def test_response_stream_helper_gathers_the_final_response(target: Target) -> None:
    async with target.openai() as client:
        # A choice of two texts ends by itself whatever the model is.
        async with client.responses.stream(
            **asked(target), extra_body={"structured_outputs": {"choice": ["first", "second"]}}
        ) as stream:
            final = await stream.get_final_response()
        kept = await client.responses.retrieve(final.id)
    assert final.output_text in ("first", "second")
    assert kept.output_text == final.output_text


async def test_response_parse_gives_an_object_of_the_schema(target: Target) -> None:
    async with target.openai() as client:
        whole = await client.responses.parse(**asked(target), text_format=Flag)
        async with client.responses.stream(**asked(target), text_format=Flag) as stream:
            final = await stream.get_final_response()
    assert isinstance(whole.output_parsed, Flag)
    assert isinstance(final.output_parsed, Flag)
    assert list(json.loads(whole.output_text)) == ["color", "size"]


async def test_conversation_goes_on_from_a_kept_response(target: Target) -> None:
    async with target.openai() as client:
        first = await client.responses.create(**asked(target, input="1", max_output_tokens=24))
        more: Any = {"input": "2", "previous_response_id": first.id}
        second = await client.responses.create(**asked(target, max_output_tokens=24, **more))
        counted = await client.responses.input_tokens.count(model=target.model, **more)
    assert second.previous_response_id == first.id
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    assert counted.input_tokens == second.usage.input_tokens


async def test_input_items_are_paged_through(target: Target) -> None:
    roles = ("user", "assistant", "developer", "user")
    given: Any = [{"role": role, "content": role[0]} for role in roles]
    async with target.openai() as client:
        answer = await client.responses.create(**asked(target, input=given, max_output_tokens=4))
        pages = client.responses.input_items.list(answer.id, limit=2, order="asc")
        items = [item async for item in pages]
    assert [item.type for item in items] == ["message"] * 4
    assert [getattr(item, "role", None) for item in items] == list(roles)


async def test_deleted_response_is_the_clients_not_found_error(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.responses.create(**asked(target))
        await client.responses.delete(answer.id)
        with pytest.raises(openai.NotFoundError) as caught:
            await client.responses.retrieve(answer.id)
        with pytest.raises(openai.NotFoundError) as lost:
            await client.responses.create(**asked(target, previous_response_id=answer.id))
    assert caught.value.code == "response_not_found"
    assert lost.value.code == "previous_response_not_found"


async def test_response_that_cannot_be_cancelled_is_a_bad_request(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.responses.create(**asked(target))
        with pytest.raises(openai.BadRequestError):
            await client.responses.cancel(answer.id)


async def test_incomplete_response_says_so_in_both_modes(target: Target) -> None:
    async with target.openai() as client:
        whole = await client.responses.create(**asked(target, max_output_tokens=2))
        stream = await client.responses.create(**asked(target, max_output_tokens=2), stream=True)
        last = [event async for event in stream][-1]
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert last.type == "response.incomplete"


async def test_response_logprobs_spell_the_text(target: Target) -> None:
    async with target.openai() as client:
        answer = await client.responses.create(
            **asked(target, include=["message.output_text.logprobs"], top_logprobs=2)
        )
    (message,) = answer.output
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    spelled = b"".join(bytes(entry.bytes) for entry in part.logprobs or ())
    assert spelled.decode("utf-8", "replace") == part.text
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs or ())


async def test_unknown_item_is_the_clients_bad_request_error(target: Target) -> None:
    bad: Any = [{"type": "computer_call_output", "call_id": "c", "output": {}}]
    async with target.openai() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(**asked(target, input=bad))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "input[0].type")
