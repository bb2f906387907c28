"""What each parameter does, beyond that it is accepted: its effect on what the engine is asked for
and on what the client is told."""

import json
from collections.abc import Sequence
from typing import Any

import httpx2
import msgspec
import pytest

from runtime.messages import Sampling, Submit
from tests.byte_tokenizer import CHATML, END_OF_TEXT, IM_START, byte_assets
from tests.gateway_harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    RESPONSES,
    Gateway,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
    response,
)
from tests.responses_machine import check_responses_stream
from tests.sse_machine import check_chat_stream, check_completion_stream, read_data

LOGPROBS = {"include": ["message.output_text.logprobs"]}


async def post(gateway: Gateway, path: str, **parameters: Any) -> httpx2.Response:
    async with in_process(gateway) as client:
        answer = await client.post(path, json=BODIES[path](**parameters))
    assert answer.status_code == 200, answer.text
    return answer


def text_of(path: str, answer: httpx2.Response) -> str:
    body = answer.json()
    if path == RESPONSES:
        return "".join(part["text"] for item in body["output"] for part in item["content"])
    (choice,) = body["choices"]
    text: str = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
    return text


async def submitted(path: str, **parameters: Any) -> Submit:
    gateway = make_gateway()
    await post(gateway, path, **parameters)
    (submit,) = gateway.engine.submitted
    return submit


# How tokens are chosen: each changes one thing of what the engine is asked for, and nothing else.
SAMPLING: dict[str, tuple[Any, dict[str, Any]]] = {
    "temperature": (0.5, {"temperature": 0.5}),
    "top_p": (0.9, {"top_p": 0.9}),
    "top_p of 0": (0, {"top_k": 1}),
    "top_k": (40, {"top_k": 40}),
    "top_k of -1": (-1, {}),
    "min_p": (0.05, {"min_p": 0.05}),
    "frequency_penalty": (-0.5, {"frequency_penalty": -0.5}),
    "presence_penalty": (1.5, {"presence_penalty": 1.5}),
    "repetition_penalty": (1.1, {"repetition_penalty": 1.1}),
    "repeat_penalty": (1.2, {"repetition_penalty": 1.2}),
    "logit_bias": ({"5": -1, "7": 2.5}, {"logit_bias": {5: -1.0, 7: 2.5}}),
    "seed": (9, {"seed": 9}),
    "min_tokens": (3, {"min_tokens": 3}),
    "ignore_eos": (True, {"ignore_eos": True}),
    "stop_token_ids": ([5, 7], {"stop_token_ids": (5, 7)}),
    "allowed_token_ids": ([5, 7], {"allowed_token_ids": (5, 7)}),
    "bad_words": (["x"], {"bad_words": ((ord("x"),), tuple(b" x"))}),
}


@pytest.mark.parametrize("path", BODIES)
async def test_each_sampling_parameter_changes_its_own_part_of_the_sampling(path: str) -> None:
    limit = {"max_output_tokens" if path == RESPONSES else "max_tokens": 20}
    gateway = make_gateway()
    async with in_process(gateway) as client:
        for name, (value, changes) in SAMPLING.items():
            body = BODIES[path](**{"seed": 1, **limit, name.split()[0]: value})
            answer = await client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            plain = Sampling(max_tokens=20, temperature=1.0, top_p=1.0, seed=1)
            expected = msgspec.structs.replace(plain, **changes)
            assert gateway.engine.submitted[-1].sampling == expected, name


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_logprobs_are_asked_of_the_engine_only_where_they_are_wanted(path: str) -> None:
    async def num_logprobs(**parameters: Any) -> int | None:
        return (await submitted(path, **parameters)).sampling.num_logprobs

    assert await num_logprobs() is None
    assert await num_logprobs(logprobs=False) is None
    if path == CHAT:
        assert await num_logprobs(logprobs=True) == 0
        assert await num_logprobs(logprobs=True, top_logprobs=7) == 7
    else:
        assert await num_logprobs(logprobs=0) == 0
        assert await num_logprobs(logprobs=3) == 3


