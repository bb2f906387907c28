"""Asks /v1/responses as most tests do, and checks what every answer must be."""

import json
from typing import Any

import httpx2

from tests.gateway_harness import RESPONSES, error_of, response
from tests.responses_machine import StreamedResponse, check_ended, check_responses_stream

UNKNOWN = "resp_" + "0" * 32


async def create(client: httpx2.AsyncClient, given: Any = "hi", **parameters: Any) -> Any:
    answer = await client.post(RESPONSES, json=response(given, **parameters))
    assert answer.status_code == 200, answer.text
    body = answer.json()
    check_ended(body)
    return body


async def stream(
    client: httpx2.AsyncClient, given: Any = "hi", **parameters: Any
) -> StreamedResponse:
    answer = await client.post(RESPONSES, json=response(given, stream=True, **parameters))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return check_responses_stream(answer.content)


async def refused(client: httpx2.AsyncClient, **parameters: Any) -> tuple[int, Any, Any]:
    answer = await client.post(RESPONSES, json=response(**{"given": "hi"} | parameters))
    error = error_of(answer)
    return answer.status_code, error["code"], error["param"]


def said(body: Any) -> str:
    """As output_text of the official client."""
    return "".join(
        part["text"]
        for item in body["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def comparable(body: Any) -> Any:
    """Without what differs between two requests for the same."""
    text = json.dumps(body).replace(body["id"].removeprefix("resp_"), "ID")
    return {**json.loads(text), "created_at": 0, "completed_at": body["completed_at"] and 0}
