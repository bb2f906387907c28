"""What a chat is to the model, shown without answering it."""

from typing import Any

import msgspec
import pytest

from tests.fake_token_engine import INFO
from tests.gateway_harness import CHAT, chat, error_of, in_process, make_gateway

PATHS = [CHAT + "/render", "/apply-template"]


@pytest.mark.parametrize("path", PATHS)
async def test_text_and_tokens_are_those_of_the_chat_and_nothing_is_run(path: str) -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        rendered = (await client.post(path, json=chat(stream=True, n=2))).json()
        assert gateway.engine.submitted == []
        await client.post(CHAT, json=chat())
    assert rendered["prompt"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert rendered["prompt_token_ids"] == list(gateway.engine.submitted[0].prompt_token_ids)
    assert rendered.keys() == {"prompt", "prompt_token_ids"}


@pytest.mark.parametrize("tool_choice", ["auto", "none"])
async def test_tools_are_shown_as_they_are_to_the_model(tool_choice: str) -> None:
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    body = chat(tools=[tool], tool_choice=tool_choice)
    gateway = make_gateway()
    gateway.engine.info = msgspec.structs.replace(INFO, max_model_len=4096)
    async with in_process(gateway) as client:
        rendered = (await client.post("/apply-template", json=body)).json()
        del body["model"]
        tokenized = (await client.post("/tokenize", json=body)).json()
    assert ("look_up" in rendered["prompt"]) is (tool_choice == "auto")
    assert rendered["prompt_token_ids"] == tokenized["tokens"]


async def test_a_prompt_that_is_cut_has_the_tokens_that_are_left() -> None:
    async with in_process(make_gateway()) as client:
        response = await client.post("/apply-template", json=chat(truncate_prompt_tokens=5))
    assert len(response.json()["prompt_token_ids"]) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": []},
        {"temperature": 3},
        {"max_tokens": 1000},
        {"chat_template": "x"},
        {"n": 100},
        {"stop_token_ids": [10**6]},
        {"stream_options": {}},
        {"model": "nope"},
        {"messages": [{"role": "user", "content": "x" * 500}]},
    ],
)
async def test_it_is_refused_for_what_the_chat_would_be_refused_for(wrong: dict[str, Any]) -> None:
    async with in_process(make_gateway()) as client:
        refused = await client.post(CHAT, json=chat() | wrong)
        for path in PATHS:
            response = await client.post(path, json=chat() | wrong)
            assert response.status_code == refused.status_code
            assert error_of(response) == error_of(refused)


async def test_a_constraint_is_tried_out_and_names_without_effect_are_told() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        body = chat(structured_outputs={"regex": "a"}, zebra=1)
        response = await client.post("/apply-template", json=body)
    assert response.status_code == 200
    assert len(gateway.probe.checked) == 1
    assert response.headers["x-radixgate-ignored"] == "zebra"


async def test_a_key_is_needed() -> None:
    async with in_process(make_gateway(api_keys=("key",))) as client:
        assert (await client.post(PATHS[0], json=chat())).status_code == 401
