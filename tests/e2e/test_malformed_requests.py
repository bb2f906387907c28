"""Wrong requests to a real server: each is refused as it should be, and none harms the next."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from tests.conformance.malformed_bodies import (
    CHAT,
    COMPLETIONS,
    JSON,
    NO_OBJECTS,
    WRONG_CHATS,
    WRONG_COMPLETIONS,
    Wrong,
    check_error,
    schema,
)
from tests.conformance.target import Target
from tests.e2e.server_process import greedy_text

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

FORMAT = "response_format"
# What only a real tokenizer and real grammar engines can refuse.
WRONG_CONSTRAINTS = {
    "regex that repeats a repetition": Wrong(
        {"structured_outputs": {"regex": "foo**"}}, "invalid_grammar", "structured_outputs"
    ),
    "regex with an open group": Wrong(
        {"structured_outputs": {"regex": "(a|b"}}, "invalid_grammar", "structured_outputs"
    ),
    "regex with look-ahead": Wrong(
        {"structured_outputs": {"regex": "(?=a)b"}}, "invalid_grammar", "structured_outputs"
    ),
    "type that does not exist": Wrong(
        {FORMAT: schema({"type": "banana"})}, "invalid_json_schema", FORMAT
    ),
    "reference to nothing": Wrong(
        {FORMAT: schema({"$ref": "#/nope"})}, "invalid_json_schema", FORMAT
    ),
    "keyword that is not enforced": Wrong(
        {FORMAT: schema({"type": "array", "items": {"multipleOf": 0.01}})},
        "invalid_json_schema",
        FORMAT,
    ),
    "schema that nothing fits": Wrong(
        {FORMAT: schema({"enum": []})}, "invalid_json_schema", FORMAT
    ),
    "structured_outputs with a bad schema": Wrong(
        {"structured_outputs": {"json": {"type": "banana"}}},
        "invalid_json_schema",
        "structured_outputs",
    ),
    "choice of nothing": Wrong(
        {"structured_outputs": {"choice": []}}, "empty_array", "structured_outputs.choice"
    ),
}
WRONG_LENGTHS = {
    "chat longer than the context": Wrong(
        {"messages": [{"role": "user", "content": "word " * 40_000}]},
        "context_length_exceeded",
        "messages",
    ),
    "stream longer than the context": Wrong(
        {"messages": [{"role": "user", "content": "word " * 40_000}], "stream": True},
        "context_length_exceeded",
        "messages",
    ),
}
ALL_WRONG_CHATS = {**WRONG_CHATS, **WRONG_CONSTRAINTS, **WRONG_LENGTHS}


@pytest.fixture(scope="module")
def target(tiny_server: Target) -> Target:
    return tiny_server


@pytest.fixture(scope="module")
def usual_text(target: Target) -> str:
    """What the model says to the probe before anything was wrong."""
    return asyncio.run(greedy_text(target))


async def post_wrong(
    target: Target, path: str, wrong: Wrong, *, valid: dict[str, Any]
) -> httpx2.Response:
    async with target.http() as client:
        return await client.post(path, json={**valid, **wrong.change})


@pytest.mark.parametrize("name", ALL_WRONG_CHATS)
async def test_wrong_chat_is_refused_and_harms_nothing(
    target: Target, name: str, usual_text: str
) -> None:
    wrong = ALL_WRONG_CHATS[name]
    response = await post_wrong(target, CHAT, wrong, valid=target.chat())
    check_error(response, status=wrong.status, code=wrong.code, param=wrong.param)
    assert await greedy_text(target) == usual_text


@pytest.mark.parametrize("name", WRONG_COMPLETIONS)
async def test_wrong_completion_is_refused_and_harms_nothing(
    target: Target, name: str, usual_text: str
) -> None:
    wrong = WRONG_COMPLETIONS[name]
    response = await post_wrong(target, COMPLETIONS, wrong, valid=target.completion())
    check_error(response, status=wrong.status, code=wrong.code, param=wrong.param)
    assert await greedy_text(target) == usual_text


@pytest.mark.parametrize("name", NO_OBJECTS)
async def test_body_that_is_no_object_is_refused_and_harms_nothing(
    target: Target, name: str, usual_text: str
) -> None:
    async with target.http() as client:
        response = await client.post(CHAT, content=NO_OBJECTS[name], headers=JSON)
    code = response.json()["error"]["code"]
    assert code in ("invalid_json", "invalid_type")
    check_error(response, status=400, code=code, param=None)
    assert await greedy_text(target) == usual_text


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"type": "array", "items": {"multipleOf": 0.01}}, "/items/multipleOf"),
        ({"properties": {"a/b": {"uniqueItems": True}}}, "/properties/a~1b/uniqueItems"),
        ({"$defs": {"x": {"type": "banana"}}, "$ref": "#/$defs/x"}, "/$defs/x/type"),
    ],
)
async def test_refused_keyword_is_named_by_its_pointer(
    target: Target, value: dict[str, Any], pointer: str
) -> None:
    async with target.http() as client:
        response = await client.post(CHAT, json=target.chat(response_format=schema(value)))
    check_error(response, status=400, code="invalid_json_schema", param=FORMAT)
    assert pointer in response.json()["error"]["message"]


async def test_context_length_message_names_both_counts(target: Target) -> None:
    async with target.http() as client:
        (model,) = (await client.get("/v1/models")).json()["data"]
        response = await client.post(COMPLETIONS, json=target.completion([5] * 40_000))
    message = response.json()["error"]["message"]
    assert f"maximum context length is {model['max_model_len']} tokens" in message
    assert "40000" in message


async def test_ten_megabytes_are_refused_and_harm_nothing(target: Target, usual_text: str) -> None:
    body = json.dumps(target.chat("x" * 10_000_000)).encode()
    async with target.http() as client:
        response = await client.post(CHAT, content=body, headers=JSON)
    check_error(response, status=413, code="request_too_large", param=None)
    assert await greedy_text(target) == usual_text


@pytest.mark.parametrize(
    "field", ["content", "stop", "structured_outputs", "response_format", "cache_salt"]
)
async def test_lone_surrogates_are_refused_and_harm_nothing(
    target: Target, field: str, usual_text: str
) -> None:
    half = "\ud83d"
    places: dict[str, Any] = {
        "content": {"messages": [{"role": "user", "content": half}]},
        "stop": {"stop": [half]},
        "structured_outputs": {"structured_outputs": {"choice": [half]}},
        "response_format": {"response_format": schema({"const": half})},
        "cache_salt": {"cache_salt": half},
    }
    body = json.dumps({**target.chat(), **places[field]}).encode()
    async with target.http() as client:
        response = await client.post(CHAT, content=body, headers=JSON)
    check_error(response, status=400, code="invalid_json", param=None)
    assert await greedy_text(target) == usual_text


async def test_deep_schema_does_not_reach_the_engine(target: Target, usual_text: str) -> None:
    deep = '{"items": ' * 30_000 + "{}" + "}" * 30_000
    shell = json.dumps(target.chat(response_format=schema("DEEP")))
    text = shell.replace('"DEEP"', deep)
    async with target.http() as client:
        response = await client.post(CHAT, content=text.encode(), headers=JSON)
    assert response.status_code == 400
    assert await greedy_text(target) == usual_text


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_other_content_types_are_refused(target: Target, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    async with target.http() as client:
        content = json.dumps(target.chat()).encode()
        response = await client.post(CHAT, content=content, headers=headers)
    check_error(response, status=415, code="unsupported_media_type", param=None)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/assistants", 404, "unknown_url"),
        ("POST", "/", 404, "unknown_url"),
        ("GET", "/v1/models/nope", 404, "model_not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
    ],
)
async def test_unknown_paths_and_methods_have_the_error_shape(
    target: Target, method: str, path: str, status: int, code: str
) -> None:
    async with target.http() as client:
        response = await client.request(method, path)
    param = "model" if code == "model_not_found" else None
    check_error(response, status=status, code=code, param=param)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "half-closed"])
async def test_body_that_is_cut_off_harms_nothing(
    target: Target, is_closed: bool, usual_text: str
) -> None:
    url = httpx2.URL(target.base_url)
    assert url.port is not None
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(head.encode() + b'content-length: 1000\r\n\r\n{"model": "tiny", "mess')
    await writer.drain()
    if not is_closed:
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await writer.wait_closed()
    assert await greedy_text(target) == usual_text


async def test_a_bad_neighbour_leaves_running_streams_alone(
    target: Target, usual_text: str
) -> None:
    """Refusals and broken constraints run beside good requests, not before them."""
    wrong = [ALL_WRONG_CHATS[name] for name in (*WRONG_CONSTRAINTS, "bias out of vocabulary")]
    texts, refusals = await asyncio.gather(
        asyncio.gather(*(greedy_text(target) for _ in wrong)),
        asyncio.gather(*(post_wrong(target, CHAT, w, valid=target.chat()) for w in wrong)),
    )
    assert set(texts) == {usual_text}
    assert {response.status_code for response in refusals} == {400}
