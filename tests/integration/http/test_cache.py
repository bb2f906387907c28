"""The cache routes over a scripted engine: what is asked of it, what is told of its answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from gateway.generation import ServedCache, ServedModel
from runtime.cache_messages import (
    CacheAnswer,
    CachedEdge,
    CacheDescription,
    CacheExplanation,
    CacheFault,
    CacheFlushed,
    CacheQuery,
    DescribeCache,
    ExplainCache,
    FlushCache,
    HitWindow,
    HotPrefix,
    OwnerUse,
    TierUse,
)
from tests.byte_tokenizer import IM_START
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    MODEL,
    RESPONSES,
    Gateway,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
    response,
)
from tests.key_files import SECRET, key_file
from tests.scripted_model import ScriptedModel

EXPLAIN, CACHE = "/v1/cache/explain", "/v1/cache"
EVICTED_NS = 1_700_000_000_250_000_000
KEYS = {"alice": {"tenant": "a"}, "bob": {"tenant": "b"}, "root": {"tenant": "r", "role": "admin"}}


def explaining(**fields: Any) -> Callable[[CacheQuery], CacheAnswer]:
    """A cache that says this of every prompt."""

    def answer(query: CacheQuery) -> CacheAnswer:
        assert isinstance(query, ExplainCache)
        return CacheExplanation(
            query.request_id, len(query.prompt_token_ids), **{"matched_tokens": 0, **fields}
        )

    return answer


def gateway_with(answer: Callable[[CacheQuery], CacheAnswer], **settings: Any) -> Gateway:
    gateway = make_gateway(**settings)
    gateway.engine.answers = answer
    return gateway


def with_keys(folder: Path, answer: Callable[[CacheQuery], CacheAnswer]) -> Gateway:
    path = key_file(folder, KEYS)
    return gateway_with(answer, key_file=str(path), server_secret=SECRET.decode())


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def explained(gateway: Gateway, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    async with in_process(gateway) as client:
        answer = await client.post(EXPLAIN, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, chat()), (COMPLETIONS, completion()), (RESPONSES, response())]
)
async def test_the_prompt_asked_about_is_that_of_the_request_and_nothing_runs(
    path: str, body: dict[str, Any]
) -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        told = (await client.post(EXPLAIN, json={**body, "stream": True})).json()
        assert gateway.engine.submitted == []
        await client.post(path, json=body)
    (asked,), (submitted,) = gateway.engine.asked, gateway.engine.submitted
    assert isinstance(asked, ExplainCache)
    assert asked.prompt_token_ids == submitted.prompt_token_ids
    assert asked.namespace == submitted.namespace
    assert told["object"] == "cache.explanation"
    assert told["model"] == MODEL
    assert told["prompt_tokens"] == len(submitted.prompt_token_ids)
    assert told["cacheable_tokens"] == len(submitted.prompt_token_ids) - 1


async def test_where_it_differs_both_sides_are_shown_with_the_message() -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi world"}]
    before = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi w"
    # Three control tokens are one token each.
    index = len(before) - 2 * (len("<|im_start|>") - 1) - (len("<|im_end|>") - 1)
    gateway = gateway_with(
        explaining(matched_tokens=index, reason="differs", cached_ids=list(b"alrus"))
    )
    told = await explained(gateway, {"model": MODEL, "messages": messages})
    assert (told["matched_tokens"], told["tiers"]) == (index, {"device": index})
    difference = told["first_difference"]
    assert difference["index"] == index
    assert difference["before"].endswith("<|im_start|>user\nhi w")
    assert difference["prompt"] == {
        "token_id": ord("o"), "text": "o", "after": "rld<|im_end|>\n<|im_start|>assistant\n",
    }  # fmt: skip
    assert difference["cached"] == {"token_id": ord("a"), "text": "a", "after": "lrus"}
    assert difference["message"] == {
        "kind": "content", "index": 1, "role": "user", "part": None, "offset": 4,
    }  # fmt: skip
    assert told["reason"] == "differs"
    assert f"Token {index} is 'o' here, 'a' in the cache" in told["explanation"]
    assert "after 4 characters of the content of message 1 (user)" in told["explanation"]


async def test_what_lower_tiers_have_comes_before_the_first_difference() -> None:
    gateway = gateway_with(
        explaining(
            matched_tokens=4, tier_tokens={"host": 2, "disk": 1}, reason="differs",
            cached_ids=list(b"z"),
        )
    )  # fmt: skip
    told = await explained(gateway, completion("abcdefghij"))
    assert told["tiers"] == {"device": 4, "host": 2, "disk": 1}
    assert (told["matched_tokens"], told["first_difference"]["index"]) == (4, 7)
    assert told["first_difference"]["before"] == "abcdefg"
    assert told["first_difference"]["prompt"]["text"] == "h"
    # How the tree goes on after four tokens says nothing of what comes after seven.
    assert told["first_difference"]["cached"] is None
    assert told["first_difference"]["message"] is None
    assert told["explanation"].startswith("7 of the 9 tokens that can be cached are: 4 in the tier")


async def test_a_prompt_that_is_cached_has_no_difference() -> None:
    told = await explained(gateway_with(explaining(matched_tokens=9)), completion("abcdefghij"))
    assert told["reason"] is told["first_difference"] is told["evicted_at"] is None
    assert told["matched_tokens"] == told["cacheable_tokens"] == 9


async def test_an_eviction_has_its_time_and_its_cause() -> None:
    answer = explaining(reason="evicted", evicted_at_ns=EVICTED_NS, evicted_for="quota")
    told = await explained(gateway_with(answer), completion("abcdefghij"))
    assert told["evicted_at"] == "2023-11-14T22:13:20.250Z"
    assert told["evicted_at_s"] == 1_700_000_000.25
    assert told["evicted_for"] == "quota"
    assert (
        "evicted at 2023-11-14T22:13:20.250Z, as the cache quota was used up"
        in (told["explanation"])
    )


@pytest.mark.parametrize("cause", ["own_request", "other_tenant"])
async def test_a_tenant_is_not_told_which_tenant_needed_its_pages(
    tmp_path: Path, cause: str
) -> None:
    gateway = with_keys(tmp_path, explaining(reason="evicted", evicted_for=cause))
    told = [
        await explained(gateway, completion(), authorization=f"Bearer {key}")
        for key in ("alice", "root")
    ]
    assert [one["evicted_for"] for one in told] == ["memory", cause]
    assert cause not in str(told[0])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (completion(cache_prompt=False), "cache_prompt_false"),
        (chat(cache_prompt=False), "cache_prompt_false"),
        (completion(echo=True, logprobs=1, max_tokens=0), "prompt_scored"),
    ],
)
async def test_a_request_that_keeps_the_cache_out_is_told_so_without_asking(
    body: dict[str, Any], reason: str
) -> None:
    gateway = gateway_with(explaining(matched_tokens=9))
    told = await explained(gateway, body)
    assert (told["reason"], told["matched_tokens"]) == (reason, 0)
    assert told["tiers"] == {"device": 0}
    assert gateway.engine.asked == []


@pytest.mark.parametrize(
    "reason", ["grows", "never_seen", "other_salt", "other_tenant", "model_changed"]
)
async def test_every_reason_has_words_of_its_own(reason: str) -> None:
    other = await explained(gateway_with(explaining(reason="differs")), completion())
    told = await explained(gateway_with(explaining(reason=reason)), completion())
    assert told["reason"] == reason
    assert told["explanation"] != other["explanation"]


async def test_several_prompts_are_explained_one_by_one() -> None:
    def answer(query: CacheQuery) -> CacheAnswer:
        assert isinstance(query, ExplainCache)
        first = query.prompt_token_ids[0]
        return CacheExplanation(query.request_id, len(query.prompt_token_ids), first % 2)

    gateway = gateway_with(answer)
    told = await explained(gateway, completion(["bcd", "ab"], n=3))
    assert told["object"] == "list"
    assert [(one["prompt_tokens"], one["matched_tokens"]) for one in told["data"]] == [
        (3, 0),
        (2, 1),
    ]
    assert len({query.request_id for query in gateway.engine.asked}) == 2


async def test_tokens_that_are_no_characters_are_shown_as_such() -> None:
    """The prompt's euro sign is cut after its first byte."""
    gateway = gateway_with(explaining(matched_tokens=3, reason="differs", cached_ids=[0xC3, 0xA9]))
    told = await explained(gateway, completion("ab\u20acc"))
    difference = told["first_difference"]
    assert (difference["before"], difference["prompt"]["text"]) == ("ab", "\ufffd")
    assert difference["prompt"]["after"] == "c"
    assert difference["cached"] == {"token_id": 0xC3, "text": "\ufffd", "after": ""}


