"""Faults on the wire that other servers were reported for: lengths, usage, keep-alives, reasons."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from runtime.messages import EngineFault, ErrorCode
from tests.gateway_harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    MODEL,
    RESPONSES,
    Gateway,
    chat,
    error_of,
    in_process,
    listening,
    make_gateway,
)
from tests.sse_machine import FINISH_REASONS, check_chat_stream, read_data

# Of the fake engine, and the tokens of the template around one message.
CONTEXT, AROUND = 128, 19
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


async def post(gateway: Gateway, path: str, **parameters: Any) -> httpx2.Response:
    async with in_process(gateway) as client:
        return await client.post(path, json=BODIES[path](**parameters))


def chunks_of(body: bytes) -> list[dict[str, Any]]:
    """All objects of a stream, read as strictly as the JSON.parse of a browser would."""
    return [json.loads(item) for item in read_data(body)[0] if item != "[DONE]"]


def replaying(body: bytes) -> openai.AsyncOpenAI:
    """The official client, whose server says just this."""
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    transport = httpx2.MockTransport(
        lambda _request: httpx2.Response(200, headers=headers, content=body)
    )
    return openai.AsyncOpenAI(
        api_key="unused",
        base_url="http://gateway/v1",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=transport),
    )


@pytest.mark.parametrize(
    ("path", "around", "param"),
    [(CHAT, AROUND, "messages"), (COMPLETIONS, 0, "prompt"), (RESPONSES, AROUND, "input")],
)
async def test_the_code_of_an_overflow_is_a_word_and_no_number(
    path: str, around: int, param: str
) -> None:
    """vllm#37011, TensorRT-LLM#19457: agents cut their history when they read the code."""
    async with in_process(make_gateway()) as client:
        for beyond in (0, 1):
            body = BODIES[path]("x" * (CONTEXT + beyond - around))
            for options in ({}, {"stream": True}):
                answer = await client.post(path, json={**body, **options})
                error = error_of(answer)
                assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
                assert (error["type"], error["param"]) == ("invalid_request_error", param)
        fitting = BODIES[path]("x" * (CONTEXT - around - 1))
        assert (await client.post(path, json=fitting | {"max_tokens": None})).status_code == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("extra", [{}, {"continuous_usage_stats": True}])
async def test_usage_is_null_in_every_chunk_before_the_last(
    path: str, extra: dict[str, Any]
) -> None:
    """vllm#7262"""
    options = {"stream": True, "stream_options": {"include_usage": True, **extra}}
    streamed = await post(make_gateway(), path, n=2, **options)
    *earlier, last = chunks_of(streamed.content)
    assert [chunk["usage"] for chunk in earlier] == [None] * len(earlier)
    assert all(chunk["choices"] for chunk in earlier)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 2 * 14


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_usage_added_up_over_all_chunks_is_that_of_the_whole_answer(path: str) -> None:
    """langchain#30429: whoever merges chunks adds their usage up."""
    gateway = make_gateway()
    gateway.engine.cached_tokens = 1
    whole = await post(gateway, path)
    streamed = await post(gateway, path, **USAGE)
    client = replaying(streamed.content)
    create: Any = client.chat.completions if path == CHAT else client.completions
    stream = await create.create(**BODIES[path](), **USAGE)
    told = [chunk.usage.to_dict() async for chunk in stream if chunk.usage is not None]
    assert told == [whole.json()["usage"]]
    assert told[0]["prompt_tokens_details"]["cached_tokens"] == 1


async def until_silences(chunks: AsyncIterator[bytes], mark: bytes) -> bytes:
    """Reads on until the stream has been silent three times more."""
    received = b""
    while received.count(mark) < 3:
        received += await anext(chunks)
    return received


async def streamed_with_pauses(mode: str, path: str, mark: bytes) -> bytes:
    """The bytes of a stream that waited in the queue and once more in the middle of its answer."""
    gateway = make_gateway(keepalive=mode, keepalive_s=0.01)
    gateway.engine.hold("queue")
    body = BODIES[path](stream=True) | ({} if path == RESPONSES else USAGE)
    async with listening(gateway) as url, httpx2.AsyncClient(base_url=url) as client:
        async with client.stream("POST", path, json=body) as answer:
            chunks = answer.aiter_raw()
            body_so_far = await until_silences(chunks, mark)
            gateway.engine.release()
            gateway.engine.hold("decode")
            body_so_far += await until_silences(chunks, mark)
            gateway.engine.release()
            return body_so_far + b"".join([chunk async for chunk in chunks])