@pytest.mark.parametrize("num_best", [0, 1, 5, 20])
async def test_top_logprobs_are_exactly_as_many_as_asked_for_the_best_first(num_best: int) -> None:
    answer = await post(make_gateway(), CHAT, logprobs=True, top_logprobs=num_best)
    entries = answer.json()["choices"][0]["logprobs"]["content"]
    assert {len(entry["top_logprobs"]) for entry in entries} == {num_best}
    for entry in entries:
        values = [best["logprob"] for best in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
    answer = await post(make_gateway(), RESPONSES, top_logprobs=num_best, **LOGPROBS)
    (part,) = answer.json()["output"][0]["content"]
    assert {len(entry["top_logprobs"]) for entry in part["logprobs"]} == {num_best}


async def test_without_include_a_response_has_no_logprobs() -> None:
    (part,) = (await post(make_gateway(), RESPONSES)).json()["output"][0]["content"]
    assert part["logprobs"] == []
    assert (await submitted(RESPONSES)).sampling.num_logprobs is None


@pytest.mark.parametrize("path", BODIES)
async def test_tokens_may_be_named_by_their_ids(path: str) -> None:
    wishes: Any = {CHAT: {"logprobs": True}, COMPLETIONS: {"logprobs": 0}, RESPONSES: LOGPROBS}
    answer = await post(make_gateway(), path, return_tokens_as_token_ids=True, **wishes[path])
    assert f'"token_id:{ord("H")}"' in answer.text
    assert text_of(path, answer) == "Hello, world!"


# Where an answer ends


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_completion_tokens": 3, "max_tokens": 5, "n_predict": 7}, 3),
        ({"max_tokens": 5, "n_predict": 7}, 5),
        ({"max_completion_tokens": None, "max_tokens": 5}, 5),
        ({"n_predict": 7}, 7),
    ],
)
async def test_max_completion_tokens_win_over_max_tokens_and_those_over_n_predict(
    limits: dict[str, Any], expected: int
) -> None:
    answer = await post(make_gateway(), CHAT, **limits)
    assert answer.json()["usage"]["completion_tokens"] == expected
    assert answer.json()["choices"][0]["finish_reason"] == "length"


async def test_without_a_limit_a_chat_may_fill_the_context_and_a_completion_has_16() -> None:
    async def limit(path: str, **parameters: Any) -> tuple[int, int]:
        submit = await submitted(path, **parameters)
        return len(submit.prompt_token_ids), submit.sampling.max_tokens

    assert sum(await limit(CHAT)) == sum(await limit(RESPONSES)) == 128
    assert sum(await limit(CHAT, n_predict=-1)) == sum(await limit(COMPLETIONS, n_predict=-1))
    assert await limit(COMPLETIONS) == (2, 16)
    assert await limit(COMPLETIONS, prompt="x" * 120) == (120, 8)


@pytest.mark.parametrize("path", BODIES)
async def test_stop_strings_may_be_one_or_many_or_null(path: str) -> None:
    many = ["1", "2", "3", "4", "5", "o, w", "ld"]
    for stop, said in ((None, "Hello, world!"), ("o, w", "Hell"), (many, "Hell"), ([], None)):
        answer = await post(make_gateway(), path, stop=stop)
        assert text_of(path, answer) == (said or "Hello, world!")


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(("stop", "param"), [("", "stop"), (["a", ""], "stop[1]")])
async def test_an_empty_stop_string_is_refused(path: str, stop: Any, param: str) -> None:
    async with in_process(make_gateway()) as client:
        answer = await client.post(path, json=BODIES[path](stop=stop))
    assert (answer.status_code, error_of(answer)["param"]) == (400, param)


@pytest.mark.parametrize("path", BODIES)
async def test_no_stop_string_ends_an_answer_before_its_min_tokens(path: str) -> None:
    for min_tokens, said in ((0, "He"), (2, "He"), (4, "Hel"), (5, "Hello, wor")):
        answer = await post(make_gateway(), path, stop=["l"], min_tokens=min_tokens)
        assert text_of(path, answer) == said, min_tokens


@pytest.mark.parametrize("name", ["include_stop_str_in_output", "no_stop_trim"])
@pytest.mark.parametrize("path", BODIES)
async def test_a_stop_string_is_kept_on_every_route(path: str, name: str) -> None:
    answer = await post(make_gateway(), path, stop=["o, w"], **{name: True})
    assert text_of(path, answer) == "Hello, w"


@pytest.mark.parametrize("path", BODIES)
async def test_control_tokens_are_shown_on_every_route(path: str) -> None:
    gateway = make_gateway(lambda _submit, _choice: [*b"one", IM_START, *b"two"])
    answer = await post(gateway, path, skip_special_tokens=False)
    assert text_of(path, answer) == "one<|im_start|>two"


