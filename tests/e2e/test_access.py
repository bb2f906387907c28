"""API keys, the tenants behind them, cache salts, and browsers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.malformed_bodies import check_error
from tests.conformance.target import Target
from tests.e2e.conftest import EXACT
from tests.e2e.server_process import serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
KEY_A, KEY_B = "key-a", "key-b"
ORIGIN = "https://app.example"
PREFLIGHT = {
    "origin": ORIGIN,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


@pytest.fixture(scope="module")
def guarded(tiny_model: Path) -> Iterator[Target]:
    """A server with two keys, open to one origin; the target carries the first key."""
    with serving(
        *EXACT, model=str(tiny_model), api_keys=f"{KEY_A},{KEY_B}", cors_origins=ORIGIN
    ) as (_, target):
        yield replace(target, api_key=KEY_A)


def long_prompt(target: Target, about: str, **parameters: Any) -> dict[str, Any]:
    """The first words differ, so that tests do not find each other's prefix."""
    return target.completion(f"{about}: " + "all about it. " * 60, max_tokens=4, **parameters)


async def cached_tokens(target: Target, body: dict[str, Any]) -> int:
    async with target.http() as client:
        response = await client.post(COMPLETIONS, json=body)
    assert response.status_code == 200, response.text
    cached: int = response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


async def test_without_a_known_key_nothing_but_the_probes_answers(guarded: Target) -> None:
    stranger = replace(guarded, api_key="key-c")
    async with stranger.http() as client:
        for path in ("/v1/models", "/metrics", "/version", "/v1/nope"):
            response = await client.get(path)
            check_error(response, status=401, code="invalid_api_key", param=None)
            assert response.headers["www-authenticate"] == "Bearer"
        chat = await client.post(CHAT, json=guarded.chat())
        check_error(chat, status=401, code="invalid_api_key", param=None)
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/ready")).status_code == 200


async def test_each_key_is_served_and_a_missing_one_is_not(guarded: Target) -> None:
    statuses = []
    async with guarded.http() as client:
        for key in (f"Bearer {KEY_A}", f"Bearer {KEY_B}", "", f"Basic {KEY_A}", "Bearer"):
            headers = {"authorization": key}
            statuses.append((await client.get("/v1/models", headers=headers)).status_code)
    assert statuses == [200, 200, 401, 401, 401]


async def test_one_tenant_never_finds_what_another_computed(guarded: Target) -> None:
    other = replace(guarded, api_key=KEY_B)
    body = long_prompt(guarded, "Tenants")
    assert await cached_tokens(guarded, body) == 0
    assert await cached_tokens(other, body) == 0
    assert await cached_tokens(guarded, body) > 100
    assert await cached_tokens(other, body) > 100


async def test_one_cache_salt_never_finds_what_another_computed(guarded: Target) -> None:
    mine = long_prompt(guarded, "Salts", cache_salt="mine")
    assert await cached_tokens(guarded, mine) == 0
    assert await cached_tokens(guarded, {**mine, "cache_salt": "yours"}) == 0
    assert await cached_tokens(guarded, long_prompt(guarded, "Salts")) == 0
    assert await cached_tokens(guarded, mine) > 100


async def test_a_key_is_no_cache_salt_of_another_tenant(guarded: Target) -> None:
    other = replace(guarded, api_key=KEY_B)
    assert await cached_tokens(guarded, long_prompt(guarded, "Crossed")) == 0
    assert await cached_tokens(other, long_prompt(guarded, "Crossed", cache_salt=KEY_A)) == 0


async def test_an_allowed_origin_may_call_from_a_browser(guarded: Target) -> None:
    async with guarded.http() as client:
        preflight = await client.options(CHAT, headers=PREFLIGHT)
        response = await client.post(CHAT, json=guarded.chat(), headers={"origin": ORIGIN})
        refused = await client.post(
            CHAT, json=guarded.chat(), headers={"origin": ORIGIN, "authorization": "Bearer no"}
        )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    assert response.headers["access-control-allow-origin"] == ORIGIN
    # Without the header a page could not read why it was refused.
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, ORIGIN)


async def test_another_origin_may_not(guarded: Target) -> None:
    headers = {**PREFLIGHT, "origin": "https://evil.example"}
    async with guarded.http() as client:
        preflight = await client.options(CHAT, headers=headers)
    assert preflight.status_code == 400
    assert "access-control-allow-origin" not in preflight.headers


async def test_without_the_setting_no_origin_may(tiny_server: Target) -> None:
    async with tiny_server.http() as client:
        preflight = await client.options(CHAT, headers=PREFLIGHT)
        response = await client.post(CHAT, json=tiny_server.chat(), headers={"origin": ORIGIN})
    assert preflight.status_code == 405
    assert not [name for name in preflight.headers if name.startswith("access-control")]
    assert not [name for name in response.headers if name.startswith("access-control")]