@pytest.mark.parametrize(
    ("mode", "mark"), [("comment", b": ping\n\n"), ("chunk", b'"content":""},')]
)
async def test_no_keep_alive_breaks_the_official_client(mode: str, mark: bytes) -> None:
    """openai-python#2722, #3833, openai-go#621: a block without data is parsed as JSON."""
    body = await streamed_with_pauses(mode, CHAT, mark)
    assert b"\nid:" not in body
    assert b"\nretry:" not in body
    client = replaying(body)
    async with client.chat.completions.stream(
        model=MODEL,
        messages=[{"role": "user", "content": "hi"}],
        stream_options={"include_usage": True},
    ) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "Hello, world!"
    assert final.choices[0].message.role == "assistant"
    assert final.usage is not None


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("mode", ["comment", "chunk"])
async def test_a_keep_alive_is_a_comment_or_whole_json_and_never_bare_data(
    path: str, mode: str
) -> None:
    """coder#28185, omlx#1011, opencode#50871"""
    marks = {CHAT: b'"content":""},', COMPLETIONS: b'"text":"",'}
    mark = b": ping\n\n" if mode == "comment" else marks[path]
    body = await streamed_with_pauses(mode, path, mark)
    data = chunks_of(body)  # reads each line of data as JSON
    assert all(chunk["object"] for chunk in data)
    num_comments = read_data(body)[1]
    assert num_comments == (body.count(b": ping") if mode == "comment" else 0)
    assert (num_comments >= 6) is (mode == "comment")


async def test_keep_alives_can_be_switched_off() -> None:
    """coder#28185: for those whose parser takes neither form."""
    gateway = make_gateway(keepalive="off", keepalive_s=0.001)
    gateway.engine.hold("decode")
    async with listening(gateway) as url, httpx2.AsyncClient(base_url=url) as client:
        async with client.stream("POST", CHAT, json=chat(stream=True)) as answer:
            chunks = answer.aiter_raw()
            # While this server is asked a dozen things, the stream would have been silent long.
            for _ in range(12):
                await client.get("/v1/models")
            gateway.engine.release()
            body = b"".join([chunk async for chunk in chunks])
    assert [c["choices"][0]["delta"] for c in chunks_of(body)] == [
        {"role": "assistant", "content": "", "refusal": None},
        *({"content": letter} for letter in "Hello, world!"),
        {},
    ]


@pytest.mark.parametrize("fault_after", [None, 0, 3])
async def test_a_failure_is_an_error_object_and_no_finish_reason(fault_after: int | None) -> None:
    """pydantic-ai#2844, #7816: "error" or "abort" is no reason that a client's types have."""
    gateway = make_gateway()
    gateway.engine.fault_after = fault_after
    async with in_process(gateway) as client:
        for code in ErrorCode:
            gateway.engine.fault = EngineFault(code=code, message="it went wrong")
            whole = await client.post(CHAT, json=chat(n=2))
            assert whole.status_code >= 400
            error = error_of(whole)
            for path in (CHAT, COMPLETIONS):
                streamed = await client.post(path, json=BODIES[path](n=2, stream=True))
                if fault_after is None:
                    assert error_of(streamed) == error
                    continue
                *chunks, last = chunks_of(streamed.content)
                assert last == {"error": error}
                choices = [choice for chunk in chunks for choice in chunk["choices"]]
                assert {choice["finish_reason"] for choice in choices} <= {None}
                assert b"[DONE]" not in streamed.content


async def test_an_answer_cut_off_by_the_deadline_has_no_finish_reason_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pydantic-ai#7816: the same for what the gateway itself ends."""
    monkeypatch.setattr("gateway.answer.DEADLINE_GRACE_S", 0.01)
    gateway = make_gateway(request_timeout_s=0.05)
    gateway.engine.hold("decode")
    streamed = check_chat_stream((await post(gateway, CHAT, stream=True)).content)
    assert streamed.error is not None
    assert streamed.error["code"] == "deadline_exceeded"
    assert set(streamed.finish_reasons).isdisjoint(FINISH_REASONS)


