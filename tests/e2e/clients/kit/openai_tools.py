"""Tools in chat through the official Python client: whole, streamed, and the ways to choose."""

import json
from typing import Any

import openai
from features import Checks, equal, present, raised
from openai_chat import STABLE, async_client, check_usage, client
from weather import (
    CHAT_TOOLS,
    QUESTION,
    RESULT,
    TIME,
    TIME_CALL,
    WEATHER,
    WEATHER_CALL,
    check_arguments,
    repeat,
)

MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
ASKED: dict[str, Any] = {
    **STABLE,
    "messages": MESSAGES,
    "tools": CHAT_TOOLS,
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_tokens": 60,
}


def call_of(answer: Any) -> Any:
    """The one call of an answer that has nothing else."""
    (choice,) = answer.choices
    equal((choice.message.content, choice.message.refusal), (None, None))
    (call,) = choice.message.tool_calls
    equal(call.type, "function")
    assert call.id.startswith("call_")
    check_arguments(call.function.name, call.function.arguments)
    return call


def add_tools(checks: Checks) -> None:
    """tools, tool choice, parallel tools."""

    @checks.feature("tools")
    def tools() -> None:
        answer = client().chat.completions.create(**ASKED)
        call = call_of(answer)
        equal(answer.choices[0].finish_reason, "tool_calls")
        check_usage(answer.usage)
        result = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
        turns = [*MESSAGES, answer.choices[0].message, result]
        final = client().chat.completions.create(
            **{**ASKED, "messages": turns, "tool_choice": "none", "max_tokens": 12}
        )
        assert final.choices[0].message.content
        equal(final.choices[0].message.tool_calls, None)

    @checks.feature("tool choice")
    def choice() -> None:
        create = client().chat.completions.create
        for name in (WEATHER["name"], TIME["name"]):
            named = {"type": "function", "function": {"name": name}}
            answer = create(**{**ASKED, "tool_choice": named})
            equal(call_of(answer).function.name, name)
            # As OpenAI's servers say where the client has made the choice.
            equal(answer.choices[0].finish_reason, "stop")
        none = create(**{**ASKED, "tool_choice": "none", "max_tokens": 8}).choices[0]
        equal((none.message.tool_calls, bool(none.message.content)), (None, True))
        asked = {**ASKED, "messages": [{"role": "user", "content": repeat(WEATHER_CALL)}]}
        auto = create(**{**asked, "tool_choice": "auto"})
        equal(decoded([call_of(auto)]), [WEATHER_CALL])
        equal(auto.choices[0].finish_reason, "tool_calls")
        allowed = {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": TIME["name"]}}],
            },
        }
        call = call_of(create(**{**ASKED, "tool_choice": allowed}))
        equal(call.function.name, TIME["name"])
        absent = {"type": "function", "function": {"name": "get_money"}}
        error = raised(openai.BadRequestError, lambda: create(**{**ASKED, "tool_choice": absent}))
        equal(error.param, "tool_choice")

    _add_parallel_tools(checks)


def _add_parallel_tools(checks: Checks) -> None:
    @checks.feature("parallel tools")
    def parallel() -> None:
        messages = [{"role": "user", "content": repeat(WEATHER_CALL, TIME_CALL)}]
        asked = {**ASKED, "messages": messages, "tool_choice": "auto", "max_tokens": 120}
        asked["parallel_tool_calls"] = True
        answer = client().chat.completions.create(**asked)
        calls = present(answer.choices[0].message.tool_calls)
        equal(decoded(calls), [WEATHER_CALL, TIME_CALL])
        assert calls[0].id != calls[1].id
        chunks = client().chat.completions.create(**asked, stream=True)
        deltas = [d for c in chunks for d in c.choices[0].delta.tool_calls or []]
        equal([d.index for d in deltas if d.id], [0, 1])
        for index, call in enumerate(calls):
            parts = [d.function.arguments or "" for d in deltas if d.index == index]
            equal("".join(parts), call.function.arguments)
        one = client().chat.completions.create(**{**asked, "parallel_tool_calls": False})
        equal(decoded(present(one.choices[0].message.tool_calls)), [WEATHER_CALL])


def decoded(calls: Any) -> list[dict[str, Any]]:
    return [
        {"name": call.function.name, "arguments": json.loads(call.function.arguments)}
        for call in calls
    ]


def add_streamed_tools(checks: Checks) -> None:
    """tool stream, tool parse."""

    @checks.feature("tool stream")
    async def stream() -> None:
        call = call_of(client().chat.completions.create(**ASKED))
        async with async_client() as ours:
            chunks = [c async for c in await ours.chat.completions.create(**ASKED, stream=True)]
        deltas = [d for c in chunks for d in c.choices[0].delta.tool_calls or []]
        first, *rest = deltas
        equal((first.index, first.type), (0, "function"))
        equal(present(first.function).name, call.function.name)
        assert present(first.id).startswith("call_")
        assert not any(d.id or d.type or present(d.function).name for d in rest)
        fragments = [present(d.function).arguments or "" for d in deltas]
        equal("".join(fragments), call.function.arguments)
        assert len([f for f in fragments if f]) > 1, "the arguments come in one piece"
        equal([c.choices[0].finish_reason for c in chunks][-1], "tool_calls")
        assert not any(c.choices[0].delta.content for c in chunks)

    @checks.feature("tool parse")
    def parse() -> None:
        whole = client().chat.completions.parse(**ASKED)
        (call,) = present(whole.choices[0].message.tool_calls)
        check_arguments(call.function.name, call.function.parsed_arguments or {})
        with client().chat.completions.stream(**ASKED) as events:
            done = [e for e in events if e.type == "tool_calls.function.arguments.done"]
            final = events.get_final_completion()
        equal([(e.index, e.name) for e in done], [(0, call.function.name)])
        equal(done[0].arguments, call.function.arguments)
        (streamed,) = present(final.choices[0].message.tool_calls)
        equal(streamed.function.parsed_arguments, call.function.parsed_arguments)
