"""GET /metrics of a whole gateway: what it shows is the catalog, and what happened."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from gateway.accounts import Role
from gateway.api_operations import OPERATIONS
from gateway.settings import SettingsError
from runtime.cache_messages import TierUse
from runtime.messages import EngineFault, EngineStats, ErrorCode
from telemetry import catalog
from telemetry.exposition import OPENMETRICS
from telemetry.metric_definition import OTHER
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    MODEL,
    RESPONSES,
    Gateway,
    chat,
    completion,
    in_process,
    make_gateway,
    response,
)
from tests.key_files import key_file
from tests.waiting import until

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-1] + "0"
PRICES = """
currency: USD
models:
  tiny: {input: 1000000, cached_input: 250000, output: 2000000}
"""


async def families(client: httpx2.AsyncClient, accept: str = "") -> list[Metric]:
    """What a scrape gives, read by the library's parser of that format."""
    scraped = await client.get("/metrics", headers={"accept": accept} if accept else {})
    assert scraped.status_code == 200
    if accept == OPENMETRICS:
        text = scraped.text
        return list(openmetrics.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    return list(text_string_to_metric_families(scraped.text))


async def values(client: httpx2.AsyncClient) -> dict[str, float]:
    """Each sample by name and label values."""
    return {
        "/".join(
            (sample.name, *(value for _, value in sorted(sample.labels.items())))
        ): sample.value
        for family in await families(client)
        for sample in family.samples
    }


async def busy_gateway() -> Gateway:
    """One that has seen a bit of everything, with each source of figures."""
    gateway = make_gateway(slo_ttft_ms=1000, slo_tpot_ms=1000)
    gateway.metrics.set_span_source(exported=lambda: 1, dropped=lambda: 0)
    gateway.engine.cached_tokens = 5
    disk = TierUse("disk", True, 1, 2, 3, num_rejected={"checksum": 1}, num_dropped={"evicted": 1})
    gateway.engine.stats = EngineStats(pages_free=64, pages_total=64, tiers=(disk,))
    async with in_process(gateway) as client:
        await client.post(CHAT, json=chat(stream=True, structured_outputs={"regex": "H.*"}))
        await client.post(COMPLETIONS, json=completion(n=2))
        await client.post(CHAT, json=chat(temperature=9))
        await client.post(CHAT, json=chat(user="u", made_up=1))
        gateway.engine.fault = EngineFault(ErrorCode.INTERNAL, "x")
        await client.post(RESPONSES, json=response())
    gateway.engine.fault = None
    return gateway


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["plain", "openmetrics"])
async def test_what_is_shown_is_the_catalog(accept: str) -> None:
    gateway = await busy_gateway()
    async with in_process(gateway) as client:
        shown = await families(client, accept)
    assert {family.name for family in shown} == set(catalog.BY_NAME)
    for family in shown:
        metric = catalog.BY_NAME[family.name]
        assert (family.type, family.documentation) == (metric.kind, metric.text)
        if accept == OPENMETRICS:
            assert family.unit == metric.prometheus_unit


async def test_labels_are_those_of_the_catalog_and_so_are_their_values() -> None:
    gateway = await busy_gateway()
    async with in_process(gateway) as client:
        shown = await families(client)
    for family in shown:
        metric = catalog.BY_NAME[family.name]
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.label_names), sample
            for label in metric.labels:
                if label.values:
                    assert sample.labels[label.name] in {*label.values, OTHER}, sample


async def test_each_route_that_is_served_is_counted_under_its_own_name() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        for operation in OPERATIONS:
            path = operation.path.format(model=MODEL, response_id="resp_0")
            body: dict[str, Any] | None = None if operation.method == "get" else {}
            await client.request(operation.method.upper(), path, json=body)
        shown = await families(client)
    (requests,) = [family for family in shown if family.name == catalog.REQUESTS.name]
    assert {sample.labels["route"] for sample in requests.samples} == set(catalog.ROUTES)


async def test_examples_are_of_traces_that_somebody_has() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        await client.post(CHAT, json=chat(), headers={"traceparent": UNSAMPLED})
        assert examples(await families(client, OPENMETRICS)) == []
        await client.post(CHAT, json=chat(), headers={"traceparent": SAMPLED})
        found = examples(await families(client, OPENMETRICS))
    (server,) = [s for s in gateway.spans.get_finished_spans() if s.kind.name == "SERVER"]
    context = server.get_span_context()
    assert context is not None
    ids = {"trace_id": SAMPLED.split("-")[1], "span_id": f"{context.span_id:016x}"}
    assert {name for name, _ in found} == {m.name for m in catalog.METRICS if m.has_exemplars}
    assert all(labels == ids for _, labels in found)