@pytest.mark.parametrize("top", [{}, {"top_logprobs": 0}, {"top_logprobs": None}])
@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_without_top_logprobs_are_given_with_empty_lists(
    top: dict[str, Any], stream: bool
) -> None:
    """vllm#4795, llama.cpp#10783, #11346, llama-cpp-python#1787"""
    answer = await post(make_gateway(), CHAT, logprobs=True, stream=stream, **top)
    assert answer.status_code == 200, answer.text
    if stream:
        (entries,) = check_chat_stream(answer.content).logprobs
    else:
        (choice,) = answer.json()["choices"]
        assert set(choice["logprobs"]) == {"content", "refusal"}
        entries = choice["logprobs"]["content"]
    assert [set(entry) for entry in entries] == [{"token", "logprob", "bytes", "top_logprobs"}] * 13
    assert [entry["top_logprobs"] for entry in entries] == [[]] * 13


@pytest.mark.parametrize("num_best", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_of_a_completion_have_the_legacy_shape(num_best: int, stream: bool) -> None:
    """llama.cpp#11346: each route has a shape of its own."""
    answer = await post(make_gateway(), COMPLETIONS, logprobs=num_best, stream=stream)
    answers = chunks_of(answer.content) if stream else [answer.json()]
    shown = [choice["logprobs"] for one in answers for choice in one["choices"]]
    shapes = {frozenset(one) for one in shown if one is not None}
    assert shapes == {frozenset({"tokens", "token_logprobs", "top_logprobs", "text_offset"})}
    told = [logprob for one in shown if one is not None for logprob in one["token_logprobs"]]
    assert told == [-0.5] * 13
    best = [row for one in shown if one is not None for row in one["top_logprobs"]]
    assert len(best) == 13
    assert all(set(map(type, row.values())) == {float} for row in best)


def ids_and_text(body: bytes) -> tuple[list[int], str]:
    """What the chunks of the one choice add up to."""
    choices = [choice for chunk in chunks_of(body) for choice in chunk["choices"]]
    ids = [token_id for choice in choices for token_id in choice.get("token_ids", [])]
    deltas = [choice.get("delta", {"content": choice.get("text", "")}) for choice in choices]
    return ids, "".join(delta.get("content", "") for delta in deltas)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_the_last_tokens_of_a_stream_are_delivered_and_counted(path: str) -> None:
    """vllm#8625, vllm-omni#2313, dynamo#3531"""
    gateway = make_gateway()
    async with in_process(gateway) as client:
        for tokens_per_event in (1, 2, 1000):
            gateway.engine.tokens_per_event = tokens_per_event
            for max_tokens in (1, 2, 5, 14, 40):
                body = BODIES[path](max_tokens=max_tokens, return_token_ids=True)
                whole = (await client.post(path, json=body)).json()
                streamed = await client.post(path, json={**body, **USAGE})
                ids, text = ids_and_text(streamed.content)
                assert ids == whole["choices"][0]["token_ids"]
                assert (len(ids), text) == (min(max_tokens, 14), "Hello, world!"[:max_tokens])
                usage = chunks_of(streamed.content)[-1]["usage"]
                assert usage == whole["usage"]
                assert usage["completion_tokens"] == len(ids)


async def test_usage_agrees_with_tokenize() -> None:
    """dynamo#3531: counted by another tokenizer than the model's."""
    gateway = make_gateway(lambda _submit, _choice: [262, *b", w\xc3\xb6rld"])
    async with in_process(gateway) as client:
        answer = (await client.post(CHAT, json=chat())).json()
        text = answer["choices"][0]["message"]["content"]
        told = (await client.post("/tokenize", json={"prompt": text})).json()
        prompt = (await client.post("/tokenize", json={"messages": chat()["messages"]})).json()
    assert text == "hello, w\u00f6rld"
    # The end of the answer is a token without text.
    assert answer["usage"]["completion_tokens"] == told["count"] + 1
    assert answer["usage"]["prompt_tokens"] == prompt["count"]
