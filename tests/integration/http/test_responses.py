"""/v1/responses and what is asked of responses that are kept, on the wire."""

import json
from collections.abc import Sequence
from typing import Any

import httpx2
import msgspec
import pytest
from openai.lib._tools import pydantic_responses_function_tool
from pydantic import BaseModel

from gateway.generation import FinishReason, ServedModel, TextDelta
from runtime.messages import EngineFault, ErrorCode, Submit
from telemetry import names
from tests.conformance.target import Target
from tests.gateway_harness import (
    CHAT,
    MODEL,
    RESPONSES,
    Gateway,
    chat,
    error_of,
    in_process,
    listening,
    make_gateway,
    response,
)
from tests.responses_client import UNKNOWN, comparable, create, refused, said, stream
from tests.responses_machine import check_responses_stream
from tests.scripted_model import Deltas, ScriptedModel, call_delta

NO_PREVIOUS = (404, "previous_response_not_found", "previous_response_id")
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


def scripted(
    *turns: tuple[Deltas, FinishReason],
) -> tuple[Gateway, list[ScriptedModel]]:
    """A gateway whose model answers the turns in their order."""
    rest = list(turns)
    models: list[ScriptedModel] = []

    def around(model: ServedModel) -> ServedModel:
        models.append(ScriptedModel(model, lambda _prompt: rest.pop(0)))
        return models[0]

    gateway = make_gateway(around=around)
    assert gateway.engine.info is not None
    gateway.engine.info = msgspec.structs.replace(gateway.engine.info, max_model_len=1024)
    return gateway, models


# Faults that other servers were known for


async def test_completed_event_has_the_text_that_the_deltas_had() -> None:  # vllm#30223
    async with in_process(make_gateway()) as client:
        answer = await stream(client)
    assert said(answer.response) == "".join(answer.texts) == "Hello, world!"


async def test_every_event_is_there_and_numbered_by_one() -> None:  # litellm#24445, ogx#5309
    async with in_process(make_gateway(tokens_per_event=7)) as client:
        answer = await stream(client)
    assert answer.types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


async def test_truncated_response_is_called_incomplete() -> None:  # vllm#45386, langchain#33840
    async with in_process(make_gateway()) as client:
        whole = await create(client, max_output_tokens=5)
        streamed = await stream(client, max_output_tokens=5)
    for body in (whole, streamed.response):
        assert (body["status"], said(body)) == ("incomplete", "Hello")
        assert body["incomplete_details"] == {"reason": "max_output_tokens"}
        assert body["usage"]["output_tokens"] == 5
    assert streamed.types[-1] == "response.incomplete"


async def test_usage_adds_up_and_has_its_details_in_both_modes() -> None:  # sglang#10012
    gateway = make_gateway()
    gateway.engine.cached_tokens = 5
    async with in_process(gateway) as client:
        whole, streamed = await create(client), await stream(client)
    assert whole["usage"] == streamed.response["usage"]
    assert whole["usage"] == {
        "input_tokens": 21,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 16},
        "output_tokens": 14,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 35,
    }


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"max_output_tokens": 3},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
        {"text": {"format": {"type": "json_object"}}, "metadata": {"a": "b"}},
    ],
)
async def test_a_stream_ends_in_the_response_that_is_given_whole(
    parameters: dict[str, Any],
) -> None:
    def braces(submit: Any, _choice: int) -> list[int]:
        return list(b"{}" if submit.constraint is not None else "Hello, caf\u00e9!".encode())

    async with in_process(make_gateway(braces)) as client:
        whole = await create(client, **parameters)
        streamed = await stream(client, **parameters)
    assert comparable(whole) == comparable(streamed.response)


# Items


