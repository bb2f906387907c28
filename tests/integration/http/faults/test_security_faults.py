"""Faults by which other servers gave something away or could be made to do something: prefixes of
others, templates of clients, addresses in messages."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.byte_tokenizer import VOCAB_SIZE
from tests.fake_executor import FakeExecutor
from tests.gateway_harness import (
    BODIES,
    CHAT,
    RESPONSES,
    chat,
    error_of,
    in_process,
    make_gateway,
    response,
)
from tests.whole_path import PAGE_SIZE, byte_engine, serving

KEYS = ("victim-key", "attacker-key")
SECRET = "A letter that only one of them has ever sent, and the other tries to guess. " * 2


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def cached_tokens(answer: httpx2.Response) -> int:
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    count: int = details["cached_tokens"]
    return count


@pytest.mark.parametrize("path", BODIES)
async def test_a_prefix_of_another_key_is_neither_reused_nor_faster(path: str) -> None:
    """vllm#17045, CVE-2025-46570 (vllm#16016), vllm#53347: the time to the first token told whether
    somebody had sent a prefix, and a salt of the client's choice was all that was between them."""
    executor = FakeExecutor(PAGE_SIZE, VOCAB_SIZE)
    salts: tuple[dict[str, Any], ...] = ({}, {"cache_salt": "shared"}, {"cache_salt": KEYS[0]})
    async with (
        serving(byte_engine(executor), api_keys=KEYS) as server,
        server.client() as client,
    ):

        async def ask(key: str, **salt: Any) -> tuple[int, int]:
            """The cached tokens, and those computed: all that the time could tell."""
            before = executor.num_computed_tokens
            body = BODIES[path](SECRET, ignore_eos=True, seed=1, **salt)
            body["max_output_tokens" if path == RESPONSES else "max_tokens"] = 1
            answer = await client.post(path, json=body, headers=bearer(key))
            return cached_tokens(answer), executor.num_computed_tokens - before

        for salt in salts:
            num_cached, num_cold = await ask(KEYS[0], **salt)
            assert num_cached == 0
            assert await ask(KEYS[1], **salt) == (0, num_cold)
            num_cached, num_warm = await ask(KEYS[0], **salt)
            assert num_cached + num_warm == num_cold
            assert num_warm == 1


TEMPLATE = "{% for a in range(10**9) %}{% for b in range(10**9) %}x{% endfor %}{% endfor %}"
RENDERING = (CHAT, RESPONSES, "/tokenize", "/v1/tokenize", CHAT + "/render", "/apply-template")
BROUGHT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("chat_template", {"chat_template": TEMPLATE}),
    *(
        ("chat_template_kwargs", {"chat_template_kwargs": {name: TEMPLATE}})
        for name in ("chat_template", "tokenize", "messages", "tools", "conversation")
    ),
    (
        "chat_template_kwargs",
        {"chat_template_kwargs": {"x": 1, "chat_template": {"default": TEMPLATE}}},
    ),
)


def conversation(path: str) -> dict[str, Any]:
    """Something that the route renders."""
    if "tokenize" in path:
        return {"messages": chat()["messages"]}
    return dict(response() if path == RESPONSES else chat())


@pytest.mark.parametrize("path", RENDERING)
async def test_a_request_never_brings_a_template_of_its_own(path: str) -> None:
    """vllm#25794, sglang#28135, dynamo#11755, vllm#52025, Megatron-LM#6818: a loop in it took the
    server's processor or memory, also where it came as a variable of the model's template."""
    gateway = make_gateway()
    async with in_process(gateway) as client:
        for param, parameters in BROUGHT:
            answer = await client.post(path, json={**conversation(path), **parameters})
            error = error_of(answer)
            assert (answer.status_code, error["param"]) == (400, param), parameters
            assert "range(10" not in answer.text
        # What looks like one in a text is text.
        harmless = {**conversation(path), "chat_template_kwargs": {"note": TEMPLATE}}
        assert (await client.post(path, json=harmless)).status_code == 200
    assert len(gateway.engine.submitted) == (1 if path in (CHAT, RESPONSES) else 0)


@contextmanager
def listener() -> Iterator[tuple[str, socket.socket]]:
    """An address of this machine that nobody must come to."""
    with socket.create_server(("127.0.0.1", 0)) as accepting:
        accepting.setblocking(False)
        yield f"127.0.0.1:{accepting.getsockname()[1]}", accepting


def addresses(local: str) -> list[str]:
    port = local.split(":")[1]
    return [
        f"http://{local}/x.png",
        f"https://{local}/x.png",
        f"http://localhost:{port}/",
        f"http://user@{local}/",
        f"http://0x7f.1:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
        "data:image/png;base64,AAAA",
        "ftp://127.0.0.1/x",
    ]


def chat_parts(url: str) -> list[dict[str, Any]]:
    return [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image_url", "image_url": url},
        {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}},
        {"type": "file", "file": {"file_data": url, "filename": "x"}},
        {"type": "video_url", "video_url": {"url": url}},
        {"type": "audio_url", "audio_url": {"url": url}},
    ]


def response_parts(url: str) -> list[dict[str, Any]]:
    return [
        {"type": "input_image", "image_url": url},
        {"type": "input_file", "file_url": url},
        {"type": "input_file", "file_data": url, "filename": "x"},
        {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}},
    ]


@pytest.mark.parametrize("path", RENDERING)
async def test_an_address_in_a_message_is_a_400_and_never_fetched(path: str) -> None:
    """vllm#57157, llama.cpp#25002, lmdeploy#4761: the server asked addresses of its own network."""
    gateway = make_gateway()
    given = "input" if path == RESPONSES else "messages"
    text = {"type": "input_text" if path == RESPONSES else "text", "text": "What is this?"}
    make_parts = response_parts if path == RESPONSES else chat_parts
    with listener() as (local, accepting):
        async with in_process(gateway) as client:
            for url in addresses(local):
                for part in make_parts(url):
                    for role in ("user", "system", "assistant"):
                        content = [text, part]
                        body = {**conversation(path), given: [{"role": role, "content": content}]}
                        answer = await client.post(path, json=body)
                        error = error_of(answer)
                        assert answer.status_code == 400, (part, role)
                        assert error["param"].startswith(f"{given}[0].content[")
                        assert "passwd" not in answer.text
        with pytest.raises(BlockingIOError):
            accepting.accept()
    assert gateway.engine.submitted == []


async def test_an_address_in_a_result_of_a_tool_is_never_fetched() -> None:
    """lmdeploy#4761: where a tool may answer with an image."""
    with listener() as (local, accepting):
        gateway = make_gateway()
        async with in_process(gateway) as client:
            for part in chat_parts(f"http://{local}/x.png"):
                message = {"role": "tool", "tool_call_id": "c", "content": [part]}
                answer = await client.post(CHAT, json={**chat(), "messages": [message]})
                assert answer.status_code == 400
            for part in response_parts(f"http://{local}/x.png"):
                item = {"type": "function_call_output", "call_id": "c", "output": [part]}
                answer = await client.post(RESPONSES, json=response([item]))
                assert answer.status_code == 400
            as_text = chat(f"Look at http://{local}/x.png and file:///etc/passwd")
            assert (await client.post(CHAT, json=as_text)).status_code == 200
        with pytest.raises(BlockingIOError):
            accepting.accept()
