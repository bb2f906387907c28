"""GET /ui and GET /ui/data: who may see what, and that no text of prompts and answers is in it."""

import asyncio
from pathlib import Path

import httpx2
import msgspec
import pytest

from gateway.generation import GenerationRequest
from gateway.live_report import MAX_REQUESTS, LiveReport
from gateway.live_requests import LiveRequests
from gateway.registry import ModelRegistry
from gateway.schemas.live_response import LiveState
from runtime.cache_messages import TierUse
from runtime.messages import EngineFault, EngineStats, ErrorCode, Phase, Sampling
from runtime.token_engine import EngineState
from telemetry import names
from tests.fake_token_engine import FakeTokenEngine
from tests.gateway_harness import (
    BODIES,
    CHAT,
    MODEL,
    Gateway,
    chat,
    error_of,
    in_process,
    listening,
    make_gateway,
)
from tests.key_files import key_file
from tests.waiting import until

UI, DATA = "/ui", "/ui/data"
SECRET = "xyzzy"


async def live(client: httpx2.AsyncClient, since: int | None = None) -> LiveState:
    """Strictly decoded: a field that is not in the schema would be one too many in the document."""
    response = await client.get(DATA, params={} if since is None else {"since": since})
    assert response.status_code == 200, response.text
    state = msgspec.json.decode(response.content, type=LiveState)
    assert msgspec.to_builtins(state) == response.json()
    return state


def with_keys(folder: Path) -> Gateway:
    keys = {"boss": {"tenant": "team", "role": "admin"}, "worker": {"tenant": "team"}}
    return make_gateway(key_file=str(key_file(folder, keys)), api_keys=("plain",))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_the_page_is_open_and_its_data_is_for_admin_keys(tmp_path: Path) -> None:
    async with in_process(with_keys(tmp_path)) as client:
        page = await client.get(UI)
        answers = {
            key: await client.get(DATA, headers=bearer(key))
            for key in ("boss", "worker", "plain", "nobody")
        }
        without = await client.get(DATA)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert {key: one.status_code for key, one in answers.items()} == {
        "boss": 200,
        "worker": 403,
        "plain": 403,
        "nobody": 401,
    }
    assert error_of(answers["worker"])["code"] == "admin_key_required"
    assert (without.status_code, error_of(without)["code"]) == (401, "invalid_api_key")


async def test_data_is_kept_by_nobody_and_read_as_what_it_is() -> None:
    async with in_process(make_gateway()) as client:
        response = await client.get(DATA)
        head = await client.head(UI)
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-type"] == "application/json"
    assert (head.status_code, head.content) == (200, b"")


async def test_both_are_found_under_a_proxys_prefix() -> None:
    async with in_process(make_gateway(root_path="/llm")) as client:
        for path in (UI, "/llm/ui"):
            assert (await client.get(path)).status_code == 200
            assert (await client.get(path + "/data")).status_code == 200
        body = (await client.get(UI)).text
    # What the page asks for is relative to where it is.
    assert '"/' not in "".join(line for line in body.splitlines() if "ask" in line)


async def test_a_running_request_is_shown_with_its_phases_and_the_one_it_is_in() -> None:
    gateway = make_gateway()
    gateway.engine.cached_tokens = 5
    gateway.engine.hold("decode")
    async with in_process(gateway) as client:
        asked = asyncio.create_task(client.post(CHAT, json=chat()))
        await until(lambda: bool(gateway.engine.open_requests))
        state = await live(client)
        while state.requests[0].state != "decoding":
            await asyncio.sleep(0)
            state = await live(client)
        gateway.engine.release()
        response = await asked
        after = await live(client)
    (request,) = state.requests
    assert (request.number, request.model, request.route) == (None, MODEL, CHAT)
    assert [phase.name for phase in request.phases] == [
        "queue",
        "cache.match",
        "tokenize",
        "decode",
    ]
    assert [phase.end_ms is None for phase in request.phases] == [False, False, False, True]
    assert request.phases[1].attributes == {"cache.hit_tokens": 5, "choice": 0}
    assert (request.cached_tokens, request.prompt_tokens, state.now.in_flight) == (5, None, 1)
    assert request.ttft_ms is not None
    (finished,) = after.finished
    assert (finished.id, finished.state, finished.status) == (request.id, "ok", 200)
    assert response.headers["x-request-id"] == finished.id
    assert finished.trace_id in response.headers["traceparent"]
    usage = response.json()["usage"]
    assert finished.prompt_tokens == usage["prompt_tokens"]
    assert finished.output_tokens == usage["completion_tokens"] == 14
    assert finished.finish_reasons == ["stop"]
    assert after.now.hit_rate == pytest.approx(5 / usage["prompt_tokens"])
    assert (after.requests, after.now.in_flight, after.now.requests) == ([], 0, 1)