async def test_control_tokens_are_shown_as_they_are_written() -> None:
    told = await explained(gateway_with(explaining(reason="never_seen")), chat())
    assert told["first_difference"]["prompt"]["text"] == "<|im_start|>"
    assert told["first_difference"]["prompt"]["token_id"] == IM_START
    assert told["first_difference"]["message"]["kind"] == "preamble"


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": []},
        {"temperature": 3},
        {"max_tokens": 1000},
        {"chat_template": "x"},
        {"stop_token_ids": [10**6]},
        {"stream_options": {}},
        {"model": "nope"},
        {"cache_salt": 5},
    ],
)
async def test_it_is_refused_for_what_the_chat_would_be_refused_for(wrong: dict[str, Any]) -> None:
    async with in_process(make_gateway()) as client:
        refused = await client.post(CHAT, json=chat() | wrong)
        answer = await client.post(EXPLAIN, json=chat() | wrong)
    assert answer.status_code == refused.status_code >= 400
    assert error_of(answer) == error_of(refused)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, completion(max_tokens=1000)),
        (COMPLETIONS, completion([])),
        (COMPLETIONS, completion(suffix="x")),
        (RESPONSES, response("x" * 500)),
        (RESPONSES, response(previous_response_id="resp_1")),
        (RESPONSES, response(conversation="x")),
    ],
)
async def test_bodies_of_other_endpoints_are_held_to_their_rules(
    path: str, body: dict[str, Any]
) -> None:
    async with in_process(make_gateway()) as client:
        refused = await client.post(path, json=body)
        answer = await client.post(EXPLAIN, json=body)
    assert answer.status_code == refused.status_code >= 400
    assert error_of(answer) == error_of(refused)


