"""GET and DELETE /v1/cache over a scripted engine; what holds of all routes of the cache."""

from pathlib import Path

import httpx2
import msgspec
import pytest

from gateway.generation import ServedCache, ServedModel
from runtime.cache_messages import (
    CacheAnswer,
    CachedEdge,
    CacheDescription,
    CacheFault,
    CacheFlushed,
    CacheQuery,
    DescribeCache,
    FlushCache,
    HitWindow,
    HotPrefix,
    OwnerUse,
    TierUse,
)
from tests.cache_routes import CACHE, EXPLAIN, PAST, PAST_NS, bearer, gateway_with, with_keys
from tests.gateway_harness import (
    MODEL,
    completion,
    error_of,
    in_process,
    make_gateway,
)
from tests.scripted_model import ScriptedModel


def edge(number: int, owner: str, *, parent: int | None = None, start: int = 0) -> CachedEdge:
    return CachedEdge(
        id=number,
        parent=parent,
        owner=owner,
        start=start,
        num_tokens=16,
        num_pages=1,
        num_hits=number,
        last_used_ns=PAST_NS,
        pinned_until_ns=PAST_NS if parent is None else 0,
        is_locked=parent is not None,
        token_ids=list(b"Once upon"),
    )


def described(query: CacheQuery) -> CacheAnswer:
    """Two owners: `owner` of the query with two edges, and `zz` with one. As a runtime does, all
    of them are told without tokens."""
    assert isinstance(query, DescribeCache)
    own = query.owner or ""
    edges = [edge(7, own, parent=3, start=16), edge(3, own)]
    windows = (HitWindow(60, 2, 100, 25), HitWindow(None, 0, 0, 0))
    owners = [OwnerUse(own, 2, 1, 10, windows)]
    if query.owner is None:
        edges = [msgspec.structs.replace(one, token_ids=[]) for one in (*edges, edge(5, "zz"))]
        owners = [OwnerUse("zz", 90, 0, None, windows), *owners]
    return CacheDescription(
        request_id=query.request_id,
        page_size=16,
        page_bytes=1024,
        pages_free=10,
        pages_cached=3,
        pages_locked=1,
        pages_held=2,
        pages_total=64,
        num_evicted_pages=5,
        owners=owners,
        hottest=[HotPrefix(40, 9, PAST_NS, list(b"Once"), list(b"end."))]
        if query.owner is not None
        else [],
        # A part of a tree is whole up to its root; nothing is said of the order.
        edges=sorted(edges, key=lambda one: one.start)[: query.max_nodes][::-1],
        num_left_out=4,
        windows=(HitWindow(300, 1, 100, 50 if query.owner is None else 20),),
        tiers=[TierUse("disk", True, 8, 4096, 10_000, num_found=3, num_rejected={"crc": 1})],
    )


async def test_a_key_sees_its_own_pages_and_nothing_of_how_the_pool_is_used(
    tmp_path: Path,
) -> None:
    gateway = with_keys(tmp_path, described)
    async with in_process(gateway) as client:
        state = (await client.get(CACHE, headers=bearer("alice"))).json()
    (asked,) = gateway.engine.asked
    assert isinstance(asked, DescribeCache)
    assert asked.owner
    assert (state["scope"], state["page_size"], state["page_bytes"]) == ("own", 16, 1024)
    assert state["pool"] == {
        "pages": 64, "bytes": 65_536, "free_pages": None, "cached_pages": None,
        "locked_pages": None, "held_pages": None, "evicted_pages": None,
    }  # fmt: skip
    (tier,) = state["tiers"]
    assert {name for name, value in tier.items() if value is not None} == {
        "name", "is_up", "max_bytes",
    }  # fmt: skip
    (owner,) = state["owners"]
    assert (owner["owner"], owner["is_own"]) == (asked.owner, True)
    assert (owner["pages"], owner["bytes"], owner["pinned_pages"]) == (2, 2048, 1)
    assert owner["quota_pages"] == 10
    assert owner["hit_rates"][0] == {
        "window_s": 60, "requests": 2, "prompt_tokens": 100, "cached_tokens": 25, "hit_rate": 0.25,
    }  # fmt: skip
    assert owner["hit_rates"][1]["hit_rate"] is None
    assert [rate["hit_rate"] for rate in state["hit_rates"]] == [0.2]
    assert state["hottest"] == [
        {
            "tokens": 40, "hits": 9, "last_used_at": PAST,
            "starts_with": "Once", "ends_with": "end.",
        }
    ]  # fmt: skip


async def test_the_tree_has_parents_before_children(tmp_path: Path) -> None:
    async with in_process(with_keys(tmp_path, described)) as client:
        tree = (await client.get(CACHE, headers=bearer("alice"))).json()["tree"]
    top, below = tree["nodes"]
    assert (top["id"], top["parent"], below["id"], below["parent"]) == (0, None, 1, 0)
    assert (top["start"], below["start"], below["hits"]) == (0, 16, 7)
    assert (top["in_use"], below["in_use"]) == (False, True)
    assert (top["pinned_until"], below["pinned_until"]) == (PAST, None)
    assert top["text"] == below["text"] == "Once upon"
    assert tree["left_out"] == 4