# What goes into the prompt


@pytest.mark.parametrize("prompt", [{}, {"prompt": None}, {"prompt": ""}])
async def test_no_prompt_is_the_beginning_of_a_document(prompt: dict[str, Any]) -> None:
    body = {key: value for key, value in completion().items() if key != "prompt"} | prompt
    gateway = make_gateway()
    async with in_process(gateway) as client:
        assert (await client.post(COMPLETIONS, json=body)).status_code == 200
    assert gateway.engine.submitted[0].prompt_token_ids == [END_OF_TEXT]


@pytest.mark.parametrize(
    ("prompts", "token_ids"),
    [
        ("ab", [[97, 98]]),
        (["a", "bc"], [[97], [98, 99]]),
        ([97, 98], [[97, 98]]),
        ([[97], [98, 99]], [[97], [98, 99]]),
    ],
)
async def test_choices_are_numbered_prompt_by_prompt(prompts: Any, token_ids: Any) -> None:
    def script(submit: Submit, choice: int) -> Sequence[int]:
        return [*submit.prompt_token_ids, ord("0") + choice]

    gateway = make_gateway(script)
    answer = await post(gateway, COMPLETIONS, prompt=prompts, n=2)
    expected = [bytes(ids).decode() + str(choice) for ids in token_ids for choice in range(2)]
    choices = answer.json()["choices"]
    assert [choice["index"] for choice in choices] == list(range(len(expected)))
    assert [choice["text"] for choice in choices] == expected
    stream = await post(make_gateway(script), COMPLETIONS, prompt=prompts, n=2, stream=True)
    streamed = check_completion_stream(stream.content, num_choices=len(expected))
    assert streamed.texts == expected


TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "|{{ reasoning_effort }}|{{ enable_thinking }}|{{ date }}"
)


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_effort_and_template_variables_reach_the_template(path: str) -> None:
    gateway = make_gateway(assets=byte_assets(chat_template=TEMPLATE))
    effort: Any = {CHAT: {"reasoning_effort": "low"}, RESPONSES: {"reasoning": {"effort": "low"}}}
    await post(gateway, path, chat_template_kwargs={"date": "today"}, **effort[path])
    await post(gateway, path, chat_template_kwargs={"enable_thinking": False})
    prompts = [bytes(submit.prompt_token_ids) for submit in gateway.engine.submitted]
    assert prompts == [b"hi|low|True|today", b"hi||False|"]


TOOL = {"type": "function", "function": {"name": "look", "description": "Looks."}}
# And whether the prompt is another one for it.
SHOWN: tuple[tuple[dict[str, Any], bool], ...] = (
    ({"tools": [TOOL]}, True),
    ({"tools": [TOOL], "tool_choice": "none"}, False),
    ({"tools": [TOOL], "parallel_tool_calls": False}, True),
    ({"reasoning_effort": "low"}, True),
    ({"chat_template_kwargs": {"date": "today"}}, True),
    ({"continue_final_message": True}, True),
    ({"add_generation_prompt": False}, True),
    ({"add_special_tokens": True}, True),
)


async def test_a_conversation_is_counted_as_it_would_be_answered() -> None:
    template = CHATML + "{{ tools }}" + TEMPLATE.removeprefix(TEMPLATE.partition("|")[0])
    gateway = make_gateway(assets=byte_assets(chat_template=template, add_bos=True))
    assert gateway.engine.info is not None
    gateway.engine.info = msgspec.structs.replace(gateway.engine.info, max_model_len=2048)
    async with in_process(gateway) as client:
        messages = chat()["messages"]
        plain = (await client.post("/tokenize", json={"messages": messages})).json()["tokens"]
        for parameters, differs in SHOWN:
            counted = await client.post("/tokenize", json={"messages": messages, **parameters})
            assert (await client.post(CHAT, json=chat(**parameters))).status_code == 200
            assert counted.json()["tokens"] == gateway.engine.submitted[-1].prompt_token_ids
            assert (counted.json()["tokens"] != plain) is differs, parameters