async def test_names_without_effect_are_told_by_the_rules_of_the_endpoint() -> None:
    async with in_process(make_gateway()) as client:
        given = {"best_of": 1, "zebra": 1, "user": "u"}
        answer = await client.post(EXPLAIN, json=completion(**given))
        same = await client.post(COMPLETIONS, json=completion(**given))
    assert answer.headers["x-radixgate-ignored"] == same.headers["x-radixgate-ignored"]


async def test_a_body_about_nothing_is_refused() -> None:
    async with in_process(make_gateway()) as client:
        answer = await client.post(EXPLAIN, json={"model": MODEL, "messages": None})
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (400, "missing_required_parameter")
    assert "'prompt'" in error["message"]


async def test_a_conversation_goes_on_with_what_is_kept() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        first = (await client.post(RESPONSES, json=response("hi"))).json()
        body = response("and?", previous_response_id=first["id"])
        await client.post(EXPLAIN, json=body)
        await client.post(RESPONSES, json=body)
    (asked,) = gateway.engine.asked
    assert isinstance(asked, ExplainCache)
    assert asked.prompt_token_ids == gateway.engine.submitted[-1].prompt_token_ids
    assert b"o, world!" in bytes(token for token in asked.prompt_token_ids if token < 256)


async def test_a_conversation_that_is_shortened_is_explained_as_it_would_be_run() -> None:
    items = [{"role": "user", "content": f"{number:02} " + "x" * 20} for number in range(9)]
    body = response(items, truncation="auto")
    gateway = make_gateway()
    async with in_process(gateway) as client:
        await client.post(EXPLAIN, json=body)
        await client.post(RESPONSES, json=body)
    (asked,) = gateway.engine.asked
    assert isinstance(asked, ExplainCache)
    assert asked.prompt_token_ids == gateway.engine.submitted[0].prompt_token_ids
    assert len(asked.prompt_token_ids) < 128


