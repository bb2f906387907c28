"""A client that goes away ends its work, wherever its request is."""

import asyncio
from typing import Any

import pytest

from telemetry import names
from tests.gateway_harness import CHAT, Gateway, chat, in_process, listening, make_gateway
from tests.raw_client import connection, raw_request
from tests.waiting import until


def outcomes(gateway: Gateway) -> list[str]:
    return [
        str((span.attributes or {})[names.ATTR_OUTCOME])
        for span in gateway.spans.get_finished_spans()
        if span.name.startswith("POST")
    ]


def is_quiet(gateway: Gateway) -> bool:
    """Nothing of the request is left in the gateway."""
    return bool(outcomes(gateway)) and not gateway.engine.open_requests


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("point", ["queue", "decode"])
async def test_closing_the_socket_aborts_the_request_in_the_engine(
    point: Any, stream: bool
) -> None:
    gateway = make_gateway(keepalive="off")
    gateway.engine.hold(point)
    async with listening(gateway) as base_url:
        async with connection(base_url) as writer:
            writer.write(raw_request(chat(stream=stream)))
            await until(lambda: bool(gateway.engine.submitted))
        await until(lambda: is_quiet(gateway))
    assert outcomes(gateway) == ["aborted"]
    request_id = gateway.engine.submitted[0].request_id
    assert (request_id, None) in gateway.engine.aborted


async def test_closing_the_socket_ends_a_compilation() -> None:
    gateway = make_gateway()
    gateway.probe.is_held = True
    async with listening(gateway) as base_url:
        async with connection(base_url) as writer:
            writer.write(raw_request(chat(structured_outputs={"regex": "a"})))
            await gateway.probe.reached.wait()
            assert gateway.probe.num_waiting == 1
        await until(lambda: is_quiet(gateway))
    assert gateway.probe.num_waiting == 0
    assert gateway.engine.submitted == []
    assert outcomes(gateway) == ["aborted"]


async def test_closing_the_socket_during_the_upload_starts_nothing() -> None:
    gateway = make_gateway()
    async with listening(gateway) as base_url:
        async with connection(base_url) as writer:
            writer.write(raw_request(chat(), missing=5))
            await writer.drain()
        await until(lambda: is_quiet(gateway))
    assert gateway.engine.submitted == []
    assert outcomes(gateway) == ["aborted"]


async def test_aborted_requests_free_their_places() -> None:
    gateway = make_gateway(max_running=1, max_queue=0)
    gateway.engine.hold("queue")
    async with listening(gateway) as base_url:
        async with connection(base_url) as writer:
            writer.write(raw_request(chat()))
            await until(lambda: bool(gateway.engine.submitted))
        await until(lambda: is_quiet(gateway))
        gateway.engine.release()
        async with in_process(gateway) as client:
            assert (await client.post(CHAT, json=chat())).status_code == 200


async def test_no_task_is_left_after_an_abort() -> None:
    gateway = make_gateway()
    gateway.engine.hold("queue")
    async with listening(gateway) as base_url:
        before = len(asyncio.all_tasks())
        async with connection(base_url) as writer:
            writer.write(raw_request(chat(stream=True)))
            await until(lambda: bool(gateway.engine.submitted))
            assert len(asyncio.all_tasks()) > before
        await until(lambda: len(asyncio.all_tasks()) == before)


async def test_answered_request_is_not_called_aborted() -> None:
    gateway = make_gateway()
    async with listening(gateway) as base_url:
        async with connection(base_url) as writer:
            writer.write(raw_request(chat()))
            await until(lambda: is_quiet(gateway))
    assert outcomes(gateway) == ["ok"]
