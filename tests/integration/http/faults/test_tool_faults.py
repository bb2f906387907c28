"""Faults of tool calls that other servers were reported for: calls that do not come, do not end or
cannot be told apart, and histories that are refused."""

import json
from typing import Any

import httpx2
import msgspec
import pytest

from tests.byte_tokenizer import byte_assets
from tests.constrained_model import assert_valid
from tests.gateway_harness import CHAT, chat, in_process, make_gateway
from tests.integration.http.faults.wishful import Wish, wishing
from tests.sse_machine import check_chat_stream

PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PLACE, "strict": True}},
    {"type": "function", "function": {"name": "now"}},
]
NAMED = {"type": "function", "function": {"name": "weather"}}
TWO = (
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "unit": "C"}}\n</tool_call>'
)


def prose(said: bytes) -> bytes:
    """The next letter of something to say that has nothing to do with any tool."""
    words = b"I would rather tell a story, and it is a long one. "
    return words[len(said) % len(words) :][:1] + b" etaoin"


def blank(_said: bytes) -> bytes:
    return b" \n\t"


@pytest.mark.parametrize("wish", [prose, blank, lambda _said: b"\\{[<"])
async def test_a_required_call_is_made_and_ends_whatever_the_model_would_rather_say(
    wish: Wish,
) -> None:
    """vllm#53363, #50399: prose, an empty list of calls, or a loop up to the limit."""
    asked = {"tools": TOOLS, "parallel_tool_calls": False, "max_tokens": 400}
    async with wishing(wish) as path, path.client() as client:
        for choice, reason in (("required", "tool_calls"), (NAMED, "stop")):
            body = chat("Tell me a story.", tool_choice=choice, **asked)
            (whole,) = (await client.post(CHAT, json=body)).json()["choices"]
            stream = await client.post(CHAT, json={**body, "stream": True})
            ((streamed,),) = check_chat_stream(stream.content).calls
            (call,) = whole["message"]["tool_calls"]
            assert (whole["message"]["content"], whole["finish_reason"]) == (None, reason)
            assert call["function"]["arguments"] == streamed["arguments"]
            if call["function"]["name"] == "weather":
                assert_valid(PLACE, call["function"]["arguments"])
            else:
                assert json.loads(call["function"]["arguments"]) == {}


def again_and_again(said: bytes) -> bytes:
    """Calls one function after the other, for ever."""
    call = b'<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    place = len(said) % (len(call) + 1)
    return call[place : place + 1] or b"\n"


async def test_calls_that_may_not_be_parallel_are_not_even_generated() -> None:
    """vllm#9451, sglang#9696: all were generated, and all but one dropped."""
    async with wishing(again_and_again) as path, path.client() as client:
        told = {}
        for parallel in (True, False):
            body = chat(
                "Two cities?",
                tools=TOOLS,
                tool_choice="required",
                parallel_tool_calls=parallel,
                max_tokens=400,
            )
            answer = (await client.post(CHAT, json=body)).json()
            message = answer["choices"][0]["message"]
            told[parallel] = (len(message["tool_calls"]), answer["usage"]["completion_tokens"])
    assert told[True][0] > 4
    assert told[False][0] == 1
    assert told[False][1] < 80


async def says(text: str, **parameters: Any) -> httpx2.Response:
    gateway = make_gateway(lambda _submit, _choice: list(text.encode()))
    assert gateway.engine.info is not None
    gateway.engine.info = msgspec.structs.replace(gateway.engine.info, max_model_len=4096)
    async with in_process(gateway) as client:
        return await client.post(CHAT, json=chat(tools=TOOLS, **parameters))


async def test_parallel_calls_have_dense_indices_and_ids_that_never_come_again() -> None:
    """lmdeploy#3412, vercel/ai#18440, ml-intern#341, agno#8880, pipecat#4987"""
    ids: list[str] = []
    for _ in range(2):
        whole = (await says(TWO, n=2)).json()["choices"]
        streamed = check_chat_stream((await says(TWO, n=2, stream=True)).content, num_choices=2)
        for choice in whole:
            assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == [
                "now",
                "weather",
            ]
            ids += [call["id"] for call in choice["message"]["tool_calls"]]
        for calls in streamed.calls:  # whose indices the check wants to be 0, 1, ...
            assert [call["name"] for call in calls] == ["now", "weather"]
            ids += [call["id"] for call in calls]
    assert len(set(ids)) == len(ids) == 16
    assert all(len(one) >= len("call_") + 20 for one in ids)


def turn(number: int, beside: dict[str, Any]) -> list[dict[str, Any]]:
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "weather", "arguments": json.dumps({"city": f"City{number}"})},
    }
    return [
        {"role": "assistant", **beside, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": f"result {number}"},
    ]


@pytest.mark.parametrize("nothing", ['{% if tools %}{{ "[t]" }}{% endif %}', ""])
async def test_a_history_of_calls_is_taken_with_content_null_missing_or_empty(
    nothing: str,
) -> None:
    """lmstudio-bug-tracker#261, mistral-common#324"""
    template = nothing + str(byte_assets().chat_template)
    gateway = make_gateway(assets=byte_assets(chat_template=template))
    assert gateway.engine.info is not None
    gateway.engine.info = msgspec.structs.replace(gateway.engine.info, max_model_len=4096)
    kinds: tuple[dict[str, Any], ...] = ({"content": None}, {}, {"content": ""})
    history = [{"role": "user", "content": "Three cities?"}]
    for number, beside in enumerate(kinds):
        history += turn(number, beside)
    async with in_process(gateway) as client:
        for tools in ({"tools": TOOLS}, {}):
            body = {**chat(**tools), "messages": history}
            answer = await client.post(CHAT, json=body)
            assert answer.status_code == 200, answer.text
    for submit in gateway.engine.submitted:
        prompt = bytes(one for one in submit.prompt_token_ids if one < 256).decode()
        assert all(f"result {number}" in prompt for number in range(3))
        assert "None" not in prompt
        assert all(f"City{number}" in prompt for number in range(3))