@pytest.mark.parametrize("path", BODIES)
async def test_the_first_token_of_a_document_is_added_as_asked(path: str) -> None:
    gateway = make_gateway(assets=byte_assets(add_bos=True))
    for wish in ({}, {"add_special_tokens": True}, {"add_special_tokens": False}):
        await post(gateway, path, **wish)
    has_bos = [submit.prompt_token_ids[0] == END_OF_TEXT for submit in gateway.engine.submitted]
    # A template writes the beginning itself, a text has it unless told not to.
    assert has_bos == [path == COMPLETIONS, True, False]


@pytest.mark.parametrize("path", BODIES)
async def test_salt_and_cache_are_the_requests_own_choice_on_every_route(path: str) -> None:
    plain = await submitted(path)
    assert plain.use_cache
    assert not (await submitted(path, cache_prompt=False)).use_cache
    gateway = make_gateway()
    for salt in ({}, {"cache_salt": "a"}, {"extra_key": "a"}, {"cache_salt": "b"}):
        await post(gateway, path, **salt)
    none, one, same, other = (submit.namespace for submit in gateway.engine.submitted)
    assert one == same
    assert len({none, one, other}) == 3


@pytest.mark.parametrize("name", ["cache_salt", "extra_key"])
async def test_a_salt_has_1_to_1024_characters(name: str) -> None:
    async with in_process(make_gateway()) as client:
        for salt, status in (("", 400), ("s", 200), ("s" * 1024, 200), ("s" * 1025, 400)):
            answer = await client.post(CHAT, json=chat(**{name: salt}))
            assert answer.status_code == status
            assert status == 200 or error_of(answer)["param"] == name


@pytest.mark.parametrize("name", ["request_id", "rid"])
@pytest.mark.parametrize("path", BODIES)
async def test_a_request_has_the_name_that_it_gives_itself_on_every_route(
    path: str, name: str
) -> None:
    answer = await post(make_gateway(), path, **{name: "mine.1"})
    assert answer.headers["x-request-id"] == "mine.1"


# What is told of the request


async def test_metadata_and_tier_are_echoed_and_no_prediction_is_counted() -> None:
    async with in_process(make_gateway()) as client:
        body = chat(
            metadata={"a": "b"},
            service_tier="auto",
            prediction={"type": "content", "content": "Hello"},
            store=True,
        )
        whole = await client.post(CHAT, json=body)
        stream = await client.post(CHAT, json={**body, "stream": True})
        answer = await client.post(RESPONSES, json=response(metadata={"a": "b"}))
        plain = await client.post(CHAT, json=chat())
    assert whole.json()["metadata"] == answer.json()["metadata"] == {"a": "b"}
    assert whole.json()["service_tier"] == "default"
    details = whole.json()["usage"]["completion_tokens_details"]
    assert (details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]) == (0, 0)
    first = json.loads(read_data(stream.content)[0][0])
    assert first["service_tier"] == "default"
    assert {"metadata", "service_tier"}.isdisjoint(plain.json())


@pytest.mark.parametrize("path", BODIES)
async def test_a_stream_of_null_is_none_and_options_without_a_stream_are_refused(path: str) -> None:
    answer = await post(make_gateway(), path, stream=None, stream_options=None)
    assert text_of(path, answer) == "Hello, world!"
    async with in_process(make_gateway()) as client:
        refused = await client.post(path, json=BODIES[path](stream_options={}))
    assert (refused.status_code, error_of(refused)["param"]) == (400, "stream_options")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_usage_is_streamed_only_where_it_is_asked_for_and_nothing_is_padded(
    path: str,
) -> None:
    check = check_chat_stream if path == CHAT else check_completion_stream
    for options in ({}, {"include_usage": False}, {"include_usage": None}, None):
        answer = await post(make_gateway(), path, stream=True, stream_options=options)
        assert check(answer.content).usage is None
    options = {"include_usage": True, "include_obfuscation": True}
    answer = await post(make_gateway(), path, stream=True, stream_options=options)
    assert check(answer.content, includes_usage=True).usage is not None
    assert b"obfuscation" not in answer.content


async def test_a_response_streams_its_usage_and_nothing_is_padded() -> None:
    options = {"include_obfuscation": True}
    answer = await post(make_gateway(), RESPONSES, stream=True, stream_options=options)
    assert check_responses_stream(answer.content).response["usage"]["output_tokens"] == 14
    assert b"obfuscation" not in answer.content


# Constraints and tools


