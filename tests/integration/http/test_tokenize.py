"""POST /tokenize and /detokenize in the shapes of vLLM and of llama.cpp."""

import asyncio
import threading
from typing import Any

import httpx2
import pytest

from gateway import prompt_encoding
from gateway.parameter_table import PARAMETERS, Action, Endpoint
from gateway.tokenizer import Tokenizer
from tests.byte_tokenizer import END_OF_TEXT, IM_END, IM_START, VOCAB_SIZE, byte_assets
from tests.gateway_harness import CHAT, chat, error_of, in_process, make_gateway
from tests.waiting import until

MESSAGES = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
# A body for each implemented row of both endpoints.
BODIES: dict[str, dict[str, Any]] = {
    "model": {"prompt": "hi", "model": "tiny"},
    "prompt": {"prompt": "hi"},
    "content": {"content": "hi"},
    "messages": {"messages": MESSAGES},
    "tools": {"messages": MESSAGES, "tools": [TOOL]},
    "tool_choice": {"messages": MESSAGES, "tools": [TOOL], "tool_choice": "none"},
    "parallel_tool_calls": {"messages": MESSAGES, "parallel_tool_calls": False},
    "reasoning_effort": {"messages": MESSAGES, "reasoning_effort": "low"},
    "chat_template_kwargs": {"messages": MESSAGES, "chat_template_kwargs": {"x": 1}},
    "add_generation_prompt": {"messages": MESSAGES, "add_generation_prompt": False},
    "continue_final_message": {"messages": MESSAGES, "continue_final_message": True},
    "add_special_tokens": {"prompt": "hi", "add_special_tokens": False},
    "add_special": {"content": "hi", "add_special": True},
    "return_token_strs": {"prompt": "hi", "return_token_strs": True},
}


async def post(path: str, body: Any, **settings: Any) -> httpx2.Response:
    async with in_process(make_gateway(**settings)) as client:
        return await client.post(path, json=body)


async def tokens_of(body: Any, **settings: Any) -> list[int]:
    response = await post("/tokenize", body, **settings)
    assert response.status_code == 200, response.text
    tokens: list[int] = response.json()["tokens"]
    return tokens


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
async def test_a_text_is_counted_and_its_tokens_spelled_as_the_vocabulary_does(path: str) -> None:
    body = {"model": "tiny", "prompt": "hello \u00e9", "return_token_strs": True}
    assert (await post(path, body)).json() == {
        "count": 4,
        "max_model_len": 128,
        "tokens": [262, 32, 0xC3, 0xA9],
        "token_strs": ["hello", "\u0120", "\u00c3", "\u00a9"],
    }


async def test_strings_come_only_when_asked_for() -> None:
    assert (await post("/tokenize", {"prompt": "hi"})).json()["token_strs"] is None


@pytest.mark.parametrize("options", [{}, {"add_generation_prompt": False}])
async def test_a_chat_has_the_tokens_that_it_would_be_answered_with(
    options: dict[str, Any],
) -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        tokens = (await client.post("/tokenize", json={"messages": MESSAGES, **options})).json()
        answered = await client.post(CHAT, json=chat(**options))
    assert answered.status_code == 200
    (submit,) = gateway.engine.submitted
    assert tokens["tokens"] == list(submit.prompt_token_ids)
    assert tokens["count"] == answered.json()["usage"]["prompt_tokens"]
    assert tokens["tokens"].count(IM_START) == (1 if options else 2)


async def test_a_document_begins_with_its_token_unless_told_not_to() -> None:
    assets = byte_assets(add_bos=True)
    hi = list(b"hi")
    assert await tokens_of({"prompt": "hi"}, assets=assets) == [END_OF_TEXT, *hi]
    without = {"prompt": "hi", "add_special_tokens": False}
    assert await tokens_of(without, assets=assets) == hi
    assert await tokens_of({"content": "hi"}, assets=assets) == hi
    with_special = {"content": "hi", "add_special": True}
    assert await tokens_of(with_special, assets=assets) == [END_OF_TEXT, *hi]
    chat_tokens = await tokens_of({"messages": MESSAGES}, assets=assets)
    assert chat_tokens[0] == IM_START


async def test_the_empty_text_has_no_tokens() -> None:
    assert await tokens_of({"prompt": ""}) == []


async def test_a_text_beyond_the_context_is_counted_all_the_same() -> None:
    response = await post("/tokenize", {"prompt": "x" * 5000})
    assert (response.json()["count"], response.json()["max_model_len"]) == (5000, 128)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_required_parameter", "prompt"),
        ({"prompt": None}, "missing_required_parameter", "prompt"),
        ({"prompt": "a", "content": "a"}, "invalid_value", "content"),
        ({"prompt": "a", "messages": MESSAGES}, "invalid_value", "messages"),
        ({"messages": []}, "empty_array", "messages"),
        ({"messages": [{"role": "user"}]}, "missing_required_parameter", "messages[0].content"),
        ({"prompt": 5}, "invalid_type", "prompt"),
        ({"prompt": ["a"]}, "invalid_type", "prompt"),
        ({"content": [1, "a"]}, "invalid_type", "content"),
        ({"prompt": "a", "return_token_strs": 1}, "invalid_type", "return_token_strs"),
        ({"prompt": "a", "with_pieces": True}, "unsupported_parameter", "with_pieces"),
        ({"prompt": "a", "chat_template": "x"}, "unsupported_parameter", "chat_template"),
        (
            {"messages": MESSAGES, "chat_template_kwargs": {"chat_template": "x"}},
            "invalid_value",
            "chat_template_kwargs",
        ),
        (
            {
                "messages": MESSAGES,
                "add_generation_prompt": True,
                "continue_final_message": True,
            },
            "invalid_value",
            "continue_final_message",
        ),
        ({"prompt": "a" * 1_000_001}, "string_above_max_length", "prompt"),
        (
            {"messages": [{"role": "user", "content": "a" * 1_000_001}]},
            "string_above_max_length",
            "messages",
        ),
    ],
)
async def test_what_is_wrong_is_named(body: dict[str, Any], code: str, param: str) -> None:
    response = await post("/tokenize", body)
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_unknown_model_is_a_404(path: str) -> None:
    response = await post(path, {"model": "nope", "prompt": "a", "tokens": [1]})
    assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("path", ["/detokenize", "/v1/detokenize"])
