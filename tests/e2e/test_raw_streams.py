"""Streams of the default model as bytes, in the order that the strictest reader wants."""

import pytest

from tests.conformance.raw_streams import *  # noqa: F403
from tests.conformance.raw_streams import CHAT
from tests.conformance.target import Target
from tests.model_file import needs_model
from tests.sse_machine import check_chat_stream

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), needs_model]


@pytest.fixture(scope="module")
def target(server: Target) -> Target:
    return server


async def test_characters_of_several_tokens_arrive_whole(target: Target) -> None:
    spoken = "caf\u00e9 \U0001f30d \u6f22\u5b57"
    body = target.chat(
        stream=True, max_tokens=40, n=2, structured_outputs={"choice": [spoken]},
        stream_options={"include_usage": True},
    )  # fmt: skip
    async with target.http() as client:
        response = await client.post(CHAT, json=body)
    streamed = check_chat_stream(response.content, num_choices=2, includes_usage=True)
    assert streamed.texts == [spoken, spoken]
    assert streamed.finish_reasons == ["stop", "stop"]


async def test_stop_strings_end_each_choice_where_they_begin(target: Target) -> None:
    async with target.http() as client:
        whole = (await client.post(CHAT, json=target.chat())).json()
        text = whole["choices"][0]["message"]["content"]
        body = target.chat(stream=True, n=2, stop=[text[7:11], "never said"])
        response = await client.post(CHAT, json=body)
    streamed = check_chat_stream(response.content, num_choices=2)
    assert streamed.texts == [text[: text.index(text[7:11])]] * 2
    assert streamed.finish_reasons == ["stop", "stop"]


async def test_stop_strings_cut_no_constrained_output_and_are_named_as_ignored(
    target: Target,
) -> None:
    body = target.chat(stop=["zebra"], structured_outputs={"choice": ["a zebra runs"]})
    async with target.http() as client:
        response = await client.post(CHAT, json=body)
    assert response.json()["choices"][0]["message"]["content"] == "a zebra runs"
    assert response.headers["x-radixgate-ignored"] == "stop"
