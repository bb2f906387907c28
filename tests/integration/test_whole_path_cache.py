"""What is told of the prefix cache on the whole path, and that it is what requests then find."""

import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cache_routes import CACHE, EXPLAIN, KEYS, bearer
from tests.gateway_harness import CHAT, COMPLETIONS, MODEL, completion
from tests.key_files import SECRET, key_file
from tests.whole_path import PAGE_SIZE, WholePath, byte_engine, serving

SYSTEM = "You are the librarian of a very small town, and you answer in one short sentence."


@pytest.fixture
async def path() -> AsyncIterator[WholePath]:
    async with serving(byte_engine()) as path:
        yield path


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[WholePath]:
    keys = str(key_file(tmp_path, KEYS))
    async with serving(byte_engine(), key_file=keys, server_secret=SECRET.decode()) as path:
        yield path


def asking(*said: str, **parameters: Any) -> dict[str, Any]:
    """A conversation in which the user and the assistant take turns."""
    roles = ("user", "assistant")
    turns = [{"role": roles[turn % 2], "content": text} for turn, text in enumerate(said)]
    messages = [{"role": "system", "content": SYSTEM}, *turns]
    return {"model": MODEL, "messages": messages, "max_tokens": 4, **parameters}


async def explained(
    client: httpx2.AsyncClient, body: dict[str, Any], key: str | None = None
) -> dict[str, Any]:
    headers = {} if key is None else bearer(key)
    answer = await client.post(EXPLAIN, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def run(
    client: httpx2.AsyncClient, body: dict[str, Any], key: str | None = None
) -> dict[str, Any]:
    headers = {} if key is None else bearer(key)
    route = CHAT if "messages" in body else COMPLETIONS
    answer = await client.post(route, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    whole: dict[str, Any] = answer.json()
    return whole


def cached(answer: dict[str, Any]) -> int:
    num_cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return num_cached


async def test_what_is_explained_is_what_the_request_finds(path: WholePath) -> None:
    async with path.client() as client:
        cold = await explained(client, asking("Have you got Moby Dick?"))
        assert (cold["matched_tokens"], cold["reason"]) == (0, "never_seen")
        assert cached(await run(client, asking("Have you got Moby Dick?"))) == 0
        for text in ("Have you got Moby Dick?", "Have you got Emma?", "Where is the map?"):
            told = await explained(client, asking(text))
            assert told == await explained(client, asking(text)), "asking changes nothing"
            assert told["matched_tokens"] == cached(await run(client, asking(text)))
    path.engine.assert_idle()


async def test_a_prompt_that_was_run_is_found_whole(path: WholePath) -> None:
    async with path.client() as client:
        await run(client, asking("Have you got Moby Dick?"))
        told = await explained(client, asking("Have you got Moby Dick?"))
    assert told["matched_tokens"] == told["cacheable_tokens"] == told["prompt_tokens"] - 1
    assert told["reason"] is told["first_difference"] is None


async def test_the_first_difference_is_in_the_message_that_differs(path: WholePath) -> None:
    async with path.client() as client:
        await run(client, asking("Have you got Moby Dick?"))
        told = await explained(client, asking("Have you got Moby Duck, perhaps?"))
    difference = told["first_difference"]
    assert told["reason"] == "differs"
    assert difference["index"] == told["matched_tokens"] > len(SYSTEM)
    assert difference["before"].endswith("got Moby D")
    assert (difference["prompt"]["text"], difference["cached"]["text"]) == ("u", "i")
    assert difference["prompt"]["after"].startswith("ck, perhaps?")
    assert difference["cached"]["after"].startswith("ck?")
    offset = len("Have you got Moby D")
    assert difference["message"] == {
        "kind": "content", "index": 1, "role": "user", "part": None, "offset": offset,
    }  # fmt: skip


async def test_the_next_turn_grows_out_of_the_last(path: WholePath) -> None:
    async with path.client() as client:
        answer = await run(client, asking("Have you got Emma?"))
        said = answer["choices"][0]["message"]["content"]
        told = await explained(client, asking("Have you got Emma?", said, "And Persuasion?"))
    assert told["reason"] in ("grows", "differs")
    assert told["first_difference"]["message"]["index"] in (2, 3)
    assert told["matched_tokens"] > len(SYSTEM)


async def test_what_was_evicted_says_when_and_for_what() -> None:
    async with serving(byte_engine(num_pages=16, max_model_len=224)) as path:
        async with path.client() as client:
            before = time.time()
            first, others = "a" * 100, [letter * 180 for letter in "bcd"]
            await run(client, completion(first, max_tokens=1))
            for other in others:
                await run(client, completion(other, max_tokens=1))
            told = await explained(client, completion(first, max_tokens=1))
            after = time.time()
            # What came last is still there.
            assert (await explained(client, completion(others[-1])))["reason"] is None
    assert (told["matched_tokens"], told["reason"]) == (0, "evicted")
    assert told["evicted_for"] == "own_request"
    assert before <= told["evicted_at_s"] <= after
    at = datetime.fromisoformat(told["evicted_at"]).timestamp()
    assert at == pytest.approx(told["evicted_at_s"], abs=0.002)


async def test_a_flush_is_told_and_found(path: WholePath) -> None:
    async with path.client() as client:
        await run(client, completion("x" * 100, max_tokens=1))
        flushed = (await client.delete(CACHE)).json()
        told = await explained(client, completion("x" * 100))
        assert flushed["pages"] == 7
        assert (told["matched_tokens"], told["reason"]) == (0, "evicted")
        assert told["evicted_for"] == "flush"
        assert (await client.delete(CACHE)).json()["pages"] == 0


async def test_another_salt_keeps_prompts_apart_and_says_so(path: WholePath) -> None:
    async with path.client() as client:
        await run(client, completion("x" * 100, max_tokens=1))
        told = await explained(client, completion("x" * 100, cache_salt="pepper"))
        assert (told["matched_tokens"], told["reason"]) == (0, "other_salt")
        assert told["first_difference"]["cached"] is None
        assert cached(await run(client, completion("x" * 100, cache_salt="pepper"))) == 0


async def test_a_request_that_leaves_nothing_there_finds_nothing_there(path: WholePath) -> None:
    async with path.client() as client:
        await run(client, completion("x" * 100, max_tokens=1, cache_prompt=False))
        assert (await explained(client, completion("x" * 100)))["reason"] == "never_seen"
        await run(client, completion("x" * 100, max_tokens=1))
        body = completion("x" * 100, max_tokens=1, cache_prompt=False)
        told = await explained(client, body)
        assert (told["reason"], told["matched_tokens"]) == ("cache_prompt_false", 0)
        assert cached(await run(client, body)) == 0


async def test_another_tenants_prompt_looks_like_one_that_nobody_had(guarded: WholePath) -> None:
    async with guarded.client() as client:
        await run(client, completion("x" * 100, max_tokens=1), "alice")
        told = await explained(client, completion("x" * 100), "bob")
        unknown = await explained(client, completion("y" * 100), "bob")
        assert (await explained(client, completion("x" * 100), "alice"))["reason"] is None
        assert (await explained(client, completion("x" * 100), "root"))["reason"] == "other_tenant"
    assert (told["matched_tokens"], told["reason"]) == (0, "never_seen")
    for one in (told, unknown):
        del one["first_difference"], one["explanation"]
    assert told == unknown


async def test_another_tenants_eviction_is_told_to_nobody_else(tmp_path: Path) -> None:
    engine = byte_engine(num_pages=16, max_model_len=224)
    keys = str(key_file(tmp_path, KEYS))
    async with serving(engine, key_file=keys, server_secret=SECRET.decode()) as path:
        async with path.client() as client:
            await run(client, completion("x" * 180, max_tokens=1), "alice")
            await run(client, completion("y" * 180, max_tokens=1), "bob")
            told = await explained(client, completion("x" * 180), "alice")
            assert (told["reason"], told["evicted_for"]) == ("evicted", "memory")
            assert (await explained(client, completion("x" * 180), "bob"))["reason"] == "never_seen"


async def state_of(client: httpx2.AsyncClient, key: str | None = None) -> dict[str, Any]:
    answer = await client.get(CACHE, headers={} if key is None else bearer(key))
    assert answer.status_code == 200, answer.text
    state: dict[str, Any] = answer.json()
    return state


def check_tree(state: dict[str, Any]) -> None:
    """Edges hang together, and pages are those of their tokens."""
    nodes = {node["id"]: node for node in state["tree"]["nodes"]}
    for node in nodes.values():
        assert -(-node["tokens"] // PAGE_SIZE) == node["pages"]
        above = nodes[node["parent"]] if node["parent"] is not None else None
        assert node["start"] == (above["start"] + above["tokens"] if above else 0)
        assert above is None or above["id"] < node["id"]


async def test_the_tree_has_what_was_computed(path: WholePath) -> None:
    async with path.client() as client:
        for last in ("b" * 40, "c" * 40):
            await run(client, completion("a" * 64 + last, max_tokens=1))
        state = await state_of(client)
    check_tree(state)
    trunk, *branches = state["tree"]["nodes"]
    assert (trunk["start"], trunk["tokens"], trunk["text"][:4]) == (0, 64, "aaaa")
    # What fills no page hangs below the full ones.
    assert {(node["start"], node["tokens"], node["text"][:4]) for node in branches} == {
        (start, num_tokens, letter * 4)
        for letter in "bc"
        for start, num_tokens in ((64, 32), (96, 8))
    }
    assert state["pool"]["cached_pages"] == sum(node["pages"] for node in state["tree"]["nodes"])
    (owner,) = state["owners"]
    assert (owner["is_own"], owner["pages"]) == (True, state["pool"]["cached_pages"])


async def test_hit_rates_and_the_hottest_prefix_are_those_of_the_requests(path: WholePath) -> None:
    async with path.client() as client:
        for last in "bcde":
            await run(client, completion("a" * 80 + last * 20, max_tokens=1))
        state = await state_of(client)
    (owner,) = state["owners"]
    for rate in owner["hit_rates"]:
        assert (rate["requests"], rate["prompt_tokens"], rate["cached_tokens"]) == (4, 400, 240)
        assert rate["hit_rate"] == 0.6
    assert len(owner["hit_rates"]) > 1
    hottest = state["hottest"][0]
    assert (hottest["tokens"], hottest["hits"]) == (80, 3)
    assert set(hottest["starts_with"]) == {"a"}


async def test_each_key_sees_its_own_and_an_admin_all_without_their_text(
    guarded: WholePath,
) -> None:
    async with guarded.client() as client:
        await run(client, completion("alice's secret " * 8, max_tokens=1), "alice")
        await run(client, completion("bob's " * 20, max_tokens=1), "bob")
        alice, bob, root = [await state_of(client, key) for key in ("alice", "bob", "root")]
    assert "bob" not in str(alice)
    assert "alice" not in str(bob)
    assert len(alice["owners"]) == len(bob["owners"]) == 1
    assert alice["owners"][0]["owner"] != bob["owners"][0]["owner"]
    seen = {owner["owner"]: owner["pages"] for owner in root["owners"]}
    for state in (alice, bob):
        (owner,) = state["owners"]
        assert seen[owner["owner"]] == owner["pages"] > 0
    assert not any(word in str(root) for word in ("secret", "bob's"))
    assert {node["text"] for node in root["tree"]["nodes"]} == {None}
    check_tree(root)


async def test_an_admins_flush_takes_everything_that_is_not_in_use(guarded: WholePath) -> None:
    cache = guarded.engine.cache
    async with guarded.client() as client:
        for key in ("alice", "bob"):
            await run(client, completion("x" * 100, max_tokens=1), key)
        refused = await client.delete(CACHE, headers=bearer("bob"))
        assert refused.status_code == 403
        assert cache.counts().cached == 14
        flushed = await client.delete(CACHE, headers=bearer("root"))
    assert flushed.json()["pages"] == 14
    assert cache.counts().cached == 0
