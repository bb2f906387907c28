"""Tool calls over HTTP, the model's words scripted: shapes, streams, finish reasons, checks."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx2
import msgspec
import pytest

from grammar.errors import ConstraintTooExpensive, UnsupportedConstraint
from grammar.spec import ConstraintSpec, Gap, PreparedConstraint
from runtime.messages import EngineInfo, Submit
from telemetry import names
from tests.byte_tokenizer import byte_assets, with_added_tokens
from tests.gateway_harness import CHAT, Gateway, chat, error_of, in_process, make_gateway
from tests.sse_machine import check_chat_stream

ONE = '<tool_call>\n{"name": "forecast", "arguments": {"city": "Zürich 🌍"}}\n</tool_call>'
TWO = ONE + '\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "forecast", "parameters": CITY}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = [WEATHER, CLOCK]
STRICT = {
    "type": "function",
    "function": {"name": "forecast", "parameters": CITY, "strict": True},
}
LONG = replace(byte_assets(), max_position=2048)


def says(text: str | bytes, **kwargs: Any) -> Gateway:
    """A gateway whose model says this, a byte a token."""
    raw = text.encode() if isinstance(text, str) else text
    gateway = make_gateway(lambda _submit, _choice: list(raw), assets=LONG, **kwargs)
    gateway.engine.info = longer(gateway.engine.info)
    return gateway


def longer(info: EngineInfo | None) -> EngineInfo:
    """A context that has room for tools."""
    assert info is not None
    return msgspec.structs.replace(info, max_model_len=4096)


async def post(gateway: Gateway, **parameters: Any) -> httpx2.Response:
    async with in_process(gateway) as client:
        return await client.post(CHAT, json=chat(**{"tools": TOOLS, **parameters}))


async def choice_of(gateway: Gateway, **parameters: Any) -> dict[str, Any]:
    response = await post(gateway, **parameters)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return dict(choice)


def calls_of(choice: dict[str, Any]) -> list[tuple[str, str]]:
    calls = choice["message"].get("tool_calls", [])
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


async def test_a_call_is_told_from_the_answer_and_content_is_null() -> None:
    choice = await choice_of(says(ONE))
    assert calls_of(choice) == [("forecast", '{"city": "Zürich 🌍"}')]
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["id"].startswith("call_")
    assert len(call["id"]) >= 25


async def test_what_is_said_before_a_call_is_content() -> None:
    choice = await choice_of(says("Let me see.\n" + ONE))
    assert choice["message"]["content"] == "Let me see."
    assert calls_of(choice) == [("forecast", '{"city": "Zürich 🌍"}')]


async def test_tools_are_a_constraint_in_metrics_and_trace() -> None:
    gateway = says(ONE)
    await post(gateway)
    counted_as = '{class="enforced",engine="llguidance",kind="tool_calls"} 1.0'
    body = gateway.metrics.render()[0].decode()
    assert f"radixgate_constraints_total{counted_as}" in body
    assert "radixgate_grammar_compile_seconds_count 1.0" in body
    kinds = [
        (span.attributes or {}).get(names.ATTR_CONSTRAINT_KIND)
        for span in gateway.spans.get_finished_spans()
        if span.name == "chat tiny"
    ]
    assert kinds == ["tool_calls"]


async def test_an_answer_without_calls_has_no_list_of_them() -> None:
    choice = await choice_of(says("It is warm."))
    assert choice["message"]["content"] == "It is warm."
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"


async def test_parallel_calls_are_numbered_from_zero_and_have_ids_of_their_own() -> None:
    """Clients merge calls of one index, and pair results by id."""
    streamed = check_chat_stream((await post(says(TWO), stream=True)).content)
    (calls,) = streamed.calls
    assert [call["name"] for call in calls] == ["forecast", "clock"]
    assert len({call["id"] for call in calls}) == 2
    assert streamed.finish_reasons == ["tool_calls"]


@pytest.mark.parametrize("words", [ONE, TWO, "So:\n" + TWO, "no call", "<tool_call>\n{", ONE[:-3]])
@pytest.mark.parametrize("tokens_per_event", [1, 3, 1000])
async def test_a_stream_says_what_a_whole_answer_says(words: str, tokens_per_event: int) -> None:
    choice = await choice_of(says(words))
    gateway = says(words, tokens_per_event=tokens_per_event)
    streamed = check_chat_stream((await post(gateway, stream=True)).content)
    (calls,) = streamed.calls
    assert [(call["name"], call["arguments"]) for call in calls] == calls_of(choice)
    assert streamed.texts == [choice["message"]["content"] or ""]
    assert streamed.finish_reasons == [choice["finish_reason"]]


async def test_the_last_fragment_comes_before_the_finish_even_in_the_same_step() -> None:
    """The id, type and name were lost elsewhere when arguments ended with the answer."""
    words = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    gateway = says(words, tokens_per_event=1000)
    streamed = check_chat_stream((await post(gateway, stream=True)).content)
    (((call),),) = streamed.calls
    assert (call["name"], call["arguments"]) == ("clock", "{}")


async def test_tools_that_may_not_be_called_leave_the_text_as_it_is() -> None:
    gateway = says(ONE)
    choice = await choice_of(gateway, tool_choice="none")
    assert choice["message"]["content"] == ONE
    assert "tool_calls" not in choice["message"]
    (submit,) = gateway.engine.submitted
    assert submit.constraint is None


async def test_none_without_tools_is_a_plain_request() -> None:
    assert (await post(says("hi"), tools=[], tool_choice="none")).status_code == 200
    assert (await post(says("hi"), tools=None, tool_choice="none")).status_code == 200


async def test_a_call_demanded_by_name_ends_as_openai_has_it() -> None:
    named = {"type": "function", "function": {"name": "forecast"}}
    gateway = says(ONE)
    choice = await choice_of(gateway, tool_choice=named)
    assert choice["finish_reason"] == "stop"
    assert calls_of(choice) == [("forecast", '{"city": "Zürich 🌍"}')]
    (spec,) = gateway.probe.checked
    demanded = json.loads(spec.value)
    assert len(demanded["calls"]) == 1
    assert (demanded["content"], demanded["max_calls"]) == ("none", 1)


@pytest.mark.parametrize(
    ("parameters", "content", "max_calls"),
    [
        ({}, "text", 64),
        ({"tool_choice": "required"}, "none", 64),
        ({"tool_choice": "required", "parallel_tool_calls": False}, "none", 1),
        ({"parallel_tool_calls": False}, "text", 1),
        ({"response_format": {"type": "json_object"}}, {"schema": {"type": "object"}}, 64),
    ],
)
async def test_the_choice_of_tools_is_a_constraint(
    parameters: dict[str, Any], content: Any, max_calls: int
) -> None:
    gateway = says(ONE)
    await choice_of(gateway, **parameters)
    (spec,) = gateway.probe.checked
    assert spec.kind == "tool_calls"
    demanded = json.loads(spec.value)
    assert (demanded.get("content", "text"), demanded["max_calls"]) == (content, max_calls)
    (submit,) = gateway.engine.submitted
    assert submit.constraint is not None


async def test_only_allowed_tools_can_be_called_and_all_are_shown() -> None:
    allowed = {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [{"type": "function", "function": {"name": "clock"}}],
        },
    }
    gateway = says('<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>')
    choice = await choice_of(gateway, tool_choice=allowed)
    assert calls_of(choice) == [("clock", "{}")]
    (spec,) = gateway.probe.checked
    assert "forecast" not in spec.value
    prompt = bytes(i for i in gateway.engine.submitted[0].prompt_token_ids if i < 256)
    assert b"forecast" in prompt


async def test_a_call_that_was_cut_is_no_tool_call_finish() -> None:
    choice = await choice_of(says(ONE), max_tokens=57)
    assert choice["finish_reason"] == "length"
    ((name, arguments),) = calls_of(choice)
    assert (name, arguments) == ("forecast", '{"city": "Z')


async def test_a_stop_string_ends_text_and_no_call() -> None:
    choice = await choice_of(says("one two"), stop=[" two"])
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one", "stop")
    choice = await choice_of(says("one\n" + ONE), stop=["rich", "arguments"])
    assert calls_of(choice) == [("forecast", '{"city": "Zürich 🌍"}')]
    assert choice["message"]["content"] == "one"


@pytest.mark.parametrize("tool_choice", ["auto", "required"])
async def test_a_stop_string_ends_no_call_that_is_cut_before_its_name(tool_choice: str) -> None:
    """Nor is it then called complete."""
    gateway = says(ONE)
    cut = '<tool_call>\n{"name": "fore'
    body = {"max_tokens": len(cut), "tool_choice": tool_choice, "logprobs": True}
    choice = await choice_of(gateway, **body, stop=["name"])
    told = '<tool_call>\n{"'
    assert (choice["message"]["content"], choice["finish_reason"]) == (told, "length")
    raw = [byte for entry in choice["logprobs"]["content"] for byte in entry["bytes"]]
    assert bytes(raw).decode() == told
    choice = await choice_of(gateway, **body, stop=["fox"])
    assert (choice["message"]["content"], choice["finish_reason"]) == (cut, "length")


async def test_log_probabilities_end_before_a_stop_string_that_could_have_been_a_call() -> None:
    choice = await choice_of(says("ab <tool box"), stop=["ool"], logprobs=True)
    raw = [byte for entry in choice["logprobs"]["content"] for byte in entry["bytes"]]
    assert (choice["message"]["content"], bytes(raw)) == ("ab <t", b"ab <t")


async def test_log_probabilities_are_those_of_the_content() -> None:
    choice = await choice_of(says("Hm.\n" + ONE), logprobs=True)
    raw = [byte for entry in choice["logprobs"]["content"] for byte in entry["bytes"]]
    assert bytes(raw) == b"Hm."


async def test_usage_counts_the_tokens_of_calls() -> None:
    response = await post(says(ONE))
    assert response.json()["usage"]["completion_tokens"] == len(ONE.encode()) + 1


async def test_a_strict_call_that_breaks_its_schema_is_an_error_and_no_answer() -> None:
    words = ONE.replace('"city"', '"town"')
    response = await post(says(words), tools=[STRICT])
    assert (response.status_code, error_of(response)["code"]) == (500, "constraint_failed")
    choice = await choice_of(says(words), tools=[WEATHER])
    assert calls_of(choice) == [("forecast", '{"town": "Zürich 🌍"}')]


async def test_an_answer_in_json_is_checked_where_no_call_is_made() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": CITY}}
    choice = await choice_of(says('{"city":"Bern"}'), response_format=form)
    assert choice["message"]["content"] == '{"city":"Bern"}'
    response = await post(says('{"town":"Bern"}'), response_format=form)
    assert (response.status_code, error_of(response)["code"]) == (500, "constraint_failed")
    assert calls_of(await choice_of(says(ONE), response_format=form)) != []


async def test_a_constraint_that_is_no_json_does_not_go_with_tools() -> None:
    response = await post(says("a"), guided_regex="a")
    assert (response.status_code, error_of(response)["param"]) == (400, "guided_regex")


def refuses_schemas(spec: ConstraintSpec) -> PreparedConstraint:
    """As an engine that can do nothing with the schema of a city."""
    if '"city"' in spec.value:
        raise UnsupportedConstraint("it cannot", pointer="/calls/0/schema/properties/city")
    return PreparedConstraint("llguidance", "lark", spec.value)


async def test_a_schema_that_cannot_be_enforced_is_refused_where_it_is_strict_only() -> None:
    gateway = says(ONE)
    gateway.probe.prepare = refuses_schemas
    loosened = await post(gateway)
    assert calls_of(loosened.json()["choices"][0]) != []
    assert loosened.headers["x-radixgate-constraint"] == "partial"
    response = await post(gateway, tools=[STRICT])
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "invalid_function_parameters")
    assert error["param"] == "tools[0].function.parameters"
    assert "/properties/city" in error["message"]


async def test_a_gap_is_refused_where_it_is_strict_only() -> None:
    gateway = says(ONE)
    assert (await post(gateway)).headers["x-radixgate-constraint"] == "enforced"
    gateway.probe.gaps = (Gap("/calls/0/schema/properties/city", "format", "it is not kept"),)
    response = await post(gateway)
    assert calls_of(response.json()["choices"][0]) != []
    assert response.headers["x-radixgate-constraint"] == "partial"
    assert (await post(gateway, tools=[STRICT])).status_code == 400


async def test_tools_that_are_too_much_are_told_so() -> None:
    gateway = says(ONE)
    gateway.probe.error = ConstraintTooExpensive("it takes too long")
    response = await post(gateway)
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "schema_too_complex")
    assert error["param"] == "tools"


def mistral(*marker: str) -> Gateway:
    """A model of a family whose marker is a control token."""
    template = "{{ tools }}[TOOL_CALLS]{{ messages[-1].content }}"
    assets = with_added_tokens(byte_assets(chat_template=template), *marker)
    ids = [*b'[{"name": "clock", "arguments": {}}]']
    trigger = [263] if marker else [*b"[TOOL_CALLS]"]

    def script(_submit: Submit, _choice: int) -> Sequence[int]:
        return [*b"Hm. ", *trigger, *ids]

    gateway = make_gateway(script, assets=assets, tool_dialect="mistral")
    gateway.engine.info = longer(gateway.engine.info)
    return gateway


async def test_log_probabilities_after_a_marker_end_before_a_stop_string_too() -> None:
    gateway = mistral("[TOOL_CALLS]")
    choice = await choice_of(gateway, stop=["me"], logprobs=True, max_tokens=12)
    assert choice["message"]["content"] == 'Hm. [TOOL_CALLS][{"na'
    tokens = [entry["token"] for entry in choice["logprobs"]["content"]]
    assert tokens == [*"Hm. ", "[TOOL_CALLS]", *'[{"na']


@pytest.mark.parametrize("markers", [(), ("[TOOL_CALLS]",)])
async def test_a_marker_may_be_a_control_token_or_a_text(markers: tuple[str, ...]) -> None:
    choice = await choice_of(mistral(*markers))
    assert calls_of(choice) == [("clock", "{}")]
    assert choice["message"]["content"] == "Hm. "
    (call,) = choice["message"]["tool_calls"]
    assert len(call["id"]) == 9


@pytest.mark.parametrize(
    "beside",
    [
        {"content": None},
        {},
        {"content": ""},
        {"content": [{"type": "text", "text": "Let me see."}]},
    ],
)
async def test_histories_of_agents_are_taken_whatever_stands_beside_the_calls(
    beside: dict[str, Any],
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "forecast", "arguments": "{"}}
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [call], **beside},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "warm"}]},
        {"role": "tool", "tool_call_id": "unknown", "content": "cold"},
    ]
    response = await post(says("It is warm."), messages=history)
    assert response.status_code == 200, response.text
