"""Each kind of error as a client meets it: status, type, code, field and headers, one row each.

`how` makes one of them happen; the walk over all classes keeps the table whole.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from gateway.errors import GatewayError
from grammar.errors import ConstraintTooExpensive, GrammarError, UnsupportedConstraint
from grammar.spec import Gap
from runtime.messages import EngineFault, ErrorCode, Submit
from tests.gateway_harness import CHAT, Gateway, chat, error_of, in_process, make_gateway
from tests.waiting import until

JSON = {"content-type": "application/json"}
REGEX = {"structured_outputs": {"regex": "a"}}
SCHEMA = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"a": 1}}}
}
How = Callable[[Gateway, httpx2.AsyncClient], Awaitable[httpx2.Response]]


@dataclass(frozen=True, slots=True)
class Row:
    """`kinds` are the classes that this row stands for."""

    kinds: str
    status: int
    type: str
    code: str
    how: How
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def posting(path: str = CHAT, **change: Any) -> How:
    async def post(_gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.post(path, json=chat() | change)

    return post


def sending(content: Any, headers: dict[str, str] = JSON) -> How:
    async def send(_gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
        body = content() if callable(content) else content
        return await client.post(CHAT, content=body, headers=headers)

    return send


def asking(method: str, path: str) -> How:
    async def ask(_gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.request(method, path)

    return ask


def faulting(code: ErrorCode) -> How:
    async def post(gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
        gateway.engine.fault = EngineFault(code=code, message="it broke")
        return await client.post(CHAT, json=chat())

    return post


def probing(error: GrammarError, **change: Any) -> How:
    async def post(gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
        gateway.probe.error = error
        return await client.post(CHAT, json=chat(**change))

    return post


async def drip() -> AsyncIterator[bytes]:
    yield b'{"model":'
    await asyncio.Event().wait()


async def beside_another(gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
    gateway.engine.hold("queue")
    first = asyncio.create_task(client.post(CHAT, json=chat(), headers=JSON))
    await until(lambda: bool(gateway.engine.submitted))
    second = await client.post(CHAT, json=chat())
    gateway.engine.release()
    assert (await first).status_code == 200
    return second


async def with_a_key(gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
    client.headers["authorization"] = "Bearer key"
    return await beside_another(gateway, client)


async def flushing_with_a_key(_gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
    return await client.delete("/v1/cache", headers={"authorization": "Bearer key"})


async def unexpected(gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
    def broken(_submit: Submit, _choice: int) -> Sequence[int]:
        raise RuntimeError("not foreseen")

    gateway.engine.script = broken
    return await client.post(CHAT, json=chat())


async def unmet(gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
    gateway.probe.gaps = (Gap("/a", "a", "not kept"),)
    return await client.post(CHAT, json=chat(allow_checked=True, **SCHEMA))


async def violated(_gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
    return await client.post(CHAT, json=chat(**SCHEMA))


async def stopping(gateway: Gateway, client: httpx2.AsyncClient) -> httpx2.Response:
    gateway.lifecycle.drain()
    return await client.post(CHAT, json=chat())


INVALID, SERVER = "invalid_request_error", "server_error"
AFTER = {"retry-after": "1"}
ROWS = {
    "malformed JSON": Row("InvalidRequest", 400, INVALID, "invalid_json", sending(b"{x}")),
    "no object": Row("InvalidRequest", 400, INVALID, "invalid_type", sending(b"[]")),
    "wrong type": Row(
        "InvalidRequest", 400, INVALID, "invalid_type", posting(temperature="hot"), "temperature"
    ),
    "bad value": Row(
        "InvalidRequest", 400, INVALID, "decimal_above_max_value", posting(top_p=2), "top_p"
    ),
    "missing": Row(
        "InvalidRequest", 400, INVALID, "missing_required_parameter", posting(messages=None),
        "messages",
    ),
    "not supported": Row(
        "InvalidRequest", 400, INVALID, "unsupported_parameter", posting(audio={}), "audio"
    ),
    "too long": Row(
        "ContextLengthExceeded", 400, INVALID, "context_length_exceeded",
        posting(max_tokens=10**7), "messages",
    ),
    "bad schema": Row(
        "InvalidConstraint", 400, INVALID, "invalid_json_schema",
        probing(UnsupportedConstraint("no", pointer="/a"), **SCHEMA), "response_format",
    ),
    "bad regex": Row(
        "InvalidConstraint", 400, INVALID, "invalid_grammar",
        probing(UnsupportedConstraint("no"), **REGEX), "structured_outputs",
    ),
    "schema too complex": Row(
        "InvalidConstraint", 400, INVALID, "schema_too_complex",
        probing(ConstraintTooExpensive("too much"), **SCHEMA), "response_format",
    ),
    "no key": Row(
        "Unauthorized", 401, INVALID, "invalid_api_key", posting(),
        headers={"www-authenticate": "Bearer"}, settings={"api_keys": ("key",)},
    ),
    "no admin's key": Row(
        "NotAllowed", 403, INVALID, "admin_key_required", flushing_with_a_key,
        settings={"api_keys": ("key",)},
    ),
    "unknown model": Row(
        "NotFound", 404, INVALID, "model_not_found", posting(model="nope"), "model"
    ),
    "unknown path": Row("NotFound", 404, INVALID, "unknown_url", asking("GET", "/v1/nope")),
    "unknown response": Row(
        "NotFound", 404, INVALID, "response_not_found", asking("GET", "/v1/responses/resp_x"),
        "response_id",
    ),
    "wrong method": Row(
        "MethodNotAllowed", 405, INVALID, "method_not_allowed", asking("GET", CHAT),
        headers={"allow": "POST"},
    ),
    "slow upload": Row(
        "UploadTimeout", 408, INVALID, "request_timeout", sending(drip),
        headers={"connection": "close"}, settings={"request_timeout_s": 0.05},
    ),
    "large body": Row(
        "BodyTooLarge", 413, INVALID, "request_too_large", posting(user="u" * 2000),
        settings={"max_body_mb": 0.001},
    ),
    "other media type": Row(
        "UnsupportedMediaType", 415, INVALID, "unsupported_media_type", sending(b"{}", {})
    ),
    "no valid answer": Row(
        "ConstraintUnmet", 400, INVALID, "constraint_failed", unmet,
        settings={"checked_retries": 0},
    ),
    "own limit": Row(
        "RateLimited", 429, "requests", "rate_limit_exceeded", with_a_key, headers=AFTER,
        settings={"api_keys": ("key",), "max_requests_per_key": 1},
    ),
    "fault of ours": Row("ServerError", 500, SERVER, "internal_error", unexpected),
    "fault of the engine": Row(
        "ServerError", 500, SERVER, "internal_error", faulting(ErrorCode.INTERNAL)
    ),
    "answer that breaks its constraint": Row(
        "ConstraintViolated", 500, SERVER, "constraint_failed", violated
    ),
    "queue full": Row(
        "Overloaded", 503, SERVER, "server_is_overloaded", beside_another, headers=AFTER,
        settings={"max_running": 1, "max_queue": 0},
    ),
    "queued too long": Row(
        "Overloaded", 503, SERVER, "queue_timeout", faulting(ErrorCode.QUEUE_TIMEOUT),
        headers=AFTER,
    ),
    "nothing compiles": Row(
        "Overloaded", 503, SERVER, "server_is_overloaded",
        probing(GrammarError("no child"), **REGEX), headers=AFTER,
    ),
    "stopping": Row(
        "Overloaded", 503, SERVER, "server_is_overloaded", stopping, headers=AFTER
    ),
    "engine died": Row(
        "EngineDied", 503, SERVER, "engine_died", faulting(ErrorCode.ENGINE_DIED), headers=AFTER
    ),
    "too slow": Row(
        "DeadlineExceeded", 504, SERVER, "deadline_exceeded",
        faulting(ErrorCode.DEADLINE_EXCEEDED),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
async def test_error_is_told_as_the_table_says(name: str) -> None:
    row = ROWS[name]
    gateway = make_gateway(**row.settings)
    async with in_process(gateway) as client:
        response = await row.how(gateway, client)
    error = error_of(response)
    assert (response.status_code, error["type"], error["code"], error["param"]) == (
        row.status,
        row.type,
        row.code,
        row.param,
    )
    assert error["message"]
    assert "Traceback" not in response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    assert row.headers.items() <= dict(response.headers).items()
    assert ("retry-after" in response.headers) is (row.status in (429, 503))


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.how is not violated])
async def test_the_next_request_is_served(name: str) -> None:
    row = ROWS[name]
    gateway = make_gateway(**row.settings)
    async with in_process(gateway) as client:
        await row.how(gateway, client)
        assert (await client.get("/health")).status_code == 200
    assert gateway.engine.open_requests == set()


def kinds_of(base: type[GatewayError]) -> Iterator[type[GatewayError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of(kind)


def test_every_kind_of_error_has_a_row() -> None:
    assert {kind.__name__ for kind in kinds_of(GatewayError)} == {
        row.kinds for row in ROWS.values()
    }
    statuses = {kind.__name__: kind.status for kind in kinds_of(GatewayError)}
    assert all(statuses[row.kinds] == row.status for row in ROWS.values())