async def test_who_sees_all_has_the_text_of_its_own_only() -> None:
    async with in_process(gateway_with(described)) as client:
        state = (await client.get(CACHE)).json()
    assert state["scope"] == "all"
    assert state["pool"]["free_pages"] == 10
    assert state["pool"]["evicted_pages"] == 5
    assert [rate["hit_rate"] for rate in state["hit_rates"]] == [0.5]
    assert (state["tiers"][0]["pages"], state["tiers"][0]["rejected"]) == (8, {"crc": 1})
    assert [(one["owner"], one["is_own"]) for one in state["owners"]] == [("", True), ("zz", False)]
    nodes = state["tree"]["nodes"]
    assert [(node["owner"], node["text"]) for node in nodes] == [
        ("", "Once upon"), ("", "Once upon"), ("zz", None),
    ]  # fmt: skip
    assert [node["id"] for node in nodes] == [0, 1, 2]
    assert state["hottest"][0]["starts_with"] == "Once"


@pytest.mark.parametrize(("given", "expected"), [("1", 1), ("2", 2), ("2000", 3)])
async def test_the_tree_is_as_large_as_asked(given: str, expected: int) -> None:
    gateway = gateway_with(described)
    async with in_process(gateway) as client:
        tree = (await client.get(CACHE, params={"max_nodes": given})).json()["tree"]
    assert len(tree["nodes"]) == expected
    asked = [query for query in gateway.engine.asked if isinstance(query, DescribeCache)]
    assert {query.max_nodes for query in asked} == {int(given)}


@pytest.mark.parametrize("given", ["0", "-1", "x", "", "1.5", "2001", "9" * 5000, "\u0665"])
async def test_a_size_of_the_tree_that_is_none_is_refused(given: str) -> None:
    async with in_process(make_gateway()) as client:
        answer = await client.get(CACHE, params={"max_nodes": given})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "max_nodes")


async def test_a_flush_says_how_many_pages_are_forgotten() -> None:
    gateway = gateway_with(lambda query: CacheFlushed(query.request_id, 12))
    async with in_process(gateway) as client:
        answer = await client.delete(CACHE)
    assert answer.json() == {"object": "cache.flushed", "model": MODEL, "pages": 12}
    (asked,) = gateway.engine.asked
    assert isinstance(asked, FlushCache)
    assert (asked.owner, asked.tiers) == (None, True)


async def test_with_keys_only_an_admin_may_flush(tmp_path: Path) -> None:
    gateway = with_keys(tmp_path, lambda query: CacheFlushed(query.request_id, 1))
    async with in_process(gateway) as client:
        refused = await client.delete(CACHE, headers=bearer("alice"))
        assert gateway.engine.asked == []
        done = await client.delete(CACHE, headers=bearer("root"))
    assert (refused.status_code, error_of(refused)["code"]) == (403, "admin_key_required")
    assert (done.status_code, len(gateway.engine.asked)) == (200, 1)


async def all_routes(client: httpx2.AsyncClient) -> list[httpx2.Response]:
    return [
        await client.post(EXPLAIN, json=completion()),
        await client.get(CACHE),
        await client.delete(CACHE),
    ]


async def test_a_runtime_that_is_away_is_a_503_and_a_fault_a_500() -> None:
    gateway = make_gateway()
    gateway.engine.unavailable = "the runtime is being started"
    async with in_process(gateway) as client:
        for answer in await all_routes(client):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert error_of(answer)["message"] == "the runtime is being started"
        gateway.engine.unavailable = None
        gateway.engine.answers = lambda query: CacheFault(query.request_id, "no tree")
        for answer in await all_routes(client):
            assert (answer.status_code, error_of(answer)["code"]) == (500, "internal_error")
            assert "no tree" in error_of(answer)["message"]


async def test_a_runtime_with_too_many_questions_is_a_503() -> None:
    gateway = make_gateway()
    gateway.engine.answers = lambda query: CacheFault(query.request_id, "too many", is_busy=True)
    async with in_process(gateway) as client:
        for answer in await all_routes(client):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert error_of(answer)["message"] == "too many"


class Foreign(ScriptedModel):
    """As one behind another server would be."""

    @property
    def cache(self) -> ServedCache | None:
        return None


async def test_a_model_that_cannot_be_asked_is_a_clear_refusal() -> None:
    def around(model: ServedModel) -> ServedModel:
        return Foreign(model, lambda _prompt: ((), "stop"))

    async with in_process(make_gateway(around=around)) as client:
        for answer in await all_routes(client):
            assert (answer.status_code, error_of(answer)["code"]) == (400, "cache_not_available")


async def test_a_model_may_be_named_and_must_exist() -> None:
    async with in_process(make_gateway(aliases=["gpt-4"])) as client:
        for method in ("GET", "DELETE"):
            named = await client.request(method, CACHE, params={"model": "gpt-4"})
            assert named.json()["model"] == "gpt-4"
            unknown = await client.request(method, CACHE, params={"model": "nope"})
            assert (unknown.status_code, error_of(unknown)["code"]) == (404, "model_not_found")


async def test_keys_are_needed_and_every_route_is_traced() -> None:
    gateway = make_gateway(api_keys=("key",))
    async with in_process(gateway) as client:
        assert [answer.status_code for answer in await all_routes(client)] == [401] * 3
        client.headers["authorization"] = "Bearer key"
        for answer in await all_routes(client):
            assert answer.headers["traceparent"].startswith("00-")