async def test_a_waiting_request_is_in_its_queue_phase() -> None:
    gateway = make_gateway()
    gateway.engine.hold("queue")
    async with in_process(gateway) as client:
        asked = asyncio.create_task(client.post(CHAT, json=chat()))
        await until(lambda: bool(gateway.engine.submitted))
        (request,) = (await live(client)).requests
        gateway.engine.release()
        await asked
    assert (request.state, request.phases[-1].name) == ("queued", "queue")
    assert request.phases[-1].end_ms is None


@pytest.mark.parametrize("path", BODIES)
async def test_every_route_that_generates_is_listed(path: str) -> None:
    async with in_process(make_gateway()) as client:
        assert (await client.post(path, json=BODIES[path]())).status_code == 200
        (request,) = (await live(client)).finished
    assert (request.route, request.state) == (path, "ok")


async def test_looking_at_the_page_is_no_request_of_its_own() -> None:
    async with in_process(make_gateway()) as client:
        for path in (UI, DATA, "/v1/models", "/v1/cache", "/health"):
            await client.get(path)
        state = await live(client)
    assert (state.requests, state.finished, state.errors, state.latest) == ([], [], [], 0)


async def test_errors_are_listed_by_code_and_without_their_text() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        refused = await client.post(CHAT, json=chat(temperature=SECRET))
        unknown = await client.post(CHAT, json={**chat(), "model": SECRET})
        gateway.engine.fault = EngineFault(ErrorCode.INTERNAL, SECRET)
        failed = await client.post(CHAT, json=chat())
        state = await live(client)
        assert SECRET not in (await client.get(DATA)).text
    responses = (refused, unknown, failed)
    assert [(one.status, one.code) for one in state.errors] == [
        (response.status_code, error_of(response)["code"]) for response in responses
    ]
    assert [one.request_id for one in state.errors] == [
        response.headers["x-request-id"] for response in responses
    ]
    for error, response in zip(state.errors, responses, strict=True):
        assert error.trace_id in response.headers["traceparent"]
    assert [one.state for one in state.finished] == ["error"]
    assert state.finished[0].error == state.errors[-1].code


async def test_no_text_of_prompts_answers_or_schemas_is_in_the_data() -> None:
    gateway = make_gateway(lambda _submit, _choice: list(SECRET.encode()))
    schema = {"type": "object", "properties": {SECRET: {"type": "string"}}}
    bodies = [
        chat(SECRET, stop=[SECRET + "!"], metadata={"a": SECRET}, user=SECRET),
        chat(
            "hi",
            response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        ),
    ]
    gateway.engine.hold("decode")
    async with in_process(gateway) as client:
        asked = [asyncio.create_task(client.post(CHAT, json=body)) for body in bodies]
        await until(lambda: len(gateway.engine.submitted) == len(bodies))
        running = await client.get(DATA)
        gateway.engine.release()
        await asyncio.gather(*asked)
        ended = await client.get(DATA)
    assert len(running.json()["requests"]) == len(ended.json()["finished"]) == len(bodies)
    assert SECRET not in running.text + ended.text


def test_attributes_are_our_own_and_short() -> None:
    engine = FakeTokenEngine()
    log = LiveRequests()
    request = GenerationRequest("1", prompts=(), sampling=Sampling(1), max_tokens=1)
    log.open(request_id="r", trace_id="t", tenant="", route=CHAT).describe(MODEL, request)
    attributes: dict[str, str | int | float | bool] = {
        "gen_ai.input.messages": SECRET,
        names.ATTR_CONSTRAINT_POINTER: f"/properties/{SECRET}",
        names.ATTR_QUEUE_REASON: "b" * 500,
    }
    request.phase_log.append(Phase(names.SPAN_QUEUE, 1, 2, attributes))
    models = ModelRegistry({}, created=0)
    report = LiveReport(log, engine=engine, models=models, version="1")
    (shown,) = report.state(since=0).requests
    assert shown.phases[0].attributes == {"queue.reason": "b" * 80}


