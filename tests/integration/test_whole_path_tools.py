"""Tool calls of a tiny random model over HTTP, under real grammars: the mask makes them calls, in
every dialect, streamed or whole, cold or warm."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from runtime.model_source import open_model
from tests.constrained_model import ConstrainedModel, assert_valid, load_byte_model
from tests.gateway_harness import CHAT, chat
from tests.sse_machine import check_chat_stream
from tests.whole_path import WholePath, serving, stepped_engine

# A model on cores that other work may share.
pytestmark = pytest.mark.timeout(120)

DIALECTS = ("hermes", "llama3_json", "pythonic", "mistral", "granite", "phi")
PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "pattern": "^[A-Z][a-zü]{1,8}$"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "units": {"enum": ["metric", "imperial"]},
    },
    "required": ["city", "units"],
    "additionalProperties": False,
}
FLAGS = {
    "type": "object",
    "properties": {
        "on": {"type": "boolean"},
        "tags": {"type": "array", "maxItems": 2, "items": {"type": "boolean"}},
    },
    "required": ["on"],
    "additionalProperties": False,
}
SCHEMAS = {"forecast": PLACE, "switch": FLAGS}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
    for name, schema in SCHEMAS.items()
]
ONLY_SWITCH = {"type": "function", "function": {"name": "switch"}}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConstrainedModel]:
    bench = ConstrainedModel(load_byte_model(tmp_path_factory.mktemp("tiny") / "bytes"))
    yield bench
    bench.close()


@asynccontextmanager
async def served(bench: ConstrainedModel, dialect: str) -> AsyncIterator[WholePath]:
    assets = open_model(bench.model.config.model).text
    engine = stepped_engine(
        bench.model.executor, bench.model.info, assets=assets, max_running=8, max_step_tokens=64
    )
    async with serving(engine, assets=assets, tool_dialect=dialect) as path:
        path.probe.prepare = bench.grammar.prepare
        yield path
        engine.assert_idle()


def asked(**parameters: Any) -> dict[str, Any]:
    settled = {"temperature": 0, "max_tokens": 600, "tools": TOOLS, "tool_choice": "required"}
    return chat("Weather?", **{**settled, **parameters})


async def called(client: httpx2.AsyncClient, body: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Names and arguments of all choices, with each choice's end; streamed and whole the same."""
    whole = await client.post(CHAT, json=body)
    assert whole.status_code == 200, whole.text
    told = []
    for choice in whole.json()["choices"]:
        assert choice["message"]["content"] is None
        for call in choice["message"]["tool_calls"]:
            function = call["function"]
            told.append((function["name"], function["arguments"], choice["finish_reason"]))
    num_choices = body.get("n", 1)
    response = await client.post(CHAT, json={**body, "stream": True})
    stream = check_chat_stream(response.content, num_choices=num_choices)
    streamed = [
        (call["name"], call["arguments"], stream.finish_reasons[choice])
        for choice in range(num_choices)
        for call in stream.calls[choice]
    ]
    assert streamed == told
    return told


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_required_calls_are_made_and_fit_their_schemas(
    bench: ConstrainedModel, dialect: str
) -> None:
    names = set()
    async with served(bench, dialect) as path, path.client() as client:
        told = await called(client, asked(temperature=1, seed=1, n=8, parallel_tool_calls=False))
    assert len(told) == 8, "one call a choice"
    for name, arguments, reason in told:
        names.add(name)
        assert reason == "tool_calls"
        assert_valid(SCHEMAS[name], arguments)
    assert names == set(SCHEMAS)


@pytest.mark.parametrize(("dialect", "joint"), [("llama3_json", ";"), ("mistral", ",")])
async def test_several_calls_are_told_apart(
    bench: ConstrainedModel, dialect: str, joint: str
) -> None:
    joints = {str(token_id): 100 for token_id in bench.model.encode(joint)}
    body = asked(tools=TOOLS[1:], temperature=1, seed=1, max_tokens=300, logit_bias=joints)
    async with served(bench, dialect) as path, path.client() as client:
        told = await called(client, body)
    *complete, last = told
    assert complete
    for name, arguments, reason in complete:
        assert (name, reason) == ("switch", last[2])
        assert_valid(FLAGS, arguments)


@pytest.mark.parametrize("dialect", ["hermes", "pythonic"])
async def test_a_call_by_name_is_of_that_function(bench: ConstrainedModel, dialect: str) -> None:
    async with served(bench, dialect) as path, path.client() as client:
        told = await called(client, asked(tool_choice=ONLY_SWITCH))
    ((name, arguments, reason),) = told
    assert (name, reason) == ("switch", "stop")
    assert_valid(FLAGS, arguments)


TALK = {"min_tokens": 5}


@pytest.mark.parametrize("dialect", ["hermes", "llama3_json", "pythonic"])
async def test_a_model_that_may_call_may_also_just_talk(
    bench: ConstrainedModel, dialect: str
) -> None:
    async with served(bench, dialect) as path, path.client() as client:
        response = await client.post(CHAT, json=asked(tool_choice="auto", max_tokens=30, **TALK))
        free = await client.post(CHAT, json=asked(tool_choice="none", max_tokens=30, **TALK))
    assert response.status_code == free.status_code == 200
    message = response.json()["choices"][0]["message"]
    assert message["content"] or message.get("tool_calls")
    assert free.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize("dialect", ["hermes", "pythonic"])
async def test_with_a_form_of_answer_there_is_a_call_or_that_form(
    bench: ConstrainedModel, dialect: str
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": FLAGS, "strict": True}}
    body = asked(tool_choice="auto", response_format=form, temperature=1, seed=1, n=8)
    async with served(bench, dialect) as path, path.client() as client:
        response = await client.post(CHAT, json={**body, "max_tokens": 300})
    ends = set()
    for choice in response.json()["choices"]:
        calls = choice["message"].get("tool_calls", [])
        ends.add((bool(calls), choice["finish_reason"]))
        if not calls and choice["finish_reason"] == "stop":
            assert_valid(FLAGS, choice["message"]["content"])
        elif choice["finish_reason"] == "tool_calls":
            for call in calls:
                assert_valid(SCHEMAS[call["function"]["name"]], call["function"]["arguments"])
    assert (False, "stop") in ends
    assert any(has_calls for has_calls, _ in ends)


async def test_the_next_turn_finds_its_call_in_the_cache(bench: ConstrainedModel) -> None:
    """What the model wrote is what the next prompt repeats, to the token."""
    async with served(bench, "hermes") as path, path.client() as client:
        first = await client.post(CHAT, json=asked(parallel_tool_calls=False))
        message = first.json()["choices"][0]["message"]
        (call,) = message["tool_calls"]
        json.loads(call["function"]["arguments"])
        history = [
            {"role": "user", "content": "Weather?"},
            message,
            {"role": "tool", "tool_call_id": call["id"], "content": "warm"},
        ]
        second = await client.post(CHAT, json={**asked(), "messages": history, "max_tokens": 1})
    usage, before = second.json()["usage"], first.json()["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    # What the grammar forced at the very end was not computed, as nothing came after it.
    forced = len("\n</tool_call>") + 2
    assert cached >= before["prompt_tokens"] + before["completion_tokens"] - forced
