"""Chat, completions, models and errors through the official Python client, of whichever release.

The checks of openai 2.x and 3.x are the same; the release differs, and the HTTP library under it.
"""

import asyncio
import json
from itertools import pairwise
from typing import Any

import openai
from features import API_KEY, BASE_URL, MAX_TOKENS, MODEL, Checks, equal, present, raised
from person import PERSON_QUESTION, Person

QUESTION = [{"role": "user", "content": "hi"}]
STABLE: dict[str, Any] = {"model": MODEL, "temperature": 0, "seed": 7, "max_tokens": MAX_TOKENS}
CHAT: dict[str, Any] = {**STABLE, "messages": QUESTION}


def client(*, api_key: str = API_KEY, is_strict: bool = True) -> openai.OpenAI:
    """Asks once; a strict one refuses answers that do not fit the client's types."""
    return openai.OpenAI(
        base_url=BASE_URL, api_key=api_key, max_retries=0, _strict_response_validation=is_strict
    )


def async_client() -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=BASE_URL, api_key=API_KEY, max_retries=0, _strict_response_validation=True
    )


def check_usage(usage: Any) -> None:
    assert usage.prompt_tokens > 0
    assert usage.completion_tokens > 0
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
    assert 0 <= usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def add_chat(checks: Checks) -> None:
    """chat, stream, async."""

    @checks.feature("chat")
    def chat() -> None:
        answer = client().chat.completions.create(**CHAT)
        (choice,) = answer.choices
        equal(answer.model, MODEL)
        assert answer.id.startswith("chatcmpl-")
        assert answer._request_id
        assert choice.message.content
        equal(choice.message.role, "assistant")
        equal(choice.finish_reason, "stop")
        check_usage(answer.usage)
        cut = client().chat.completions.create(**{**CHAT, "max_tokens": 3})
        equal(cut.choices[0].finish_reason, "length")
        equal(present(cut.usage).completion_tokens, 3)
        assert choice.message.content.startswith(cut.choices[0].message.content or "none")

    @checks.feature("stream")
    def stream() -> None:
        whole = client().chat.completions.create(**CHAT)
        options = {"include_usage": True}
        chunks = list(client().chat.completions.create(**CHAT, stream=True, stream_options=options))
        equal(text_of(chunks), whole.choices[0].message.content)
        equal([c.choices[0].delta.role for c in chunks[:-1]][:1], ["assistant"])
        assert not any(c.choices[0].delta.role for c in chunks[1:-1])
        equal([c.usage for c in chunks[:-1]], [None] * (len(chunks) - 1))
        equal(chunks[-1].choices, [])
        equal(present(chunks[-1].usage).completion_tokens, present(whole.usage).completion_tokens)
        equal(chunks[-2].choices[0].finish_reason, whole.choices[0].finish_reason)
        equal({chunk.id for chunk in chunks}, {chunks[0].id})

    @checks.feature("stream helper")
    def stream_helper() -> None:
        whole = client().chat.completions.create(**CHAT)
        with client().chat.completions.stream(**CHAT) as events:
            snapshots = [e.snapshot for e in events if e.type == "content.delta"]
            final = events.get_final_completion()
        message = final.choices[0].message
        equal((message.role, message.content), ("assistant", whole.choices[0].message.content))
        assert len(snapshots) > 2
        assert all(after.startswith(before) for before, after in pairwise(snapshots))

    @checks.feature("async")
    async def concurrent() -> None:
        async with async_client() as ours:
            whole, stream = await asyncio.gather(
                ours.chat.completions.create(**CHAT),
                ours.chat.completions.create(**CHAT, stream=True),
            )
            chunks = [chunk async for chunk in stream]
        equal(text_of(chunks), whole.choices[0].message.content)


