"""What holds of each route that takes a body: none of them is read with less care than the others.

The routes are those of the server's own table, so that a new one is held to this as it is added.
"""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.api_operations import OPERATIONS
from tests.conformance.malformed_bodies import CHAT, JSON, NO_OBJECTS, check_error
from tests.conformance.target import Target

PATHS = [op.path for op in OPERATIONS if op.request is not None]
HALF = "\ud83d"
TEXTS_WITH_HALVES: dict[str, dict[str, Any]] = {
    "content": {"messages": [{"role": "user", "content": HALF}]},
    "a part": {"messages": [{"role": "user", "content": [{"type": "text", "text": HALF}]}]},
    "a message's name": {"messages": [{"role": "user", "content": "a", "name": HALF}]},
    "arguments": {
        "messages": [
            {
                "role": "assistant",
                "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": HALF}}],
            }
        ]
    },
    "a tool's name": {"tools": [{"type": "function", "function": {"name": HALF}}]},
    "stop": {"stop": [HALF]},
    "a schema": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": {"const": HALF}},
        }
    },
    "a key of a schema": {"guided_json": {"properties": {HALF: {}}}},
    "metadata": {"metadata": {"a": HALF}},
    "a key of metadata": {"metadata": {HALF: "a"}},
    "user": {"user": HALF},
    "prompt_cache_key": {"prompt_cache_key": HALF},
    "model": {"model": HALF},
    "prompt": {"prompt": HALF},
    "input": {"input": [HALF]},
    "an unknown name": {HALF: 1},
}


def body_of(target: Target, **parameters: Any) -> dict[str, Any]:
    """Something for every route; what one does not know has no effect there."""
    return target.chat(**parameters)


@pytest.mark.parametrize("path", PATHS)
async def test_no_route_takes_a_body_that_is_no_object(target: Target, path: str) -> None:
    async with target.http() as client:
        for name, body in NO_OBJECTS.items():
            response = await client.post(path, content=body, headers=JSON)
            error = response.json()["error"]
            assert (response.status_code, error["param"]) == (400, None), name
            assert error["code"] in ("invalid_json", "invalid_type"), name
            assert response.headers["content-type"] == "application/json"
            assert len(response.content) < 500, name
        assert (await client.post(CHAT, json=target.chat())).status_code == 200


@pytest.mark.parametrize("path", PATHS)
async def test_no_route_takes_half_a_character_anywhere(target: Target, path: str) -> None:
    async with target.http() as client:
        for name, change in TEXTS_WITH_HALVES.items():
            body = json.dumps({**body_of(target), **change}).encode()
            response = await client.post(path, content=body, headers=JSON)
            assert (response.status_code, response.json()["error"]["code"]) == (
                400,
                "invalid_json",
            ), name


@pytest.mark.parametrize("path", PATHS)
async def test_no_route_takes_another_media_type_or_a_compressed_body(
    target: Target, path: str
) -> None:
    body = json.dumps(body_of(target)).encode()
    kinds: list[dict[str, str]] = [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/jsonl"},
        {"content-type": "json"},
        {**JSON, "content-encoding": "gzip"},
        {**JSON, "content-encoding": "br"},
    ]
    async with target.http() as client:
        for headers in kinds:
            content = gzip.compress(body) if "content-encoding" in headers else body
            response = await client.post(path, content=content, headers=headers)
            check_error(response, status=415, code="unsupported_media_type", param=None)


@pytest.mark.parametrize("path", PATHS)
async def test_no_route_takes_ten_megabytes_announced_or_not(target: Target, path: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(160):
            yield b" " * 65_536

    async with target.http() as client:
        for content in (b" " * 10_000_000, chunks()):
            response = await client.post(path, content=content, headers=JSON)
            check_error(response, status=413, code="request_too_large", param=None)


@pytest.mark.parametrize("path", PATHS)
async def test_every_route_takes_a_body_in_chunks(target: Target, path: str) -> None:
    """What it says of the whole is what it says of one that came at once."""

    async def chunks(body: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(body), 7):
            yield body[start : start + 7]

    body = json.dumps({"model": target.model, "temperature": "hot", "dimensions": "x"}).encode()
    async with target.http() as client:
        whole = await client.post(path, content=body, headers=JSON)
        pieces = await client.post(path, content=chunks(body), headers=JSON)
    assert whole.status_code == 400
    assert (pieces.status_code, pieces.json()) == (whole.status_code, whole.json())


@pytest.mark.parametrize("path", PATHS)
async def test_every_route_needs_its_model_to_exist(target: Target, path: str) -> None:
    body = body_of(target) | {"model": "nope", "prompt": "a", "input": "a", "tokens": [1]}
    if "tokenize" not in path:
        body |= {"content": "a"}
    else:
        del body["messages"]
    if path.startswith("/v1/responses"):
        del body["messages"], body["max_tokens"], body["prompt"]
    async with target.http() as client:
        response = await client.post(path, json=body)
    check_error(response, status=404, code="model_not_found", param="model")
    assert target.model in response.json()["error"]["message"]


@pytest.mark.parametrize("path", [*PATHS, "/v1/models", "/health", "/nope"])
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_request_keeps_its_id_whatever_is_said_of_it(
    target: Target, path: str, method: str
) -> None:
    async with target.http() as client:
        named = await client.request(method, path, headers={"x-request-id": "mine-1:a.b_c"})
        unnamed = await client.request(method, path)
        bad = await client.request(method, path, headers={"x-request-id": 'a b"c'})
        long = await client.request(method, path, headers={"x-request-id": "x" * 129})
    assert named.headers.get_list("x-request-id") == ["mine-1:a.b_c"]
    given = [response.headers["x-request-id"] for response in (unnamed, bad, long)]
    assert all(one.startswith("req_") for one in given)
    assert len(set(given)) == 3


@pytest.mark.parametrize("path", PATHS)
async def test_every_route_is_traced_whatever_is_said(target: Target, path: str) -> None:
    async with target.http() as client:
        response = await client.post(path, json={})
    assert response.status_code == 400
    assert response.headers["traceparent"].startswith("00-")