async def test_tokens_become_the_text_they_came_from(path: str) -> None:
    text = "<|im_start|>hello \u00e9 \U0001f30d<|im_end|>"
    response = await post(path, {"tokens": await tokens_of({"prompt": text})})
    assert response.json() == {"prompt": text, "content": text}


async def test_halves_of_characters_and_unknown_spare_ids_do_no_harm() -> None:
    response = await post("/detokenize", {"tokens": [104, 0xC3, 105, IM_END, VOCAB_SIZE - 1]})
    assert response.json()["prompt"] == "h\ufffdi<|im_end|>"
    assert (await post("/detokenize", {"tokens": []})).json()["prompt"] == ""


@pytest.mark.parametrize(
    ("tokens", "code", "param"),
    [
        ([VOCAB_SIZE], "invalid_value", "tokens"),
        ([104, -1], "invalid_value", "tokens"),
        ([10**30], "invalid_value", "tokens"),
        ([True], "invalid_type", "tokens[0]"),
        ([1.0], "invalid_type", "tokens[0]"),
        ("hi", "invalid_type", "tokens"),
        (None, "missing_required_parameter", "tokens"),
    ],
)
async def test_what_is_no_token_is_named(tokens: Any, code: str, param: str) -> None:
    response = await post("/detokenize", {"tokens": tokens})
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)


@pytest.mark.parametrize(
    "row",
    [row for row in PARAMETERS if Endpoint.TOKENIZE in row.endpoints],
    ids=lambda row: row.name,
)
async def test_each_row_of_the_table_does_what_it_says(row: Any) -> None:
    if row.action is Action.IMPLEMENTED:
        response = await post("/tokenize", BODIES[row.name])
        assert response.status_code == 200, response.text
        assert "x-radixgate-ignored" not in response.headers
        return
    response = await post("/tokenize", {"prompt": "hi", row.name: "some"})
    assert error_of(response)["param"] == row.name
    for harmless in row.harmless:
        assert (await post("/tokenize", {"prompt": "hi", row.name: harmless})).status_code == 200


async def test_names_without_effect_are_told() -> None:
    response = await post("/tokenize", {"prompt": "hi", "zebra": 1})
    assert response.headers["x-radixgate-ignored"] == "zebra"
    refused = await post("/tokenize", {"prompt": "hi", "zebra": 1}, strict_params=True)
    assert error_of(refused)["code"] == "unknown_parameter"


@pytest.mark.parametrize(("path", "method"), [("/tokenize", "encode"), ("/detokenize", "decode")])
async def test_long_ones_are_done_beside_the_event_loop(
    path: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    plain = getattr(Tokenizer, method)

    def recording(self: Tokenizer, *args: Any, **options: Any) -> Any:
        threads.append(threading.current_thread())
        return plain(self, *args, **options)

    gateway = make_gateway()
    monkeypatch.setattr(Tokenizer, method, recording)
    monkeypatch.setattr(prompt_encoding, "MAX_INLINE_TOKENS", 1000)
    async with in_process(gateway) as client:
        for size in (10, 60_000):
            body = {"prompt": "x" * size, "tokens": [120] * size}
            assert (await client.post(path, json=body)).status_code == 200
    assert threads[0] is threading.current_thread()
    assert threads[1] is not threading.current_thread()


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_counting_takes_a_place_among_the_accepted_requests(path: str) -> None:
    gateway = make_gateway(max_running=1, max_queue=0)
    gateway.engine.hold("queue")
    async with in_process(gateway) as client:
        running = asyncio.create_task(client.post(CHAT, json=chat()))
        await until(lambda: bool(gateway.engine.submitted))
        refused = await client.post(path, json={"prompt": "a", "tokens": [1]})
        gateway.engine.release()
        assert (await running).status_code == 200
        assert (await client.post(path, json={"prompt": "a", "tokens": [1]})).status_code == 200
    assert (refused.status_code, error_of(refused)["code"]) == (503, "server_is_overloaded")
    assert int(refused.headers["retry-after"]) >= 1


async def test_while_the_model_is_loaded_nothing_is_counted() -> None:
    gateway = make_gateway()
    gateway.engine.info = None
    async with in_process(gateway) as client:
        response = await client.post("/tokenize", json={"prompt": "a"})
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize"])
async def test_a_key_is_needed(path: str) -> None:
    response = await post(path, {"prompt": "a", "tokens": [1]}, api_keys=("key",))
    assert (response.status_code, error_of(response)["code"]) == (401, "invalid_api_key")
