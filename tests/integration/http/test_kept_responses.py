"""What is asked of responses that are kept, on the wire; and how long an input may be."""

from typing import Any

import pytest
import redis.asyncio

from runtime.messages import EngineFault, ErrorCode
from tests.gateway_harness import RESPONSES, alive, error_of, in_process, make_gateway, response
from tests.responses_client import UNKNOWN, create, refused, said, stream
from tests.valkey_server import ValkeyServer


async def test_a_kept_response_is_given_as_it_was() -> None:
    async with in_process(make_gateway()) as client:
        whole, streamed = await create(client), await stream(client)
        for body in (whole, streamed.response):
            kept = await client.get(f"{RESPONSES}/{body['id']}")
            assert kept.json() == body
        asked = {"stream": "true"}
        unsupported = await client.get(f"{RESPONSES}/{whole['id']}", params=asked)
    assert unsupported.status_code == 400
    assert error_of(unsupported)["param"] == "stream"


async def test_an_incomplete_response_is_kept_and_one_that_failed_is_not() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        cut = await create(client, max_output_tokens=2)
        assert (await client.get(f"{RESPONSES}/{cut['id']}")).json() == cut
        gateway.engine.fault = EngineFault(code=ErrorCode.INTERNAL, message="x")
        gateway.engine.fault_after = 2
        failed = await stream(client)
        gone = await client.get(f"{RESPONSES}/{failed.response['id']}")
    assert (failed.response["status"], gone.status_code) == ("failed", 404)


@pytest.mark.parametrize("settings", [{}, {"response_store_max": 0}])
async def test_what_shall_not_be_kept_is_not(settings: dict[str, Any]) -> None:
    store = None if settings else False
    async with in_process(make_gateway(**settings)) as client:
        body = await create(client, store=store)
        kept = await client.get(f"{RESPONSES}/{body['id']}")
        previous = await refused(client, previous_response_id=body["id"])
    assert body["store"] is False
    assert (kept.status_code, error_of(kept)["code"]) == (404, "response_not_found")
    assert previous == (404, "previous_response_not_found", "previous_response_id")


async def test_a_wish_that_a_server_without_a_store_cannot_grant_is_named() -> None:
    async with in_process(make_gateway(response_store_max=0)) as client:
        answer = await client.post(RESPONSES, json=response(store=True))
        silent = await client.post(RESPONSES, json=response())
    assert answer.headers["x-radixgate-ignored"] == "store"
    assert "x-radixgate-ignored" not in silent.headers


async def test_another_keys_response_is_as_unknown_as_one_that_never_was() -> None:
    gateway = make_gateway(api_keys=("a", "b"))
    mine, other = ({"authorization": f"Bearer {key}"} for key in "ab")
    async with in_process(gateway) as client:
        created = await client.post(RESPONSES, json=response(), headers=mine)
        body = created.json()
        path, nowhere = f"{RESPONSES}/{body['id']}", f"{RESPONSES}/{UNKNOWN}"
        for method, suffix in (
            ("GET", ""),
            ("DELETE", ""),
            ("GET", "/input_items"),
            ("POST", "/cancel"),
        ):
            seen = await client.request(method, path + suffix, headers=other)
            unknown = await client.request(method, nowhere + suffix, headers=other)
            assert (seen.status_code, error_of(seen)["code"]) == (404, "response_not_found")
            assert seen.text.replace(body["id"], "") == unknown.text.replace(UNKNOWN, "")
        reference = {"type": "item_reference", "id": body["output"][0]["id"]}
        for parameters in ({"previous_response_id": body["id"]}, {"input": [reference]}):
            answer = await client.post(RESPONSES, json=response() | parameters, headers=other)
            assert answer.status_code == 404
        assert (await client.get(path, headers=mine)).json() == body


async def test_a_deleted_response_is_gone_for_everything() -> None:
    async with in_process(make_gateway()) as client:
        body = await create(client)
        path = f"{RESPONSES}/{body['id']}"
        deleted = await client.delete(path)
        assert deleted.json() == {
            "id": body["id"],
            "object": "response.deleted",
            "deleted": True,
        }
        assert (await client.delete(path)).status_code == 404
        assert (await client.get(path)).status_code == 404
        assert (await refused(client, previous_response_id=body["id"]))[0] == 404