async def test_calls_and_thoughts_are_items_of_their_own() -> None:
    turn: Deltas = (
        TextDelta(0, "", reasoning="hm"),
        TextDelta(0, "I look."),
        call_delta(0, "weather", '{"city":', '"Rome"}'),
        call_delta(1, "weather", "{}"),
    )
    gateway, _ = scripted((turn, "tool_calls"), (turn, "tool_calls"))
    async with in_process(gateway) as client:
        whole, streamed = await create(client), await stream(client)
    assert comparable(whole) == comparable(streamed.response)
    assert [item["type"] for item in whole["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert whole["output"][2]["arguments"] == '{"city":"Rome"}'
    assert whole["status"] == "completed"


async def test_calls_are_read_out_of_what_the_model_writes() -> None:
    def written(_submit: Submit, _choice: int) -> Sequence[int]:
        calls = ('{"name": "weather", "arguments": {"city": "Rome"}}', '{"name": "weather"')
        return list(f"Hm.<tool_call>\n{calls[0]}\n</tool_call>\n<tool_call>\n{calls[1]}".encode())

    gateway = make_gateway(written, tokens_per_event=5)
    assert gateway.engine.info is not None
    gateway.engine.info = msgspec.structs.replace(gateway.engine.info, max_model_len=1024)
    async with in_process(gateway) as client:
        whole = await create(client, tools=[TOOL], max_output_tokens=90)
        streamed = await stream(client, tools=[TOOL], max_output_tokens=90)
    message, call = whole["output"][:2]
    assert message["content"][0]["text"] == "Hm."
    assert (call["name"], json.loads(call["arguments"])) == ("weather", {"city": "Rome"})
    assert whole["status"] == streamed.response["status"] == "incomplete"
    assert [kind["type"] for kind in whole["output"]] == [
        kind["type"] for kind in streamed.response["output"]
    ]


async def test_tools_reach_the_model_in_the_shape_of_chat() -> None:
    gateway, models = scripted(((TextDelta(0, "ok"),), "stop"))
    async with in_process(gateway) as client:
        body = await create(client, tools=[TOOL], tool_choice="none", parallel_tool_calls=False)
    assert body["tools"] == [{**TOOL, "description": None, "strict": None}]
    assert body["tool_choice"] == "none"
    assert models[0].requests[0].tools is None


async def test_a_tool_round_trip_goes_on_with_the_stored_call() -> None:
    gateway, models = scripted(
        ((call_delta(0, "weather", '{"city":"Rome"}'),), "tool_calls"),
        ((TextDelta(0, "Sunny."),), "stop"),
    )
    async with in_process(gateway) as client:
        first = await create(client, "Rome?", instructions="Be brief.")
        result = {"type": "function_call_output", "call_id": "call_0", "output": "sunny"}
        second = await create(client, [result], previous_response_id=first["id"])
    assert said(second) == "Sunny."
    assert second["previous_response_id"] == first["id"]
    call = {
        "id": "call_0",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
    }
    assert models[0].prompts[1].messages == (
        {"role": "user", "content": "Rome?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0", "content": "sunny"},
    )


async def test_instructions_come_first_and_are_not_carried_over() -> None:
    gateway, models = scripted(((TextDelta(0, "a"),), "stop"), ((TextDelta(0, "b"),), "stop"))
    async with in_process(gateway) as client:
        first = await create(client, "1", instructions="old")
        second = await create(client, "2", instructions="new", previous_response_id=first["id"])
    assert [message["content"] for message in models[0].prompts[1].messages] == [
        "new",
        "1",
        "a",
        "2",
    ]
    assert (first["instructions"], second["instructions"]) == ("old", "new")


async def test_output_can_be_sent_back_as_it_came() -> None:
    turn = (TextDelta(0, "Sure.", reasoning="hm"), call_delta(0, "weather", "{}"))
    gateway, models = scripted((turn, "tool_calls"), ((TextDelta(0, "ok"),), "stop"))
    async with in_process(gateway) as client:
        first = await create(client, "q", store=False)
        result = {"type": "function_call_output", "call_id": "call_0", "output": "x"}
        question = {"role": "user", "content": "q"}
        await create(client, [question, *first["output"], result], store=False)
    assistant = models[0].prompts[1].messages[1]
    assert assistant["content"] == "Sure."
    assert assistant["reasoning_content"] == "hm"
    assert [call["id"] for call in assistant["tool_calls"]] == ["call_0"]


async def test_items_may_be_named_instead_of_sent() -> None:
    gateway, models = scripted(((TextDelta(0, "a"),), "stop"), ((TextDelta(0, "b"),), "stop"))
    async with in_process(gateway) as client:
        first = await create(client, "1")
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        await create(client, [reference, {"role": "user", "content": "2"}])
        lost = {"type": "item_reference", "id": "msg_none_0"}
        assert await refused(client, given=[lost]) == (404, "item_not_found", "input[0].id")
    assert [message["content"] for message in models[0].prompts[1].messages] == ["a", "2"]


async def test_the_official_client_runs_a_tool_and_goes_on() -> None:
    class Weather(BaseModel):
        city: str

    gateway, models = scripted(
        (
            (TextDelta(0, "", reasoning="hm"), call_delta(0, "Weather", '{"city":', '"Rome"}')),
            "tool_calls",
        ),
        ((TextDelta(0, "Sunny."),), "stop"),
        ((TextDelta(0, "Still."),), "stop"),
    )
    tool: Any = pydantic_responses_function_tool(Weather)
    async with listening(gateway) as base_url, Target(base_url, MODEL).openai() as client:
        async with client.responses.stream(model=MODEL, input="Rome?", tools=[tool]) as events:
            first = await events.get_final_response()
        (call,) = [item for item in first.output if item.type == "function_call"]
        result: Any = {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": "sunny",
        }
        second = await client.responses.create(
            model=MODEL,
            previous_response_id=first.id,
            input=[result],
        )
        # Another way: all that was said is sent back.
        history: Any = [{"role": "user", "content": "Rome?"}, *first.output, result]
        third = await client.responses.create(model=MODEL, input=history)
        items = [item.type async for item in client.responses.input_items.list(third.id)]
    assert call.parsed_arguments == Weather(city="Rome")
    assert second.output_text == "Sunny."
    assert models[0].prompts[1].messages == models[0].prompts[2].messages
    assert models[0].prompts[1].messages[-1]["content"] == "sunny"
    assert items == ["function_call_output", "function_call", "reasoning", "message"]


# Errors


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"given": []}, (400, "empty_array", "input")),
        ({"given": [{"type": "reasoning", "summary": []}]}, (400, "empty_array", "input")),
        ({"given": [{"role": "user", "content": "\ud83d"}]}, (400, "invalid_json", None)),
        ({"model": "nope"}, (404, "model_not_found", "model")),
        ({"max_tokens": 5}, (400, "unsupported_parameter", "max_tokens")),
        ({"conversation": "conv_1"}, (400, "unsupported_parameter", "conversation")),
        ({"background": True}, (400, "unsupported_parameter", "background")),
        ({"temperature": "hot"}, (400, "invalid_type", "temperature")),
        ({"previous_response_id": UNKNOWN}, NO_PREVIOUS),
        ({"previous_response_id": "a:b\n*"}, NO_PREVIOUS),
    ],
)
async def test_a_request_that_cannot_be_answered_is_an_error_before_any_event(
    parameters: dict[str, Any], expected: tuple[int, str, str | None]
) -> None:
    async with in_process(make_gateway()) as client:
        for is_stream in (False, True):
            body = json.dumps(response(**{"given": "hi", "stream": is_stream}) | _named(parameters))
            answer = await client.post(
                RESPONSES, content=body, headers={"content-type": "application/json"}
            )
            error = error_of(answer)
            assert (answer.status_code, error["code"], error["param"]) == expected


