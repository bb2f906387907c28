"""Faults of text that other servers were reported for: broken UTF-8 out of the model, characters
that are cut by tokens, halves of characters in requests, stop strings at any place."""

import json
import re
from typing import Any

import httpx2
import msgspec
import pytest

from tests.conformance.every_route import HALF, TEXTS_WITH_HALVES
from tests.gateway_harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    RESPONSES,
    Gateway,
    chat,
    error_of,
    in_process,
    make_gateway,
    response,
)
from tests.integration.http.faults.wishful import wishing
from tests.reasoning_model import reasoning_assets, token_ids
from tests.responses_machine import check_responses_stream
from tests.sse_machine import check_chat_stream, check_completion_stream

REPLACED = "\ufffd"
EMOJI = "\U0001f30d\u00e9\u6f22 \U0001f468\u200d\U0001f469\u200d\U0001f467!"
TOOLS = [{"type": "function", "function": {"name": "f"}}]
FLAT_TOOLS = [{"type": "function", "name": "f"}]


def says(raw: bytes, *, tokens_per_event: int = 1) -> Gateway:
    """A model of the bytes, each a token, with room for tools in its context."""
    gateway = make_gateway(lambda _submit, _choice: list(raw), tokens_per_event=tokens_per_event)
    assert gateway.engine.info is not None
    gateway.engine.info = msgspec.structs.replace(gateway.engine.info, max_model_len=2048)
    return gateway