def add_details(checks: Checks) -> None:
    """choices, stop, logprobs, completions."""

    @checks.feature("choices")
    def choices() -> None:
        sampled = {**CHAT, "temperature": 1.0, "n": 2, "max_tokens": 5}
        answer = client().chat.completions.create(**sampled)
        equal([choice.index for choice in answer.choices], [0, 1])
        texts = [choice.message.content for choice in answer.choices]
        assert texts[0] != texts[1]
        equal(present(answer.usage).completion_tokens, 10)
        chunks = list(client().chat.completions.create(**sampled, stream=True))
        parts = [(c.choices[0].index, c.choices[0].delta.content or "") for c in chunks]
        equal(["".join(text for index, text in parts if index == n) for n in (0, 1)], texts)

    @checks.feature("stop")
    def stop() -> None:
        whole = client().chat.completions.create(**CHAT).choices[0].message.content or ""
        word = whole.split()[3]
        cut = client().chat.completions.create(**CHAT, stop=[word]).choices[0]
        equal((cut.message.content, cut.finish_reason), (whole[: whole.index(word)], "stop"))

    @checks.feature("logprobs")
    def logprobs() -> None:
        asked = {**CHAT, "logprobs": True, "top_logprobs": 3, "max_tokens": 5}
        choice = client().chat.completions.create(**asked).choices[0]
        entries = present(present(choice.logprobs).content)
        equal(choice.finish_reason, "length")
        equal(len(entries), 5)
        spelled = b"".join(bytes(present(entry.bytes)) for entry in entries)
        equal(spelled.decode(), choice.message.content)
        for entry in entries:
            scores = [top.logprob for top in entry.top_logprobs]
            equal((len(scores), scores), (3, sorted(scores, reverse=True)))
            equal((entry.token, entry.logprob), (entry.top_logprobs[0].token, max(scores)))
        chunks = client().chat.completions.create(**asked, stream=True)
        parts = [c.choices[0].logprobs for c in chunks if c.choices[0].logprobs]
        equal([e.token for p in parts for e in p.content or []], [e.token for e in entries])

    @checks.feature("completions")
    def completions() -> None:
        asked = {**STABLE, "prompt": ["Once upon", "The capital of France"], "max_tokens": 5}
        one = {**asked, "prompt": "Once upon"}
        answer = client().completions.create(**asked, logprobs=2)
        equal([choice.index for choice in answer.choices], [0, 1])
        first = answer.choices[0]
        equal("".join(present(present(first.logprobs).tokens)), first.text)
        # The client's type has no finish_reason of None, which OpenAI's own streams send as well.
        chunks = list(client(is_strict=False).completions.create(**one, stream=True))
        equal("".join(chunk.choices[0].text for chunk in chunks), first.text)
        equal(chunks[-1].choices[0].finish_reason, first.finish_reason)
        echoed = client().completions.create(**one, echo=True)
        equal(echoed.choices[0].text, "Once upon" + first.text)


def add_structured(checks: Checks) -> None:
    """structured output, its stream, what the client raises where an answer is cut off."""
    asked = {**STABLE, "messages": [{"role": "user", "content": PERSON_QUESTION}], "max_tokens": 40}

    @checks.feature("structured output")
    def structured() -> None:
        answer = client().chat.completions.parse(**asked, response_format=Person)
        message = answer.choices[0].message
        assert isinstance(message.parsed, Person)
        equal(answer.choices[0].finish_reason, "stop")
        equal(json.loads(message.content or ""), message.parsed.model_dump())
        free = client().chat.completions.create(
            **{**asked, "response_format": {"type": "json_object"}, "max_tokens": 40}
        )
        if free.choices[0].finish_reason == "stop":
            assert isinstance(json.loads(free.choices[0].message.content or ""), dict)
        short = {**asked, "max_tokens": 3}
        error = raised(
            openai.LengthFinishReasonError,
            lambda: client().chat.completions.parse(**short, response_format=Person),
        )
        equal(error.completion.choices[0].finish_reason, "length")

    @checks.feature("partial output")
    def partial() -> None:
        whole = client().chat.completions.parse(**asked, response_format=Person)
        with client().chat.completions.stream(**asked, response_format=Person) as events:
            seen = [event.parsed for event in events if event.type == "content.delta"]
            final = events.get_final_completion()
        equal(final.choices[0].message.parsed, whole.choices[0].message.parsed)
        keys = [list(value) for value in seen if isinstance(value, dict)]
        assert ["name"] in keys
        assert all(after[: len(before)] == before for before, after in pairwise(keys))


def add_errors(checks: Checks) -> None:
    """models, embeddings, errors."""

    @checks.feature("models")
    def models() -> None:
        listed = [model.id for model in client().models.list()]
        assert MODEL in listed
        equal(client().models.retrieve(MODEL).object, "model")
        error = raised(openai.NotFoundError, lambda: client().models.retrieve("org/none"))
        equal((error.code, error.status_code), ("model_not_found", 404))

    @checks.feature("embeddings refused")
    def embeddings() -> None:
        error = raised(
            openai.BadRequestError,
            lambda: client().embeddings.create(model=MODEL, input="a text"),
        )
        equal((error.type, error.param), ("invalid_request_error", "model"))

    @checks.feature("errors")
    def errors() -> None:
        create = client().chat.completions.create
        unknown = raised(openai.NotFoundError, lambda: create(**{**CHAT, "model": "nope"}))
        equal((unknown.code, unknown.param), ("model_not_found", "model"))
        assert unknown.request_id
        hot = raised(openai.BadRequestError, lambda: create(**{**CHAT, "temperature": 3}))
        equal((hot.type, hot.param), ("invalid_request_error", "temperature"))
        long = {**CHAT, "messages": [{"role": "user", "content": "word " * 9000}]}
        overflow = raised(openai.BadRequestError, lambda: create(**long, stream=True))
        equal((overflow.code, overflow.param), ("context_length_exceeded", "messages"))
        assert "maximum context length is" in overflow.message
        stranger = client(api_key="sk-nobody").chat.completions
        error = raised(openai.AuthenticationError, lambda: stranger.create(**CHAT))
        equal((error.code, error.status_code), ("invalid_api_key", 401))