def _named(parameters: dict[str, Any]) -> dict[str, Any]:
    return {("input" if name == "given" else name): value for name, value in parameters.items()}


@pytest.mark.parametrize("code", [ErrorCode.ENGINE_DIED, ErrorCode.INTERNAL])
async def test_a_stream_that_breaks_ends_in_response_failed(code: ErrorCode) -> None:
    gateway = make_gateway()
    gateway.engine.fault = EngineFault(code=code, message="it went wrong")
    gateway.engine.fault_after = 3
    async with in_process(gateway) as client:
        answer = await stream(client)
    assert answer.types[-1] == "response.failed"
    assert answer.response["error"]["code"] == "server_error"
    assert answer.response["error"]["message"] == "it went wrong"
    assert said(answer.response) == "Hel"
    assert answer.response["output"][0]["status"] == "incomplete"


async def test_an_answer_that_breaks_before_it_is_given_has_a_status() -> None:
    gateway = make_gateway()
    gateway.engine.fault = EngineFault(code=ErrorCode.INTERNAL, message="it went wrong")
    gateway.engine.fault_after = 3
    async with in_process(gateway) as client:
        answer = await client.post(RESPONSES, json=response())
    assert (answer.status_code, error_of(answer)["message"]) == (500, "it went wrong")


@pytest.mark.parametrize("mode", ["comment", "chunk"])
async def test_keep_alives_do_not_break_the_numbering(mode: str) -> None:
    gateway = make_gateway(keepalive=mode, keepalive_s=0.02)
    gateway.engine.hold("decode")
    async with listening(gateway) as base_url, httpx2.AsyncClient(base_url=base_url) as client:
        async with client.stream("POST", RESPONSES, json=response(stream=True)) as answer:
            received = b""
            async for piece in answer.aiter_raw():
                received += piece
                if received.count(b": ping") == 2:
                    gateway.engine.release()
    assert check_responses_stream(received).num_comments >= 2