async def test_each_key_asks_about_its_own_and_an_admin_about_all(tmp_path: Path) -> None:
    gateway = with_keys(tmp_path, explaining())
    for key in KEYS:
        await explained(gateway, completion(cache_salt="s"), authorization=f"Bearer {key}")
    asked = [query for query in gateway.engine.asked if isinstance(query, ExplainCache)]
    assert [query.sees_all for query in asked] == [False, False, True]
    assert len({query.owner for query in asked}) == len({query.namespace for query in asked}) == 3
    assert all(query.owner and query.owner not in KEYS for query in asked)


async def test_without_keys_everybody_sees_all() -> None:
    gateway = make_gateway()
    await explained(gateway, completion())
    (asked,) = gateway.engine.asked
    assert isinstance(asked, ExplainCache)
    assert (asked.owner, asked.sees_all) == ("", True)


# GET and DELETE


def edge(number: int, owner: str, *, parent: int | None = None, start: int = 0) -> CachedEdge:
    return CachedEdge(
        id=number,
        parent=parent,
        owner=owner,
        start=start,
        num_tokens=16,
        num_pages=1,
        num_hits=number,
        last_used_ns=EVICTED_NS,
        pinned_until_ns=EVICTED_NS if parent is None else 0,
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
        hottest=[HotPrefix(40, 9, EVICTED_NS, list(b"Once"), list(b"end."))]
        if query.owner is not None
        else [],
        # A part of a tree is whole up to its root; nothing is said of the order.
        edges=sorted(edges, key=lambda one: one.start)[: query.max_nodes][::-1],
        num_left_out=4,
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
    assert state["hottest"] == [
        {
            "tokens": 40, "hits": 9, "last_used_at": "2023-11-14T22:13:20.250Z",
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
    assert (top["pinned_until"], below["pinned_until"]) == ("2023-11-14T22:13:20.250Z", None)
    assert top["text"] == below["text"] == "Once upon"
    assert tree["left_out"] == 4


async def test_who_sees_all_has_the_text_of_its_own_only() -> None:
    async with in_process(gateway_with(described)) as client:
        state = (await client.get(CACHE)).json()
    assert state["scope"] == "all"
    assert state["pool"]["free_pages"] == 10
    assert state["pool"]["evicted_pages"] == 5
    assert (state["tiers"][0]["pages"], state["tiers"][0]["rejected"]) == (8, {"crc": 1})
    assert [(one["owner"], one["is_own"]) for one in state["owners"]] == [("", True), ("zz", False)]
    nodes = state["tree"]["nodes"]
    assert [(node["owner"], node["text"]) for node in nodes] == [
        ("", "Once upon"), ("", "Once upon"), ("zz", None),
    ]  # fmt: skip
    assert [node["id"] for node in nodes] == [0, 1, 2]
    assert state["hottest"][0]["starts_with"] == "Once"


@pytest.mark.parametrize(("given", "expected"), [("1", 1), ("2", 2), ("5000", 3)])
async def test_the_tree_is_as_large_as_asked(given: str, expected: int) -> None:
    gateway = gateway_with(described)
    async with in_process(gateway) as client:
        tree = (await client.get(CACHE, params={"max_nodes": given})).json()["tree"]
    assert len(tree["nodes"]) == expected
    asked = [query for query in gateway.engine.asked if isinstance(query, DescribeCache)]
    assert {query.max_nodes for query in asked} == {int(given)}


@pytest.mark.parametrize("given", ["0", "-1", "x", "", "1.5", "5001", "9" * 5000, "\u0665"])
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