def whole_text(path: str, answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    body = answer.json()
    if path == RESPONSES:
        (message,) = body["output"]
        text: str = message["content"][0]["text"]
        return text
    (choice,) = body["choices"]
    text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
    return text


def streamed_text(path: str, answer: httpx2.Response) -> str:
    match path:
        case "/v1/responses":
            return "".join(check_responses_stream(answer.content).texts)
        case "/v1/completions":
            return check_completion_stream(answer.content).texts[0]
        case _:
            return check_chat_stream(answer.content).texts[0]


BROKEN = {
    "a byte that no character has": b"a\xffb",
    "the second half of a character": b"a\xa9b",
    "the first half of a character": b"a\xc3b",
    "a character that ends too early": b"a\xf0\x9f\x8c",
    "a surrogate": b"a\xed\xa0\xbdb",
    "an overlong form": b"a\xc0\xafb",
    "beyond all characters": b"a\xf5\x80\x80\x80b",
    "nothing but halves": b"\x80\x81\xfe\xff" * 3,
}


@pytest.mark.parametrize("path", BODIES)
async def test_broken_utf8_of_the_model_is_replaced_and_no_server_error(path: str) -> None:
    """llama.cpp#9195, #11738, #24327: the process was gone, or the answer a 500."""
    for name, raw in BROKEN.items():
        async with in_process(says(raw)) as client:
            wishes = {} if path == RESPONSES else {"logprobs": True if path == CHAT else 1}
            body = BODIES[path](**wishes)
            text = whole_text(path, await client.post(path, json=body))
            stream = await client.post(path, json={**body, "stream": True})
        assert text == raw.decode("utf-8", "replace"), name
        assert REPLACED in text
        assert streamed_text(path, stream) == text


async def test_broken_utf8_in_a_call_is_replaced_and_no_server_error() -> None:
    """llama.cpp#24327: the arguments were serialized as they came."""
    raw = b'<tool_call>\n{"name": "f", "arguments": {"a": "\xff\xf0\x9f"}}\n</tool_call>'
    async with in_process(says(raw)) as client:
        whole = await client.post(CHAT, json=chat(tools=TOOLS))
        stream = await client.post(CHAT, json=chat(tools=TOOLS, stream=True))
        answer = await client.post(RESPONSES, json=response(tools=FLAT_TOOLS))
    (call,) = whole.json()["choices"][0]["message"]["tool_calls"]
    ((streamed,),) = check_chat_stream(stream.content).calls
    assert json.loads(call["function"]["arguments"])["a"].strip(REPLACED) == ""
    assert streamed["arguments"] == call["function"]["arguments"]
    assert answer.json()["output"][-1]["arguments"] == call["function"]["arguments"]


@pytest.mark.parametrize("path", BODIES)
async def test_no_piece_of_a_character_is_streamed_whatever_the_tokens(path: str) -> None:
    """LocalAI#677, mlc-llm#1142: each byte of an emoji was one replacement character."""
    raw = EMOJI.encode()
    for tokens_per_event in range(1, len(raw) + 1):
        async with in_process(says(raw, tokens_per_event=tokens_per_event)) as client:
            answer = await client.post(path, json=BODIES[path](stream=True, **limit(path)))
        assert REPLACED not in answer.content.decode()
        assert "\\ufffd" not in answer.content.decode()
        assert streamed_text(path, answer) == EMOJI


def limit(path: str, num_tokens: int = 100) -> dict[str, Any]:
    """Under the name that the route has for it."""
    return {"max_output_tokens" if path == RESPONSES else "max_tokens": num_tokens}


@pytest.mark.parametrize("pattern", [EMOJI, f"({EMOJI}|{EMOJI[::-1]})", f"[{EMOJI[:3]}]{{9}}"])
async def test_no_piece_of_a_character_is_streamed_where_a_grammar_dictates_it(
    pattern: str,
) -> None:
    """LocalAI#677: a grammar gives a token a byte here, or all of them at once."""
    async with wishing(lambda _said: b"\xe6") as path, path.client() as client:
        body = chat(guided_regex=pattern, max_tokens=100)
        whole = await client.post(CHAT, json=body)
        stream = await client.post(CHAT, json={**body, "stream": True})
    assert REPLACED not in stream.content.decode()
    assert re.fullmatch(pattern, whole_text(CHAT, whole))
    assert streamed_text(CHAT, stream) == whole_text(CHAT, whole)


async def test_no_piece_of_a_character_is_streamed_in_a_call() -> None:
    """mlc-llm#1142: the same where text goes through a parser first."""
    call = f'<tool_call>\n{{"name": "f", "arguments": {{"a": "{EMOJI}"}}}}\n</tool_call>'
    for tokens_per_event in (1, 2, 3, 5, 1000):
        gateway = says(call.encode(), tokens_per_event=tokens_per_event)
        async with in_process(gateway) as client:
            stream = await client.post(CHAT, json=chat(tools=TOOLS, stream=True))
        ((streamed,),) = check_chat_stream(stream.content).calls
        assert json.loads(streamed["arguments"]) == {"a": EMOJI}


async def test_a_character_that_the_limit_cuts_is_replaced_once_and_streamed_alike() -> None:
    """mlc-llm#1142: what is left at the end is told, and is no half of a pair."""
    for max_tokens in range(1, len(EMOJI.encode())):
        async with in_process(says(EMOJI.encode())) as client:
            whole = await client.post(CHAT, json=chat(max_tokens=max_tokens))
            stream = await client.post(CHAT, json=chat(max_tokens=max_tokens, stream=True))
        text = whole_text(CHAT, whole)
        assert text == EMOJI.encode()[:max_tokens].decode("utf-8", "replace")
        assert streamed_text(CHAT, stream) == text
        assert text.count(REPLACED) <= 1


HALVES = {
    **TEXTS_WITH_HALVES,
    "a tool's description": {
        "tools": [{"type": "function", "function": {"name": "f", "description": HALF}}]
    },
    "a tool's parameters": {
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {HALF: {}}}}]
    },
    "a template variable": {"chat_template_kwargs": {"x": HALF}},
    "a salt": {"cache_salt": HALF},
    "a bad word": {"bad_words": [HALF]},
}