# Around it


async def test_the_answers_schema_is_enforced_under_its_flat_name() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    text = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    gateway = make_gateway(lambda _submit, _choice: list(b"{}"))
    async with in_process(gateway) as client:
        answer = await client.post(RESPONSES, json=response(text=text))
    assert answer.headers["x-radixgate-constraint"] == "enforced"
    assert answer.json()["text"] == text
    (spec,) = gateway.probe.checked
    assert (spec.kind, json.loads(spec.value)) == ("json_schema", schema)


async def test_sampling_parameters_reach_the_engine_as_from_chat() -> None:
    extras = {"temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 7, "min_p": 0.1}
    gateway = make_gateway()
    async with in_process(gateway) as client:
        await create(client, **extras, max_output_tokens=9, cache_salt="x", stop=["w"])
        await client.post(CHAT, json=chat(**extras, max_tokens=9, cache_salt="x", stop=["w"]))
    ours, theirs = gateway.engine.submitted
    assert ours.sampling == theirs.sampling
    assert (ours.namespace, ours.tenant) == (theirs.namespace, theirs.tenant)
    assert ours.prompt_token_ids == theirs.prompt_token_ids


async def test_what_has_no_effect_is_named_once() -> None:
    include = ["reasoning.encrypted_content", "message.output_text.logprobs"]
    async with in_process(make_gateway()) as client:
        answer = await client.post(
            RESPONSES,
            json=response(
                include=include, user="u", reasoning={"effort": "low", "summary": "auto"}
            ),
        )
    assert answer.headers["x-radixgate-ignored"].split(",") == [
        "user",
        "reasoning.summary",
        "include.reasoning.encrypted_content",
        "reasoning.effort",
    ]


async def test_a_request_is_one_trace_and_its_routes_are_few() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        body = await create(client)
        await client.get(f"{RESPONSES}/{body['id']}")
        await client.get(f"{RESPONSES}/{body['id']}/input_items")
        await client.delete(f"{RESPONSES}/{body['id']}")
        await client.post(f"{RESPONSES}/{UNKNOWN}/cancel")
        await client.post(f"{RESPONSES}/input_tokens", json=response())
        await client.get(f"{RESPONSES}/a/b/c/{UNKNOWN}")
        await client.get(f"{RESPONSES}/{UNKNOWN}/made_up")
    spans = gateway.spans.get_finished_spans()
    routes = [
        (span.attributes or {})[names.HTTP_ROUTE] for span in spans if span.kind.name == "SERVER"
    ]
    assert routes == [
        RESPONSES,
        f"{RESPONSES}/{{id}}",
        f"{RESPONSES}/{{id}}/input_items",
        f"{RESPONSES}/{{id}}",
        f"{RESPONSES}/{{id}}/cancel",
        f"{RESPONSES}/input_tokens",
    ]
    (inner,) = [span.attributes or {} for span in spans if span.name == "chat tiny"]
    assert inner[names.GEN_AI_OPERATION] == "chat"
    assert inner[names.GEN_AI_RESPONSE_ID] == body["id"]
    assert inner[names.GEN_AI_USAGE_OUTPUT] == 14


async def test_a_browser_may_delete() -> None:
    gateway = make_gateway(cors_origins=("https://app.example",))
    asked = {"origin": "https://app.example", "access-control-request-method": "DELETE"}
    async with in_process(gateway) as client:
        answer = await client.options(f"{RESPONSES}/{UNKNOWN}", headers=asked)
    assert answer.status_code == 200
    assert "DELETE" in answer.headers["access-control-allow-methods"]