async def test_only_what_runs_in_the_background_can_be_cancelled() -> None:
    async with in_process(make_gateway()) as client:
        body = await create(client)
        known = await client.post(f"{RESPONSES}/{body['id']}/cancel")
        unknown = await client.post(f"{RESPONSES}/{UNKNOWN}/cancel")
    assert (known.status_code, unknown.status_code) == (400, 404)
    assert "background" in error_of(known)["message"]


@pytest.mark.parametrize("rest", ["", "/input_items"])
async def test_what_is_kept_can_be_asked_after_without_its_body(rest: str) -> None:
    async with in_process(make_gateway()) as client:
        path = f"{RESPONSES}/{(await create(client))['id']}{rest}"
        head, whole = await client.head(path), await client.get(path)
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(whole.content)))


async def test_input_items_are_listed_in_pages() -> None:
    given = [{"role": "user", "content": str(number)} for number in range(5)]
    async with in_process(make_gateway()) as client:
        body = await create(client, given)
        path = f"{RESPONSES}/{body['id']}/input_items"
        whole = (await client.get(path, params={"order": "asc"})).json()
        ids = [item["id"] for item in whole["data"]]
        newest = (await client.get(path, params={"limit": 2})).json()
        page = (await client.get(path, params={"limit": 2, "after": newest["last_id"]})).json()
        last = (await client.get(path, params={"order": "asc", "after": ids[3]})).json()
        empty = (await client.get(path, params={"order": "asc", "after": ids[4]})).json()
    assert [item["content"][0]["text"] for item in whole["data"]] == list("01234")
    assert (whole["object"], whole["has_more"]) == ("list", False)
    assert (whole["first_id"], whole["last_id"]) == (ids[0], ids[4])
    assert [item["id"] for item in newest["data"]] == [ids[4], ids[3]]
    assert newest["has_more"]
    assert [item["id"] for item in page["data"]] == [ids[2], ids[1]]
    assert ([item["id"] for item in last["data"]], last["has_more"]) == ([ids[4]], False)
    assert (empty["data"], empty["first_id"], empty["last_id"]) == ([], None, None)


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"limit": "0000001009"}, "limit"),
        ({"limit": "000000100" + "0" * 5000}, "limit"),
        ({"limit": "\u0663"}, "limit"),
        ({"order": "up"}, "order"),
        ({"after": "msg_none"}, "after"),
    ],
)
async def test_a_wrong_query_is_named(params: dict[str, str], param: str) -> None:
    async with in_process(make_gateway()) as client:
        body = await create(client)
        answer = await client.get(f"{RESPONSES}/{body['id']}/input_items", params=params)
    assert (answer.status_code, error_of(answer)["param"]) == (400, param)


# Lengths


async def test_input_tokens_are_counted_without_an_answer() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        body = await create(client, "hello", instructions="Be brief.")
        path = f"{RESPONSES}/input_tokens"
        counted = await client.post(path, json=response("hello", instructions="Be brief."))
        chained = await client.post(path, json=response("x", previous_response_id=body["id"]))
        beyond = await client.post(path, json=response("x" * 1000))
        wrong = await client.post(path, json=response([{"type": "nothing"}]))
        lost = await client.post(path, json=response("x") | {"model": "nope"})
    assert counted.json() == {
        "object": "response.input_tokens",
        "input_tokens": body["usage"]["input_tokens"],
    }
    assert chained.json()["input_tokens"] > body["usage"]["output_tokens"]
    assert beyond.json()["input_tokens"] > 1000
    assert (wrong.status_code, lost.status_code) == (400, 404)
    assert len(gateway.engine.submitted) == 1


async def test_compacting_is_said_not_to_be_there() -> None:
    async with in_process(make_gateway()) as client:
        answer = await client.post(f"{RESPONSES}/compact", json={"model": "tiny"})
    assert answer.status_code == 404
    assert "compact" in error_of(answer)["message"]


async def test_an_input_that_does_not_fit_is_named_unless_it_may_be_cut() -> None:
    turns = [
        {"role": "user" if number % 2 == 0 else "assistant", "content": f"{number:02d}"}
        for number in range(21)
    ]
    given = [{"role": "system", "content": "sys"}, *turns]
    gateway = make_gateway()
    async with in_process(gateway) as client:
        for parameters in ({}, {"truncation": "disabled"}):
            status, code, param = await refused(client, given=given, **parameters)
            assert (status, code, param) == (400, "context_length_exceeded", "input")
        body = await create(client, given, truncation="auto")
        kept = (await client.get(f"{RESPONSES}/{body['id']}/input_items?limit=100")).json()
        hopeless = await refused(client, given="x" * 500, truncation="auto")
    assert body["truncation"] == "auto"
    assert len(kept["data"]) == 22
    prompt = bytes(token for token in gateway.engine.submitted[0].prompt_token_ids if token < 256)
    assert prompt.startswith(b"system\nsys\nuser\n")
    assert prompt.endswith(b"user\n20\nassistant\n")
    assert hopeless == (400, "context_length_exceeded", "input")