async def test_only_what_is_newer_than_the_last_look_is_told() -> None:
    async with in_process(make_gateway()) as client:
        await client.post(CHAT, json=chat())
        await client.post(CHAT, json=chat(temperature=9))
        first = await live(client)
        again = await live(client, first.latest)
        await client.post(CHAT, json=chat())
        third = await live(client, first.latest)
        for wrong in ("-1", "x", "1" * 16, ""):
            response = await client.get(DATA, params={"since": wrong})
            assert (response.status_code, error_of(response)["param"]) == (400, "since")
    assert (len(first.finished), len(first.errors)) == (1, 1)
    assert (again.finished, again.errors, again.latest) == ([], [], first.latest)
    assert (len(third.finished), third.errors, third.latest) == (1, [], first.latest + 1)
    assert first.server.started_at == third.server.started_at


async def test_the_name_that_a_body_gives_its_request_is_shown() -> None:
    async with in_process(make_gateway()) as client:
        await client.post(CHAT, json=chat(request_id="mine"))
        await client.post(CHAT, json=chat(request_id="mine-too", model="none"))
        state = await live(client)
    assert [one.id for one in state.finished] == ["mine"]
    assert [one.request_id for one in state.errors] == ["mine-too"]


async def test_a_client_that_leaves_is_listed_as_aborted_and_no_error() -> None:
    gateway = make_gateway()
    gateway.engine.hold("decode")
    async with listening(gateway) as url, httpx2.AsyncClient(base_url=url) as client:
        async with client.stream("POST", CHAT, json=chat(stream=True)) as response:
            await anext(response.aiter_bytes())
        await until(lambda: not gateway.engine.open_requests)
        state = await live(client)
        while not state.finished:
            state = await live(client)
    assert [one.state for one in state.finished] == ["aborted"]
    assert state.errors == []


async def test_pages_and_tiers_are_the_engines_and_gone_with_it() -> None:
    gateway = make_gateway()
    tier = TierUse("disk", True, 7, 700, 1000, num_found=3, num_missing=2)
    gateway.engine.stats = EngineStats(
        num_waiting=4, num_running=3, pages_free=10, pages_cached=50, pages_locked=6, pages_held=4,
        pages_total=64, pages_pinned=2, tiers=(tier,),
    )  # fmt: skip
    async with in_process(gateway) as client:
        state = await live(client)
        gateway.engine.state = EngineState.DEAD
        dead = await live(client)
    assert state.pages is not None
    assert (state.pages.free, state.pages.cached, state.pages.held) == (10, 50, 4)
    assert (state.pages.locked, state.pages.pinned, state.pages.total) == (6, 2, 64)
    assert (state.now.queued, state.now.running) == (4, 3)
    (shown,) = state.tiers
    assert (shown.name, shown.pages, shown.bytes, shown.found) == ("disk", 7, 700, 3)
    assert (dead.pages, dead.tiers, dead.now.running, dead.server.engine) == (
        None,
        [],
        None,
        "dead",
    )


async def test_the_server_says_what_it_serves() -> None:
    gateway = make_gateway(other_names=("other",))
    async with in_process(gateway) as client:
        server = (await live(client)).server
        gateway.engine.info = None
        loading = (await live(client)).server
    assert server.models == [MODEL, "other"]
    assert (server.dtype, server.device, server.architecture) == ("float32", "cpu", "llama")
    assert server.engine == "ready"
    assert (loading.dtype, loading.device) == (None, None)


async def test_of_very_many_requests_the_oldest_are_shown_and_the_rest_counted() -> None:
    gateway = make_gateway(max_queue=1000)
    gateway.engine.hold("queue")
    num_requests = MAX_REQUESTS + 3
    async with in_process(gateway) as client:
        asked = [asyncio.create_task(client.post(CHAT, json=chat())) for _ in range(num_requests)]
        await until(lambda: len(gateway.engine.submitted) == num_requests)
        state = await live(client)
        gateway.engine.release()
        await asyncio.gather(*asked)
    assert (len(state.requests), state.left_out) == (MAX_REQUESTS, 3)
    assert state.now.in_flight == num_requests


async def test_tenants_are_told_apart_by_their_hash(tmp_path: Path) -> None:
    gateway = with_keys(tmp_path)
    async with in_process(gateway) as client:
        for key in ("worker", "plain"):
            await client.post(CHAT, json=chat(), headers=bearer(key))
        response = await client.get(DATA, headers=bearer("boss"))
    tenants = [one["tenant"] for one in response.json()["finished"]]
    assert tenants == [submit.tenant for submit in gateway.engine.submitted]
    assert len(set(tenants)) == 2
    assert "worker" not in response.text
