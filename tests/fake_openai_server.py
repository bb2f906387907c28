"""A chat server without a model, for tests of clients: `python -m tests.fake_openai_server PORT`.

Each answer is one word a token, as many as were asked for, unless it is to fit a schema; then
every other answer is a valid one. What is cached is made up: all prompts but the first share it.
Token ids, where they are asked for, count the words that it has seen.
A prompt that says "fail" is a 500, one that says "break" a stream that ends in the middle.
"""

import asyncio
import itertools
import json
import sys
from typing import Any

from aiohttp import web

MODEL = "fake"
CACHED_TOKENS = 3
VALID = '{"name":"Ada","age":36,"tags":["math","code"],"role":"admin"}'
INVALID = '{"name":"Ada","age":"36"}'


def make_app() -> web.Application:
    app = web.Application()
    answers = FakeAnswers()
    app.add_routes(
        [
            web.get("/v1/models", answers.models),
            web.get("/version", answers.version),
            web.post("/v1/chat/completions", answers.chat),
        ]
    )
    return app


class FakeAnswers:
    """Counts requests, so that answers can differ."""

    def __init__(self) -> None:
        self._requests = itertools.count()
        self._constrained = itertools.count()
        self._vocabulary: dict[str, int] = {}

    async def models(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response({"object": "list", "data": [{"id": MODEL}]})

    async def version(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response({"version": "0.0"})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = " ".join(message["content"] for message in body["messages"])
        tells_ids = body.get("return_token_ids", False)
        if "fail" in prompt:
            return web.json_response({"error": {"message": "asked to fail"}}, status=500)
        usage = self._usage(prompt, body["max_tokens"])
        if not body.get("stream"):
            return web.json_response({"model": MODEL, "usage": usage})
        reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await reply.prepare(request)
        ids = {"prompt_token_ids": self._ids(prompt)} if tells_ids else {}
        await _send(reply, {"choices": [{"index": 0, "delta": {"role": "assistant"}}], **ids})
        for word in self._words(body):
            ids = {"token_ids": self._ids(word)} if tells_ids else {}
            await _send(reply, {"choices": [{"index": 0, "delta": {"content": word}, **ids}]})
            if "break" in prompt:
                return reply
        await _send(reply, {"choices": [], "usage": usage})
        await reply.write(b"data: [DONE]\n\n")
        return reply

    def _ids(self, text: str) -> list[int]:
        return [self._vocabulary.setdefault(w, len(self._vocabulary)) for w in text.split()]

    def _words(self, body: dict[str, Any]) -> list[str]:
        if "response_format" in body:
            return [VALID if next(self._constrained) % 2 == 0 else INVALID]
        return [f"word{number} " for number in range(body["max_tokens"])]

    def _usage(self, prompt: str, max_tokens: int) -> dict[str, Any]:
        cached = CACHED_TOKENS if next(self._requests) else 0
        return {
            "prompt_tokens": len(prompt.split()),
            "completion_tokens": max_tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


async def _send(reply: web.StreamResponse, event: dict[str, Any]) -> None:
    await reply.write(b"data: " + json.dumps(event).encode() + b"\n\n")
    await asyncio.sleep(0)


if __name__ == "__main__":
    web.run_app(make_app(), host="127.0.0.1", port=int(sys.argv[1]), print=None)
