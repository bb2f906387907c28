"""The closed loop, against a server without a model."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.bench.client import client_session, run_load
from tests.bench.measure import make_row
from tests.bench.workloads import Body, make_bodies
from tests.fake_openai_server import make_app

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class InFlight:
    """Counts the requests that are being answered; none is before `num_awaited` are there."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.num_awaited = 1
        self._are_there = asyncio.Event()

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == self.num_awaited:
            self._are_there.set()
        await self._are_there.wait()
        await asyncio.sleep(0.01)  # one more than there should be would come in now
        try:
            return await handler(request)
        finally:
            self.now -= 1


@pytest.fixture
def in_flight() -> InFlight:
    return InFlight()


@pytest.fixture
async def base_url(in_flight: InFlight) -> AsyncIterator[str]:
    app = make_app()
    app.middlewares.append(in_flight.count)
    async with TestServer(app) as server:
        yield str(server.make_url("/v1"))


def bodies(*contents: str) -> list[Body]:
    (body,) = make_bodies("unique", "fake", num_requests=1, seed="1")
    return [
        body | {"messages": [{"role": "user", "content": text}], "max_tokens": 3}
        for text in contents
    ]


async def test_each_client_has_one_request_at_a_time(base_url: str, in_flight: InFlight) -> None:
    in_flight.num_awaited = 3
    load = await run_load(base_url, bodies(*"abcdefg"), num_clients=3)
    assert in_flight.most == 3
    assert make_row("fake", "unique", 3, load).output_tokens == 7 * 3


async def test_a_session_with_a_key_sends_it_and_one_without_sends_none() -> None:
    async def show(request: web.Request) -> web.Response:
        return web.Response(text=request.headers.get("Authorization", "none"))

    app = web.Application()
    app.router.add_get("/", show)
    seen = []
    async with TestServer(app) as server:
        for api_key in ("secret", None):
            async with (
                client_session(api_key) as session,
                session.get(server.make_url("/")) as reply,
            ):
                seen.append(await reply.text())
    assert seen == ["Bearer secret", "none"]


async def test_failures_are_counted_with_the_first_reason_and_the_rest_is_kept(
    base_url: str,
) -> None:
    load = await run_load(base_url, bodies("a", "fail", "b", "break"), num_clients=1)
    row = make_row("fake", "unique", 1, load)
    assert (row.num_requests, row.num_failed) == (4, 2)
    assert row.first_failure is not None
    assert "status 500" in row.first_failure
    assert row.output_tokens == 2 * 3