@pytest.mark.parametrize("path", [COMPLETIONS, RESPONSES])
async def test_constraints_hold_beyond_chat_as_well(path: str) -> None:
    asked: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"guided_json": {"type": "object"}}, "json_schema", "auto"),
        ({"structured_outputs": {"regex": "{}", "backend": "xgrammar"}}, "regex", "xgrammar"),
        ({"guided_choice": ["{}"], "guided_decoding_backend": "guidance"}, "choice", "llguidance"),
        ({"ebnf": 'root ::= "{}"'}, "gbnf", "auto"),
    )
    gateway = make_gateway(lambda _submit, _choice: list(b"{}"))
    for parameters, kind, engine in asked:
        answer = await post(gateway, path, **parameters)
        assert answer.headers["x-radixgate-constraint"] == "enforced"
        spec = gateway.probe.checked[-1]
        assert (spec.kind, spec.engine) == (kind, engine)
        assert gateway.engine.submitted[-1].constraint is not None


FLAT: list[dict[str, Any]] = [
    {"type": "function", "name": "now", "parameters": {"type": "object"}, "strict": True},
    {"type": "function", "name": "then"},
]
CHOICES: tuple[tuple[Any, Any, list[str]], ...] = (
    ("auto", "text", ["now", "then"]),
    ("required", "none", ["now", "then"]),
    ({"type": "function", "name": "then"}, "none", ["then"]),
    (
        {"type": "allowed_tools", "mode": "required",
         "tools": [{"type": "function", "name": "now"}]},
        "none",
        ["now"],
    ),
)  # fmt: skip


@pytest.mark.parametrize("parallel", [True, False])
async def test_the_choice_of_tools_of_a_response_is_a_constraint(parallel: bool) -> None:
    gateway = make_gateway(
        lambda submit, _choice: list(
            b'<tool_call>\n{"name": "%s", "arguments": {}}\n</tool_call>'
            % (b"then" if "then" in str(submit.constraint) else b"now")
        )
    )
    assert gateway.engine.info is not None
    gateway.engine.info = msgspec.structs.replace(gateway.engine.info, max_model_len=2048)
    for choice, content, names in CHOICES:
        wishes = {"tools": FLAT, "tool_choice": choice, "parallel_tool_calls": parallel}
        answer = (await post(gateway, RESPONSES, **wishes)).json()
        assert [item["type"] for item in answer["output"]] == ["function_call"]
        assert answer["parallel_tool_calls"] is parallel
        demanded = json.loads(gateway.probe.checked[-1].value)
        assert demanded.get("content", "text") == content
        called = json.dumps(demanded["calls"])
        assert [tool["name"] for tool in FLAT if str(tool["name"]) in called] == names
        assert (demanded["max_calls"] == 1) is (not parallel or choice == CHOICES[2][0])
    num_checked = len(gateway.probe.checked)
    answer = (await post(gateway, RESPONSES, tools=FLAT, tool_choice="none")).json()
    assert [item["type"] for item in answer["output"]] == ["message"]
    assert len(gateway.probe.checked) == num_checked


@pytest.mark.parametrize("strict", [True, False])
async def test_a_strict_tool_of_a_response_is_held_to_its_schema(strict: bool) -> None:
    gateway = make_gateway(
        lambda _submit, _choice: list(
            b'<tool_call>\n{"name": "now", "arguments": {"a": 1}}\n</tool_call>'
        )
    )
    assert gateway.engine.info is not None
    gateway.engine.info = msgspec.structs.replace(gateway.engine.info, max_model_len=2048)
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    tool = {"type": "function", "name": "now", "parameters": closed, "strict": strict}
    async with in_process(gateway) as client:
        answer = await client.post(RESPONSES, json=response(tools=[tool]))
    if strict:
        assert (answer.status_code, error_of(answer)["code"]) == (500, "constraint_failed")
    else:
        assert answer.json()["output"][0]["arguments"] == '{"a": 1}'


async def test_an_empty_list_of_tools_is_no_tools() -> None:
    for path in (CHAT, RESPONSES):
        submit = await submitted(path, tools=[])
        assert submit.constraint is None
        assert submit.prompt_token_ids == (await submitted(path)).prompt_token_ids


async def test_modalities_of_text_are_what_there_is() -> None:
    assert text_of(CHAT, await post(make_gateway(), CHAT, modalities=["text"])) == "Hello, world!"
    async with in_process(make_gateway()) as client:
        refused = await client.post(CHAT, json=chat(modalities=["audio"]))
    assert (refused.status_code, error_of(refused)["param"]) == (400, "modalities")
