"""Requests that are wrong: status, code and field of each, and the next request is unharmed."""

import json
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.conformance.target import Target

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
JSON = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Wrong:
    """A request and what is said of it; `change` is laid over a valid body."""

    change: dict[str, Any]
    code: str
    param: str | None
    path: str = CHAT
    status: int = 400


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}


WRONG_CHATS = {
    "temperature is a text": Wrong({"temperature": "hot"}, "invalid_type", "temperature"),
    "temperature is a bool": Wrong({"temperature": True}, "invalid_type", "temperature"),
    "temperature too high": Wrong({"temperature": 2.1}, "decimal_above_max_value", "temperature"),
    "top_p too high": Wrong({"top_p": 1.5}, "decimal_above_max_value", "top_p"),
    "top_k below -1": Wrong({"top_k": -2}, "integer_below_min_value", "top_k"),
    "min_p negative": Wrong({"min_p": -0.1}, "decimal_below_min_value", "min_p"),
    "n is 0": Wrong({"n": 0}, "integer_below_min_value", "n"),
    "n is huge": Wrong({"n": 129}, "integer_above_max_value", "n"),
    "n over the server's cap": Wrong({"n": 127}, "integer_above_max_value", "n"),
    "n is a bool": Wrong({"n": True}, "invalid_type", "n"),
    "max_tokens is 0": Wrong({"max_tokens": 0}, "integer_below_min_value", "max_tokens"),
    "max_tokens is a fraction": Wrong({"max_tokens": 1.5}, "invalid_type", "max_tokens"),
    "max_tokens over the context": Wrong(
        {"max_tokens": 10_000_000}, "context_length_exceeded", "messages"
    ),
    "penalty": Wrong({"presence_penalty": -2.5}, "decimal_below_min_value", "presence_penalty"),
    "repetition": Wrong({"repetition_penalty": 0}, "decimal_below_min_value", "repetition_penalty"),
    "seed over 64 bits": Wrong({"seed": 2**63}, "integer_above_max_value", "seed"),
    "stop is empty": Wrong({"stop": [""]}, "empty_string", "stop[0]"),
    "stop is a number": Wrong({"stop": 5}, "invalid_type", "stop"),
    "too many stops": Wrong({"stop": ["a"] * 65}, "array_above_max_length", "stop"),
    "top_logprobs alone": Wrong({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
    "top_logprobs too high": Wrong(
        {"logprobs": True, "top_logprobs": 21}, "integer_above_max_value", "top_logprobs"
    ),
    "logprobs is a number": Wrong({"logprobs": 1}, "invalid_type", "logprobs"),
    "bias of a word": Wrong({"logit_bias": {"abc": 5}}, "invalid_value", "logit_bias"),
    "top_k beyond 64 bits": Wrong({"top_k": 10**30}, "integer_above_max_value", "top_k"),
    "bias of -1": Wrong({"logit_bias": {"-1": 5}}, "invalid_value", "logit_bias"),
    "bias out of vocabulary": Wrong({"logit_bias": {"99999999": 5}}, "invalid_value", "logit_bias"),
    "bias too high": Wrong({"logit_bias": {"5": 101}}, "decimal_above_max_value", "logit_bias.5"),
    "stop token out of vocabulary": Wrong(
        {"stop_token_ids": [10**9]}, "invalid_value", "stop_token_ids"
    ),
    "stream is a text": Wrong({"stream": "yes"}, "invalid_type", "stream"),
    "stream options without stream": Wrong(
        {"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"
    ),
    "no messages": Wrong({"messages": []}, "empty_array", "messages"),
    "messages is null": Wrong({"messages": None}, "missing_required_parameter", "messages"),
    "messages is a text": Wrong({"messages": "hi"}, "invalid_type", "messages"),
    "message is a text": Wrong({"messages": ["hi"]}, "invalid_type", "messages[0]"),
    "unknown role": Wrong(
        {"messages": [{"role": "wizard", "content": "hi"}]}, "invalid_value", "messages[0].role"
    ),
    "message without role": Wrong(
        {"messages": [{"content": "hi"}]}, "missing_required_parameter", "messages[0].role"
    ),
    "user without content": Wrong(
        {"messages": [{"role": "user"}]}, "missing_required_parameter", "messages[0].content"
    ),
    "content is a number": Wrong(
        {"messages": [{"role": "user", "content": 5}]}, "invalid_type", "messages[0].content"
    ),
    "content is an image": Wrong(
        {
            "messages": [
                {"role": "system", "content": "x"},
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            ]
        },
        "unsupported_value",
        "messages[1].content[0].type",
    ),
    "tool result without id": Wrong(
        {"messages": [{"role": "tool", "content": "5"}]},
        "missing_required_parameter",
        "messages[0].tool_call_id",
    ),
    "model is missing": Wrong({"model": None}, "missing_required_parameter", "model"),
    "model is unknown": Wrong({"model": "nope"}, "model_not_found", "model", status=404),
    "format type": Wrong(
        {"response_format": {"type": "xml"}}, "invalid_value", "response_format.type"
    ),
    "format without schema": Wrong(
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "missing_required_parameter",
        "response_format.json_schema",
    ),
    "format with an inline schema": Wrong(
        {"response_format": {"type": "json_object", "schema": {}}},
        "unsupported_parameter",
        "response_format.schema",
    ),
    "two structured outputs": Wrong(
        {"structured_outputs": {"regex": "a", "choice": ["a"]}},
        "invalid_value",
        "structured_outputs",
    ),
    "unknown structured output": Wrong(
        {"structured_outputs": {"lark": "start: /a/"}},
        "unsupported_parameter",
        "structured_outputs.lark",
    ),
    "format and structured output": Wrong(
        {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
        "invalid_value",
        "structured_outputs",
    ),
    "constraints of two servers": Wrong({"guided_json": {}, "ebnf": "x"}, "invalid_value", "ebnf"),
    "unknown engine": Wrong(
        {"guided_json": {}, "guided_decoding_backend": "xyz"},
        "unsupported_value",
        "guided_decoding_backend",
    ),
    "chat_template": Wrong({"chat_template": "x"}, "unsupported_parameter", "chat_template"),
    "tool without a name": Wrong(
        {"tools": [{"type": "function", "function": {"description": "x"}}]},
        "missing_required_parameter",
        "tools[0].function.name",
    ),
    "tool of another kind": Wrong(
        {"tools": [{"type": "custom", "custom": {"name": "f"}}]},
        "unsupported_value",
        "tools[0].type",
    ),
    "tool required without tools": Wrong(
        {"tool_choice": "required"}, "invalid_value", "tool_choice"
    ),
    "number beyond every integer": Wrong(
        {"max_tokens": 10**308}, "integer_above_max_value", "max_tokens"
    ),
    "number below every integer": Wrong({"seed": -(10**308)}, "integer_below_min_value", "seed"),
    "number near the largest": Wrong(
        {"temperature": 1e308}, "decimal_above_max_value", "temperature"
    ),
    "bias near the largest": Wrong(
        {"logit_bias": {"5": -1e308}}, "decimal_below_min_value", "logit_bias.5"
    ),
    "token id beyond every integer": Wrong(
        {"stop_token_ids": [10**308]}, "invalid_value", "stop_token_ids"
    ),
    "integer as a fraction": Wrong({"n": 1.0}, "invalid_type", "n"),
    "audio wanted": Wrong({"modalities": ["text", "audio"]}, "unsupported_value", "modalities"),
}

WRONG_COMPLETIONS = {
    "prompt is a number": Wrong({"prompt": 5}, "invalid_type", "prompt"),
    "prompt is empty": Wrong({"prompt": []}, "empty_array", "prompt"),
    "prompt is mixed": Wrong({"prompt": ["a", 5]}, "invalid_type", "prompt[1]"),
    "token is a bool": Wrong({"prompt": [1, True]}, "invalid_type", "prompt[1]"),
    "token is negative": Wrong(
        {"prompt": [[1], [2, -1]]}, "integer_below_min_value", "prompt[1][1]"
    ),
    "token out of vocabulary": Wrong({"prompt": [10**9]}, "invalid_value", "prompt"),
    "prompt too long": Wrong({"prompt": [5] * 100_000}, "context_length_exceeded", "prompt"),
    "echo is a number": Wrong({"echo": 1}, "invalid_type", "echo"),
    "suffix": Wrong({"suffix": "x"}, "unsupported_parameter", "suffix"),
    "best_of": Wrong({"best_of": 3, "n": 2}, "unsupported_parameter", "best_of"),
    "logprobs too high": Wrong({"logprobs": 6}, "integer_above_max_value", "logprobs"),
    "max_tokens is 0": Wrong({"max_tokens": 0}, "integer_below_min_value", "max_tokens"),
    "too many choices": Wrong({"prompt": ["a"] * 100, "n": 2}, "array_above_max_length", "prompt"),
}

# Bodies that are no valid JSON object at all.
NO_OBJECTS = {
    "not JSON": b'{"model": "m", x}',
    "cut short": b'{"model": ',
    "empty": b"",
    "a list": b"[1]",
    "not UTF-8": b'{"model": "\xff"}',
    "a lone surrogate": b'{"model": "\\ud83d"}',
    "NaN": b'{"temperature": NaN}',
    "an infinite number": b'{"temperature": 1e999}',
    "Infinity": b'{"temperature": -Infinity}',
    "null": b"null",
    "true": b"true",
    "a text": b'"model"',
    "a number": b"1e308",
    "an empty list": b"[]",
    "something after the end": b'{"model": "m"} {}',
    "a comma too many": b'{"model": "m",}',
    "single quotes": b"{'model': 'm'}",
    "a comment": b'{"model": "m" /* the model */}',
    "UTF-16": '{"model": "m"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"model": "m"}',
    "a raw line break in a text": b'{"model": "a\nb"}',
    "an overlong encoding": b'{"model": "\xc0\xaf"}',
    "an encoded surrogate": b'{"model": "\xed\xa0\x80"}',
    "a key twice": b'{"model": "m", "input": "a", "prompt": "a", "model": "m"}',
    "a key twice, spelled differently": b'{"model": "m", "\\u006dodel": "m"}',
    "a key twice inside": b'{"model": "m", "tools": [{"a": {"b": 1, "b": 2}}]}',
    "a number of 5000 digits": b'{"seed": 1' + b"0" * 5000 + b"}",
    "a hundred thousand keys": b"{" + b",".join(b'"%d":1' % n for n in range(100_001)) + b"}",
    "nested without end": b"[" * 200_000,
    "an object nested too deeply": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
}


async def check(target: Target, path: str, wrong: Wrong, valid: dict[str, Any]) -> None:
    async with target.http() as client:
        response = await client.post(path, json={**valid, **wrong.change})
        check_error(response, status=wrong.status, code=wrong.code, param=wrong.param)
        assert (await client.post(path, json=valid)).status_code == 200


def check_error(response: httpx2.Response, *, status: int, code: str, param: str | None) -> None:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (response.status_code, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error"
    assert response.headers["x-request-id"]


@pytest.mark.parametrize("name", WRONG_CHATS)
async def test_wrong_chat_is_refused(target: Target, name: str) -> None:
    await check(target, CHAT, WRONG_CHATS[name], target.chat())


@pytest.mark.parametrize("name", WRONG_COMPLETIONS)
async def test_wrong_completion_is_refused(target: Target, name: str) -> None:
    await check(target, COMPLETIONS, WRONG_COMPLETIONS[name], target.completion())


@pytest.mark.parametrize("name", NO_OBJECTS)
async def test_body_that_is_no_object_is_refused(target: Target, name: str) -> None:
    async with target.http() as client:
        response = await client.post(CHAT, content=NO_OBJECTS[name], headers=JSON)
        assert response.status_code == 400
        assert response.json()["error"]["code"] in ("invalid_json", "invalid_type")
        assert (await client.post(CHAT, json=target.chat())).status_code == 200


async def test_deep_schema_is_refused_not_a_crash(target: Target) -> None:
    deep: Any = {"type": "string"}
    for _ in range(400):
        deep = {"type": "object", "properties": {"a": deep}}
    async with target.http() as client:
        response = await client.post(CHAT, json=target.chat(response_format=schema(deep)))
        assert response.status_code in (200, 400)
        assert (await client.post(CHAT, json=target.chat())).status_code == 200


async def test_ten_megabytes_are_refused_and_the_next_request_is_served(target: Target) -> None:
    body = json.dumps(target.chat("x" * 10_000_000)).encode()
    async with target.http() as client:
        response = await client.post(CHAT, content=body, headers=JSON)
        check_error(response, status=413, code="request_too_large", param=None)
        assert (await client.post(CHAT, json=target.chat())).status_code == 200


async def test_large_body_without_announced_length_is_refused(target: Target) -> None:
    async def chunks() -> Any:
        for _ in range(160):
            yield b" " * 65_536

    async with target.http() as client:
        response = await client.post(CHAT, content=chunks(), headers=JSON)
        check_error(response, status=413, code="request_too_large", param=None)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_other_content_types_are_refused(target: Target, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    content = json.dumps(target.chat()).encode()
    async with target.http() as client:
        response = await client.post(CHAT, content=content, headers=headers)
    check_error(response, status=415, code="unsupported_media_type", param=None)


async def test_unknown_path_and_wrong_method_have_the_error_shape(target: Target) -> None:
    async with target.http() as client:
        unknown = await client.get("/v1/assistants")
        wrong = await client.get(CHAT)
    check_error(unknown, status=404, code="unknown_url", param=None)
    check_error(wrong, status=405, code="method_not_allowed", param=None)
    assert wrong.headers["allow"] == "POST"
