"""Walks the whole table of parameters through real requests."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.parameter_table import PARAMETERS, Action, Endpoint, Parameter
from runtime.messages import Submit
from tests.byte_tokenizer import CHATML, byte_assets
from tests.fake_token_engine import hello
from tests.gateway_harness import (
    MODEL,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
    response,
)

TAGS = {
    "structures": [{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}],
    "triggers": ["<f"],
}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "strict": True}}
EXPLICIT, EPHEMERAL = {"mode": "explicit"}, {"type": "ephemeral", "ttl": "1h"}


def marked_chat(**marks: Any) -> dict[str, Any]:
    """A message, a part of which has them."""
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi", **marks}]}]}


def marked_input(**marks: Any) -> dict[str, Any]:
    part = {"type": "input_text", "text": "hi", **marks}
    return {"input": [{"role": "user", "content": [part]}]}


def marked_output(**marks: Any) -> dict[str, Any]:
    """A call and its result, a part of which has them."""
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    part = {"type": "input_text", "text": "hi", **marks}
    return {"input": [call, {"type": "function_call_output", "call_id": "c", "output": [part]}]}


# A template that has a use for every variable of a request.
THINKING = CHATML + "{% if enable_thinking %}{% endif %}"
# A value for each implemented row; the request it makes must succeed.
VALUES: dict[str, dict[str, Any]] = {
    "model": {"model": MODEL},
    "messages": {"messages": [{"role": "user", "content": "hi"}]},
    "prompt": {"prompt": "hi"},
    "max_tokens": {"max_tokens": 5},
    "max_completion_tokens": {"max_completion_tokens": 5},
    "n_predict": {"n_predict": 5},
    "temperature": {"temperature": 0.5},
    "top_p": {"top_p": 0.9},
    "top_k": {"top_k": 40},
    "min_p": {"min_p": 0.05},
    "frequency_penalty": {"frequency_penalty": 0.5},
    "presence_penalty": {"presence_penalty": 0.5},
    "repetition_penalty": {"repetition_penalty": 1.1},
    "repeat_penalty": {"repeat_penalty": 1.1},
    "logit_bias": {"logit_bias": {"5": 1}},
    "top_logprobs": {"logprobs": True, "top_logprobs": 2},
    "n": {"n": 2},
    "seed": {"seed": 7},
    "stop": {"stop": ["x"]},
    "stop_token_ids": {"stop_token_ids": [5]},
    "min_tokens": {"min_tokens": 1},
    "ignore_eos": {"ignore_eos": True},
    "stream": {"stream": True},
    "stream_options": {"stream": True, "stream_options": {}},
    "stream_options.include_usage": {"stream": True, "stream_options": {"include_usage": True}},
    "response_format": {"response_format": {"type": "json_object"}},
    "structured_outputs": {"structured_outputs": {"regex": "a+"}},
    "structured_outputs.json": {"structured_outputs": {"json": {"type": "object"}}},
    "structured_outputs.regex": {"structured_outputs": {"regex": "a+"}},
    "structured_outputs.choice": {"structured_outputs": {"choice": ["a", "b"]}},
    "structured_outputs.grammar": {"structured_outputs": {"grammar": 'root ::= "a"'}},
    "structured_outputs.json_object": {"structured_outputs": {"json_object": True}},
    "structured_outputs.structural_tag": {"structured_outputs": {"structural_tag": TAGS}},
    "structured_outputs.whitespace_pattern": {
        "structured_outputs": {"json_object": True, "whitespace_pattern": "[ ]?"}
    },
    "structured_outputs.disable_any_whitespace": {
        "structured_outputs": {"json_object": True, "disable_any_whitespace": True}
    },
    "structured_outputs.backend": {"structured_outputs": {"regex": "a+", "backend": "xgrammar"}},
    "structured_outputs.allow_checked": {
        "structured_outputs": {"json_object": True, "allow_checked": True}
    },
    "guided_json": {"guided_json": {"type": "object"}},
    "guided_regex": {"guided_regex": "a+"},
    "guided_choice": {"guided_choice": ["a", "b"]},
    "guided_grammar": {"guided_grammar": "start: /a+/"},
    "guided_decoding_backend": {"guided_regex": "a+", "guided_decoding_backend": "guidance"},
    "guided_whitespace_pattern": {"guided_json": "{}", "guided_whitespace_pattern": "[\\n ]?"},
    "regex": {"regex": "a+"},
    "ebnf": {"ebnf": 'root ::= "a"'},
    "json_schema": {"json_schema": '{"type": "object"}'},
    "grammar": {"grammar": 'root ::= "a"'},
    "allow_checked": {"allow_checked": True},
    "cache_salt": {"cache_salt": "team"},
    "extra_key": {"extra_key": "team"},
    "modalities": {"modalities": ["text"]},
    "allowed_token_ids": {"allowed_token_ids": [5]},
    "bad_words": {"bad_words": ["x"]},
    "include_stop_str_in_output": {"stop": "x", "include_stop_str_in_output": True},
    "no_stop_trim": {"stop": "x", "no_stop_trim": True},
    "skip_special_tokens": {"skip_special_tokens": False},
    "add_special_tokens": {"add_special_tokens": False},
    "return_token_ids": {"return_token_ids": True},
    "return_tokens_as_token_ids": {"return_tokens_as_token_ids": True},
    "truncate_prompt_tokens": {"truncate_prompt_tokens": 1},
    "cache_prompt": {"cache_prompt": False},
    "prompt_cache_key": {"prompt_cache_key": "mine"},
    "prompt_cache_options": {"prompt_cache_options": {"mode": "implicit"}},
    "prompt_cache_options.mode": {"prompt_cache_options": {"mode": "explicit"}},
    "prompt_cache_options.ttl": {"prompt_cache_options": {"ttl": "30m"}},
    "prompt_cache_retention": {"prompt_cache_retention": "24h"},
    "messages.content.prompt_cache_breakpoint": marked_chat(prompt_cache_breakpoint=EXPLICIT),
    "messages.content.cache_control": marked_chat(cache_control=EPHEMERAL),
    "messages.cache_control": {
        "messages": [{"role": "user", "content": "hi", "cache_control": EPHEMERAL}]
    },
    "tools.cache_control": {
        "tools": [{**TOOL, "cache_control": EPHEMERAL}],
        "tool_choice": "none",
    },
    "request_id": {"request_id": "mine"},
    "rid": {"rid": "mine"},
    "tools": {"tools": [TOOL], "tool_choice": "none"},
    "tools.function.strict": {"tools": [TOOL], "tool_choice": "none"},
    "tool_choice": {"tool_choice": "none"},
    "parallel_tool_calls": {"parallel_tool_calls": False},
    "reasoning_effort": {"reasoning_effort": "low"},
    "chat_template_kwargs": {"chat_template_kwargs": {"date": "today"}},
    "add_generation_prompt": {"add_generation_prompt": False},
    "continue_final_message": {"continue_final_message": True},
    "include_reasoning": {"include_reasoning": False},
    "separate_reasoning": {"separate_reasoning": False},
    "echo": {"echo": True},
    "suffix": {"suffix": ""},
}
FLAT_TOOL = {"type": "function", "name": "f", "strict": True}
PREVIOUS = "previous_response_id"
LOGPROBS = "message.output_text.logprobs"
# Where Responses has another shape under the name.
RESPONSES_VALUES: dict[str, dict[str, Any]] = {
    "input": {"input": [{"role": "user", "content": "hi"}]},
    "instructions": {"instructions": "Be brief."},
    "max_output_tokens": {"max_output_tokens": 5},
    "tools": {"tools": [FLAT_TOOL], "tool_choice": "none"},
    "tools.strict": {"tools": [FLAT_TOOL], "tool_choice": "none"},
    "text": {"text": {}},
    "text.format": {"text": {"format": {"type": "json_object"}}},
    "reasoning": {"reasoning": {}},
    "reasoning.effort": {"reasoning": {"effort": "low"}},
    "include": {"include": [LOGPROBS]},
    "top_logprobs": {"include": [LOGPROBS], "top_logprobs": 2},
    "truncation": {"truncation": "auto"},
    "store": {"store": False},
    "input.content.prompt_cache_breakpoint": marked_input(prompt_cache_breakpoint=EXPLICIT),
    "input.content.cache_control": marked_input(cache_control=EPHEMERAL),
    "input.output.prompt_cache_breakpoint": marked_output(prompt_cache_breakpoint=EXPLICIT),
    "input.output.cache_control": marked_output(cache_control=EPHEMERAL),
    "input.cache_control": {
        "input": [{"role": "user", "content": "hi", "cache_control": EPHEMERAL}]
    },
    "tools.cache_control": {
        "tools": [{**FLAT_TOOL, "cache_control": EPHEMERAL}],
        "tool_choice": "none",
    },
}
# Ignored rows whose value has a type that is checked all the same, as the answer repeats it.
TYPED = {
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "stream_options.include_usage": True,
}
BODIES = {Endpoint.CHAT: chat, Endpoint.COMPLETIONS: completion, Endpoint.RESPONSES: response}

# Their rows meet real requests in test_tokenize.py and test_embeddings.py.
ELSEWHERE = {Endpoint.EMBEDDINGS, Endpoint.TOKENIZE, Endpoint.DETOKENIZE}

Row = tuple[Endpoint, Parameter]


def rows(action: Action) -> list[Any]:
    return [
        pytest.param((endpoint, row), id=f"{endpoint.name} {row.name}")
        for row in PARAMETERS
        if row.action is action
        for endpoint in sorted(row.endpoints)
        if endpoint not in ELSEWHERE
    ]


def nested(name: str, value: Any) -> dict[str, Any]:
    """A body that has the value under the dotted name. The rows' lists are messages, contents,
    calls, tools, and the parts of what was thought."""
    first, *rest = name.replace("*", "x").split(".")
    for key in reversed(rest):
        value = {key: value}
    match first:
        case "messages" if rest[:1] == ["content"]:
            part = {"type": "text", "text": "hi", **value["content"]}
            return {"messages": [{"role": "user", "content": [part]}]}
        case "messages" if rest[:1] == ["tool_calls"]:
            call = {"id": "c", "type": "function", **value["tool_calls"]}
            call["function"] = {"name": "f", "arguments": "{}", **call.get("function", {})}
            result = {"role": "tool", "tool_call_id": "c", "content": "hi"}
            return {"messages": [{"role": "assistant", "tool_calls": [call]}, result]}
        case "messages" if rest:
            return {"messages": [{"role": "assistant", "content": "hi", **value}]}
        case "input" if rest[:1] == ["summary"]:
            said = {"type": "summary_text", "text": "hi", **value["summary"]}
            user = {"role": "user", "content": "hi"}
            return {"input": [{"type": "reasoning", "summary": [said]}, user]}
        case "input" if rest[:1] != ["content"]:
            return {"input": [{"role": "user", "content": "hi", **value}]}
        case "input":
            part = {"type": "input_text", "text": "hi", **value["content"]}
            return {"input": [{"role": "user", "content": [part]}]}
        case "tools":
            # In the forms of both endpoints.
            function = {**TOOL["function"], **value.pop("function", {})}
            tool = {**FLAT_TOOL, "function": function, **value}
            return {"tools": [tool], "tool_choice": "none"}
        case "stream_options":
            return {"stream": True, first: value}
        case _:
            return {first: value}


def fitting(submit: Submit, choice: int) -> Sequence[int]:
    """An answer to each constraint of the table; the fake prepares one as what was asked for."""
    if submit.constraint is None:
        return hello(submit, choice)
    return list(b"a" if submit.constraint.grammar.startswith("[") else b"{}")


async def post(endpoint: Endpoint, parameters: dict[str, Any]) -> Any:
    gateway = make_gateway(fitting, assets=byte_assets(chat_template=THINKING))
    async with in_process(gateway) as client:
        return await client.post(endpoint, json=BODIES[endpoint](**{}) | parameters)


@pytest.mark.parametrize(
    "case",
    # This one takes two requests: tests/integration/http/test_responses.py
    [case for case in rows(Action.IMPLEMENTED) if case.values[0][1].name != PREVIOUS],
)
async def test_implemented_parameter_is_accepted_and_not_called_ignored(case: Row) -> None:
    endpoint, row = case
    logprobs: Any = True if endpoint is Endpoint.CHAT else 2
    values = VALUES | {"logprobs": {"logprobs": logprobs}}
    if endpoint is Endpoint.RESPONSES:
        values |= RESPONSES_VALUES
    response = await post(endpoint, values[row.name])
    assert response.status_code == 200, response.text
    assert "x-radixgate-ignored" not in response.headers


@pytest.mark.parametrize("case", rows(Action.IGNORED))
async def test_ignored_parameter_is_accepted_and_named(case: Row) -> None:
    endpoint, row = case
    response = await post(endpoint, nested(row.name, TYPED.get(row.name, 1)))
    assert response.status_code == 200, response.text
    assert response.headers["x-radixgate-ignored"] == row.name


@pytest.mark.parametrize("case", rows(Action.REFUSED))
async def test_refused_parameter_is_named_in_a_400(case: Row) -> None:
    endpoint, row = case
    response = await post(endpoint, nested(row.name, "some"))
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "unsupported_parameter")
    named = row.name.replace("*", "x")
    # Whoever sends a part of a refused object hears of the object.
    assert named == error["param"] or named.startswith(error["param"] + ".")


@pytest.mark.parametrize(
    "case", [case for case in rows(Action.REFUSED) if not case.values[0][1].is_nested]
)
async def test_refused_parameter_that_asks_for_nothing_is_accepted(case: Row) -> None:
    endpoint, row = case
    for value in (None, *row.harmless):
        response = await post(endpoint, {row.name.replace("*", "x"): value})
        assert response.status_code == 200, response.text
        assert "x-radixgate-ignored" not in response.headers


async def test_best_of_may_agree_with_n() -> None:
    assert (await post(Endpoint.COMPLETIONS, {"n": 2, "best_of": 2})).status_code == 200
    assert (await post(Endpoint.COMPLETIONS, {"n": 2, "best_of": 1})).status_code == 400


async def test_ignored_names_keep_the_order_of_the_request() -> None:
    response = await post(Endpoint.CHAT, {"zebra": 1, "user": "u", "apple": 2})
    assert response.headers["x-radixgate-ignored"] == "zebra,user,apple"


async def test_strict_server_refuses_unknown_parameters() -> None:
    async with in_process(make_gateway(strict_params=True)) as client:
        unknown = await client.post(Endpoint.CHAT, json=chat(zebra=1))
        known = await client.post(Endpoint.CHAT, json=chat(user="u"))
    error = error_of(unknown)
    assert (unknown.status_code, error["code"]) == (400, "unknown_parameter")
    assert error["param"] == "zebra"
    assert known.status_code == 200


async def test_stop_is_named_where_a_constraint_overrules_it() -> None:
    response = await post(Endpoint.CHAT, {"stop": "x", "structured_outputs": {"regex": "a"}})
    assert response.headers["x-radixgate-ignored"] == "stop"


async def test_ignored_names_are_counted_and_those_of_clients_are_one() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        await client.post(Endpoint.CHAT, json=chat(user="u", zebra=1, apple=2))
        text = (await client.get("/metrics")).text
    assert 'radixgate_ignored_parameters_total{name="user"} 1.0' in text
    assert 'radixgate_ignored_parameters_total{name="unknown"} 2.0' in text
    assert "zebra" not in text
