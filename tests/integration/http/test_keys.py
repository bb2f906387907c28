"""What a key of the key file may do, on the wire."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.key_file_watch import KeyFileWatch
from gateway.settings import SettingsError
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    MODEL,
    Gateway,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
)
from tests.key_files import key_file
from tests.waiting import until


def gateway_with(folder: Path, keys: dict[str, dict[str, Any]], **settings: Any) -> Gateway:
    """Keys of one tenant unless they say otherwise."""
    given = {key: {"tenant": "team", **fields} for key, fields in keys.items()}
    return make_gateway(key_file=str(key_file(folder, given)), **settings)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_keys_of_one_tenant_share_a_cache_and_other_tenants_do_not(tmp_path: Path) -> None:
    keys = {"a": {}, "b": {}, "c": {"tenant": "other"}}
    gateway = gateway_with(tmp_path, keys, api_keys=("plain",))
    async with in_process(gateway) as client:
        for key in ("a", "b", "c", "plain"):
            response = await client.post(CHAT, json=chat(), headers=bearer(key))
            assert response.status_code == 200
        refused = await client.post(CHAT, json=chat(), headers=bearer("d"))
    a, b, c, plain = gateway.engine.submitted
    assert (a.namespace, a.tenant) == (b.namespace, b.tenant)
    assert len({a.namespace, c.namespace, plain.namespace}) == 3
    assert len({a.tenant, c.tenant, plain.tenant}) == 3
    assert (refused.status_code, error_of(refused)["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("models", [["other*"], ["other*", "alias"]])
async def test_model_that_a_key_may_not_use_does_not_exist_for_it(
    tmp_path: Path, models: list[str]
) -> None:
    keys = {"some": {"models": models}, "all": {}}
    gateway = gateway_with(tmp_path, keys, aliases=("alias",))
    async with in_process(gateway) as client:

        async def answers(key: str, name: str) -> list[httpx2.Response]:
            return [
                await client.get(f"/v1/models/{name}", headers=bearer(key)),
                await client.post(CHAT, json=chat() | {"model": name}, headers=bearer(key)),
                await client.post(
                    COMPLETIONS, json=completion() | {"model": name}, headers=bearer(key)
                ),
            ]

        async def listed(key: str) -> list[str]:
            response = await client.get("/v1/models", headers=bearer(key))
            return [card["id"] for card in response.json()["data"]]

        assert await listed("all") == [MODEL, "alias"]
        assert await listed("some") == [name for name in models if name == "alias"]
        for response in await answers("some", MODEL):
            assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")
            assert error_of(response)["param"] == "model"
            assert error_of(response)["message"].count(MODEL) == 1
        for response in await answers("some", "alias"):
            assert response.status_code == (200 if "alias" in models else 404)
        for response in await answers("all", "alias"):
            assert response.status_code == 200


async def test_key_that_may_use_a_model_by_its_id_may_use_all_its_names(tmp_path: Path) -> None:
    gateway = gateway_with(tmp_path, {"a": {"models": [MODEL]}}, aliases=("alias",))
    async with in_process(gateway) as client:
        body = chat() | {"model": "alias"}
        assert (await client.post(CHAT, json=body, headers=bearer("a"))).status_code == 200


@pytest.mark.parametrize("text", ["keys: 5", ""])
def test_broken_key_file_stops_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"^RADIXGATE_KEY_FILE: .*keys\.yaml, line 1"):
        make_gateway(key_file=str(path))


async def test_running_request_keeps_its_account_when_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches: list[KeyFileWatch] = []
    monkeypatch.setattr(KeyFileWatch, "start", lambda watch: _remember(watches, watch))
    gateway = gateway_with(tmp_path, {"a": {}})
    async with gateway.app.router.lifespan_context(gateway.app), in_process(gateway) as client:
        (watch,) = watches
        gateway.engine.hold("queue")
        running = asyncio.create_task(client.post(CHAT, json=chat(), headers=bearer("a")))
        await until(lambda: len(gateway.engine.submitted) == 1)
        key_file(tmp_path, {"b": {"tenant": "team", "models": ["none"]}})
        await watch.check()
        await watch.check()
        gateway.engine.release()
        assert (await running).status_code == 200
        gone = await client.get("/v1/models", headers=bearer("a"))
        new = await client.get("/v1/models", headers=bearer("b"))
        metrics = await client.get("/metrics", headers=bearer("b"))
    assert (gone.status_code, new.json()["data"]) == (401, [])
    assert 'radixgate_key_file_reads_total{outcome="ok"} 1.0' in metrics.text


async def _remember(watches: list[KeyFileWatch], watch: KeyFileWatch) -> None:
    watches.append(watch)