async def test_a_long_chain_may_be_cut_as_well() -> None:
    async with in_process(make_gateway()) as client:
        previous = None
        for _ in range(4):
            body = await create(client, "again", previous_response_id=previous, truncation="auto")
            previous = body["id"]
        assert (await refused(client, given="again", previous_response_id=previous))[0] == 400
    assert said(body) == "Hello, world!"


# A store that several servers share


@pytest.mark.usefixtures("patient_with_redis")
async def test_servers_with_one_redis_go_on_with_each_others_responses(
    valkey: ValkeyServer,
) -> None:
    settings: dict[str, Any] = {
        "redis_url": valkey.url,
        "api_keys": ("a",),
        "server_secret": "the secret of both",
    }
    key = {"authorization": "Bearer a"}
    async with alive(make_gateway(**settings)) as first:
        body = (await first.post(RESPONSES, json=response("one"), headers=key)).json()
    async with alive(make_gateway(**settings)) as second:
        path = f"{RESPONSES}/{body['id']}"
        assert (await second.get(path, headers=key)).json() == body
        chained = response("two", previous_response_id=body["id"])
        assert (await second.post(RESPONSES, json=chained, headers=key)).status_code == 200
        assert (await second.delete(path, headers=key)).status_code == 200
        assert (await second.get(path, headers=key)).status_code == 404


@pytest.mark.usefixtures("patient_with_redis")
async def test_in_redis_too_another_keys_response_is_unknown(valkey: ValkeyServer) -> None:
    gateway = make_gateway(redis_url=valkey.url, api_keys=("a", "b"))
    mine, other = ({"authorization": f"Bearer {key}"} for key in "ab")
    async with alive(gateway) as client:
        body = (await client.post(RESPONSES, json=response(), headers=mine)).json()
        path = f"{RESPONSES}/{body['id']}"
        for method in ("GET", "DELETE"):
            assert (await client.request(method, path, headers=other)).status_code == 404
        chained = response("x", previous_response_id=body["id"])
        assert (await client.post(RESPONSES, json=chained, headers=other)).status_code == 404
        assert (await client.get(path, headers=mine)).json() == body


@pytest.mark.usefixtures("patient_with_redis")
async def test_with_redis_gone_answers_are_given_and_kept_here(
    valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with alive(make_gateway(redis_url=valkey.url)) as client:
        there = await create(client)
        valkey.stop()
        here, again = await create(client), (await stream(client)).response
        for body in (here, again):
            assert (await client.get(f"{RESPONSES}/{body['id']}")).json() == body
        lost = await client.get(f"{RESPONSES}/{there['id']}")
    assert (lost.status_code, error_of(lost)["code"]) == (503, "server_is_overloaded")
    assert lost.headers["retry-after"]
    assert caplog.text.count("going on without it") == 1


@pytest.mark.usefixtures("patient_with_redis")
async def test_what_redis_keeps_ends_by_itself(valkey: ValkeyServer) -> None:
    async with alive(make_gateway(redis_url=valkey.url, response_store_ttl_s=50)) as client:
        body = await create(client)
    async with redis.asyncio.from_url(valkey.url) as server:
        (key,) = [key async for key in server.scan_iter()]
        left_ms = await server.pttl(key)
    assert key.decode().endswith(body["id"])
    assert 40_000 < left_ms <= 50_000


@pytest.mark.usefixtures("patient_with_redis")
async def test_what_no_server_wrote_into_redis_is_an_unknown_response(
    valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = make_gateway(redis_url=valkey.url)
    async with alive(gateway) as client, redis.asyncio.from_url(valkey.url) as server:
        path = f"{RESPONSES}/{(await create(client))['id']}"
        (key,) = [key async for key in server.scan_iter()]
        await server.set(key, "foreign")
        assert (await client.get(path)).status_code == 404
        await server.delete(key)
        await server.hset(key, "a", "b")
        assert (await client.get(f"{path}/input_items")).status_code == 404
        assert (await client.get(f"{RESPONSES}/{(await create(client))['id']}")).status_code == 200
    assert "going on without it" not in caplog.text
