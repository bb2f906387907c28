"""Streams as bytes: headers, order, end mark, and equality with the whole answer."""

import httpx2
import pytest

from tests.conformance.target import Target
from tests.sse_machine import check_chat_stream, check_completion_stream

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


async def post(target: Target, path: str, body: dict[str, object]) -> httpx2.Response:
    async with target.http() as client:
        return await client.post(path, json=body)


@pytest.mark.parametrize("num_choices", [1, 3])
@pytest.mark.parametrize("includes_usage", [False, True])
async def test_chat_stream_keeps_the_order(
    target: Target, num_choices: int, includes_usage: bool
) -> None:
    options = {"stream_options": {"include_usage": True}} if includes_usage else {}
    response = await post(target, CHAT, target.chat(stream=True, n=num_choices, **options))
    answer = check_chat_stream(
        response.content, num_choices=num_choices, includes_usage=includes_usage
    )
    assert all(answer.texts)


async def test_stream_headers_keep_proxies_from_buffering(target: Target) -> None:
    response = await post(target, CHAT, target.chat(stream=True))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-request-id"]
    assert "content-encoding" not in response.headers


async def test_a_stream_has_the_id_that_its_request_came_with(target: Target) -> None:
    async with target.http() as client:
        for path, body in ((CHAT, target.chat()), (COMPLETIONS, target.completion())):
            response = await client.post(
                path, json={**body, "stream": True}, headers={"x-request-id": "mine:1"}
            )
            assert response.headers["content-type"].startswith("text/event-stream")
            assert response.headers.get_list("x-request-id") == ["mine:1"]


async def test_stream_and_whole_answer_agree_in_text_reason_and_usage(target: Target) -> None:
    whole = (await post(target, CHAT, target.chat())).json()
    body = target.chat(stream=True, stream_options={"include_usage": True})
    streamed = check_chat_stream((await post(target, CHAT, body)).content, includes_usage=True)
    assert streamed.texts == [whole["choices"][0]["message"]["content"]]
    assert streamed.finish_reasons == [whole["choices"][0]["finish_reason"]]
    assert streamed.usage is not None
    assert streamed.usage["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert streamed.head["system_fingerprint"] == whole["system_fingerprint"]


async def test_one_token_is_delivered(target: Target) -> None:
    body = target.chat(stream=True, max_tokens=1, stream_options={"include_usage": True})
    streamed = check_chat_stream((await post(target, CHAT, body)).content, includes_usage=True)
    assert streamed.usage is not None
    assert streamed.usage["completion_tokens"] == 1
    assert streamed.finish_reasons == ["length"]


async def test_streamed_logprobs_cover_every_token(target: Target) -> None:
    body = target.chat(
        stream=True, logprobs=True, top_logprobs=1, stream_options={"include_usage": True}
    )
    streamed = check_chat_stream((await post(target, CHAT, body)).content, includes_usage=True)
    spelled = b"".join(bytes(entry["bytes"]) for entry in streamed.logprobs[0])
    assert spelled.decode("utf-8", "replace") == streamed.texts[0]


async def test_completion_stream_keeps_the_order(target: Target) -> None:
    body = target.completion(["One", "Two"], stream=True, stream_options={"include_usage": True})
    response = await post(target, COMPLETIONS, body)
    answer = check_completion_stream(response.content, num_choices=2, includes_usage=True)
    whole = (await post(target, COMPLETIONS, target.completion(["One", "Two"]))).json()
    assert answer.texts == [choice["text"] for choice in whole["choices"]]


async def test_stop_string_is_not_sent(target: Target) -> None:
    whole = (await post(target, CHAT, target.chat())).json()
    text = whole["choices"][0]["message"]["content"]
    stop = text[3:6]
    for stream in (False, True):
        response = await post(target, CHAT, target.chat(stop=[stop], stream=stream))
        if stream:
            got = check_chat_stream(response.content).texts[0]
        else:
            got = response.json()["choices"][0]["message"]["content"]
        assert got == text[: text.index(stop)]