@pytest.mark.parametrize("half", [r"\ud83d", r"\udc00", r"\ud83dx", r"\ud83d\ud83d"])
async def test_half_a_character_in_a_request_is_refused_without_a_traceback(half: str) -> None:
    """colibri#1589, Rapid-MLX#730, aider#3693: a 500, or a traceback in the middle of a stream."""
    gateway = make_gateway()
    async with in_process(gateway) as client:
        for name, change in HALVES.items():
            for options in ({}, {"stream": True}):
                body = json.dumps({**chat(), **change, **options}).replace(r"\ud83d", half)
                answer = await client.post(
                    CHAT, content=body, headers={"content-type": "application/json"}
                )
                assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_json"), name
                assert "Traceback" not in answer.text
                assert "codec" not in answer.text
        whole = json.dumps(chat("?")).replace("?", r"\ud83c\udf0d")
        answer = await client.post(
            CHAT, content=whole, headers={"content-type": "application/json"}
        )
    assert answer.status_code == 200
    (submit,) = gateway.engine.submitted
    assert "\U0001f30d".encode() in bytes(one for one in submit.prompt_token_ids if one < 256)


FOX = "the quick brown fox jumps"
STOPS = ["own fox", "mps", "s", "the", " ", FOX, "x j", "never", "fox jumps!", "quick brown foxy"]


@pytest.mark.parametrize("path", BODIES)
async def test_nothing_of_a_stop_string_is_streamed_wherever_tokens_split_it(path: str) -> None:
    """vllm#3574, SwiftLM#126, #133, mlx-knife#68"""
    for tokens_per_event in (1, 2, 3, 4, 7, len(FOX), 1000):
        gateway = says(FOX.encode(), tokens_per_event=tokens_per_event)
        async with in_process(gateway) as client:
            for stop in STOPS:
                body = BODIES[path](stop=["no such thing", stop], **limit(path))
                whole = await client.post(path, json=body)
                stream = await client.post(path, json={**body, "stream": True})
                expected = FOX.partition(stop)[0]
                assert _said(path, whole) == expected
                assert streamed_text(path, stream) == expected


def _said(path: str, answer: httpx2.Response) -> str:
    if path == RESPONSES and not answer.json()["output"][0]["content"]:
        return ""
    return whole_text(path, answer)


CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>'


@pytest.mark.parametrize("stop", ["</tool_call>!", "\n</tool_call>\n<", "all>no", "<tool_calls"])
async def test_what_was_held_back_for_a_stop_string_goes_through_the_parsers(stop: str) -> None:
    """smg#2203: what was flushed at the end went past the parser of tools into the content."""
    for words, content in ((CALL, None), ("Well.\n" + CALL, "Well.")):
        for tokens_per_event in (1, 4, 1000):
            gateway = says(words.encode(), tokens_per_event=tokens_per_event)
            async with in_process(gateway) as client:
                body = chat(tools=TOOLS, stop=[stop])
                (whole,) = (await client.post(CHAT, json=body)).json()["choices"]
                stream = await client.post(CHAT, json={**body, "stream": True})
            streamed = check_chat_stream(stream.content)
            (call,) = whole["message"]["tool_calls"]
            assert json.loads(call["function"]["arguments"]) == {"a": "b"}
            assert (whole["message"]["content"], whole["finish_reason"]) == (content, "tool_calls")
            assert streamed.texts == [content or ""]
            assert [one["arguments"] for one in streamed.calls[0]] == ['{"a": "b"}']
            assert streamed.finish_reasons == ["tool_calls"]


@pytest.mark.parametrize(
    ("words", "thought", "content"),
    [
        ("<think>so hm</think>oh hm", "so hm", "oh hm"),
        ("<think>so hm", "so hm", ""),
        ("<think>hm</think>", "hm", ""),
    ],
)
async def test_what_was_held_back_for_a_stop_string_in_a_thought_is_told_as_one(
    words: str, thought: str, content: str
) -> None:
    """smg#2203: the same past the parser of reasoning."""
    for tokens_per_event in (1, 1000):
        gateway = make_gateway(
            lambda _submit, _choice: token_ids(words),
            assets=reasoning_assets(),
            tokens_per_event=tokens_per_event,
        )
        async with in_process(gateway) as client:
            whole = await client.post(CHAT, json=chat(stop=["hm!"]))
            stream = await client.post(CHAT, json=chat(stop=["hm!"], stream=True))
        message = whole.json()["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == (thought, content)
        streamed = check_chat_stream(stream.content)
        assert (streamed.thoughts, streamed.texts) == ([thought], [content])