def examples(shown: Iterable[Metric]) -> list[tuple[str, Any]]:
    return [
        (family.name, sample.exemplar.labels)
        for family in shown
        for sample in family.samples
        if sample.exemplar is not None
    ]


async def test_a_request_is_in_flight_until_it_ends() -> None:
    gateway = make_gateway()
    gateway.engine.hold()
    async with in_process(gateway) as client:
        running = asyncio.create_task(client.post(CHAT, json=chat()))
        await until(lambda: bool(gateway.engine.submitted))
        during = await values(client)
        gateway.engine.release()
        await running
        after = await values(client)
    assert [one["radixgate_requests_in_flight"] for one in (during, after)] == [1, 0]


async def test_goodput_is_of_requests_for_an_answer() -> None:
    gateway = make_gateway(slo_ttft_ms=0.000001)
    async with in_process(gateway) as client:
        await client.post(CHAT, json=chat())
        await client.post(CHAT, json=chat(temperature=9))
        await client.get("/v1/models")
        gateway.engine.unavailable = "down"
        await client.post(CHAT, json=chat())
        found = await values(client)
    name = "radixgate_goodput_requests_total"
    assert {result: found[f"{name}/{result}"] for result in catalog.GOODPUT_RESULTS} == {
        "good": 0,
        "slow_ttft": 1,
        "slow_tpot": 0,
        "failed": 1,
    }
    assert found["radixgate_slo_seconds/ttft"] == pytest.approx(1e-9)


def priced(text: str, folder: Path, **settings: Any) -> Gateway:
    path = folder / "prices.yaml"
    path.write_text(text, encoding="utf-8")
    return make_gateway(price_file=str(path), **settings)


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
async def test_what_tenants_take_is_shown_to_monitors_and_admins(
    tmp_path: Path, accept: str
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(PRICES)
    keys = {f"key-of-{role}": {"tenant": role, "role": role} for role in get_args(Role)}
    gateway = make_gateway(key_file=str(key_file(tmp_path, keys)), price_file=str(prices))
    async with in_process(gateway) as client:

        async def seen(role: str) -> dict[str, float]:
            client.headers["authorization"] = f"Bearer key-of-{role}"
            shown = await families(client, accept)
            return {family.name: sum(one.value for one in family.samples) for family in shown}

        client.headers["authorization"] = "Bearer key-of-user"
        assert (await client.post(CHAT, json=chat())).status_code == 200
        users, monitors, admins = [await seen(role) for role in ("user", "monitor", "admin")]
    tenants = {catalog.TENANT_TOKENS.name, catalog.COST.name}
    assert monitors.keys() - users.keys() == tenants
    assert admins.keys() == monitors.keys()
    assert all(monitors[name] > 0 for name in tenants)
    assert users[catalog.PROMPT_TOKENS.name] == monitors[catalog.PROMPT_TOKENS.name] > 0


async def test_an_answer_under_an_alias_costs_what_its_model_does(tmp_path: Path) -> None:
    gateway = priced(PRICES, tmp_path, aliases=("famous",))
    gateway.engine.cached_tokens = 5
    async with in_process(gateway) as client:
        answer = await client.post(CHAT, json=chat() | {"model": "famous"})
        found = await values(client)
    usage = answer.json()["usage"]
    assert (answer.json()["model"], usage["completion_tokens"]) == ("famous", 14)
    name = "radixgate_cost_total/USD"
    assert found[f"{name}/cached_input/none"] == 5 * 0.25
    assert found[f"{name}/input/none"] == usage["prompt_tokens"] - 5
    assert found[f"{name}/output/none"] == 14 * 2


def test_a_served_model_without_a_price_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no price for the model 'tiny'"):
        priced("currency: USD\nmodels: {other: {input: 1, output: 1}}", tmp_path)
    assert priced('currency: USD\nmodels: {"*": {input: 1, output: 1}}', tmp_path)


def test_a_price_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"RADIXGATE_PRICE_FILE: .*prices\.yaml, line 1"):
        priced("currency: USD", tmp_path)
    with pytest.raises(SettingsError, match="RADIXGATE_PRICE_FILE: .*none.yaml"):
        make_gateway(price_file=str(tmp_path / "none.yaml"))


async def test_what_is_served_is_shown_once_the_engine_has_said_it() -> None:
    gateway = make_gateway()
    info, gateway.engine.info = gateway.engine.info, None
    async with in_process(gateway) as client:
        before = [name for name in await values(client) if "build_info" in name]
        gateway.engine.info = info
        after = [name for name in await values(client) if "build_info" in name]
    assert before == []
    (shown,) = after
    assert shown.split("/")[1:4] == ["cpu", "float32", MODEL]
