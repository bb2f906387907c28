"""Constrained answers of a model that reasons: what is reasoning and what is the answer, streamed
or not, over an engine that says what the test wants it to."""

from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from grammar.spec import Gap, Reasoning
from runtime.messages import Submit
from tests.byte_tokenizer import IM_START
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    Gateway,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
)
from tests.reasoning_model import (
    END_THINK,
    MAY_THINK,
    THINK,
    THINKS,
    THINKS_NOT,
    reasoning_assets,
    token_ids,
)
from tests.sse_machine import StreamedAnswer, check_chat_stream, check_completion_stream

SCHEMA = {"type": "array", "contains": {"const": 5}}
GAP = Gap("/contains", "contains", "counts are not kept")
OPEN = Reasoning(end_ids=(END_THINK,), is_open=True)
MAY_OPEN = Reasoning(end_ids=(END_THINK,), start_ids=(THINK,))


def gateway_of(
    *answers: str, template: str = MAY_THINK, is_special: bool = False, **options: Any
) -> Gateway:
    """Its model gives choice i answer i."""

    def script(_submit: Submit, choice: int) -> Sequence[int]:
        return token_ids(answers[choice])

    assets = reasoning_assets(template, is_special=is_special)
    return make_gateway(script, assets=assets, **options)


def asked(**parameters: Any) -> dict[str, Any]:
    return chat(structured_outputs={"json": SCHEMA, "allow_checked": True}, **parameters)


async def post(gateway: Gateway, body: dict[str, Any], path: str = CHAT) -> httpx2.Response:
    async with in_process(gateway) as client:
        return await client.post(path, json=body)


async def message_of(gateway: Gateway, **parameters: Any) -> tuple[str | None, str, str]:
    """Reasoning, content and finish reason of an answer that came whole."""
    response = await post(gateway, asked(**parameters))
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    message = choice["message"]
    return message.get("reasoning_content"), message["content"], choice["finish_reason"]


async def stream_of(gateway: Gateway, **parameters: Any) -> StreamedAnswer:
    response = await post(gateway, asked(stream=True, **parameters))
    return check_chat_stream(response.content, num_choices=parameters.get("n", 1))


def told(gateway: Gateway) -> list[Reasoning | None]:
    """What the engine was told of the reasoning before each prompt's answers."""
    constraints = [submit.constraint for submit in gateway.engine.submitted]
    return [None if constraint is None else constraint.reasoning for constraint in constraints]


@pytest.mark.parametrize("tokens_per_event", [1, 3, 100])
@pytest.mark.parametrize("gaps", [(), (GAP,)])
@pytest.mark.parametrize("is_special", [False, True])
@pytest.mark.parametrize(
    ("template", "answer", "reasoning", "content", "gate"),
    [
        (THINKS, "h\u00e9\n</think>[5]", "h\u00e9\n", "[5]", OPEN),
        (THINKS, "</think>[5]", None, "[5]", OPEN),
        (MAY_THINK, "<think>\nhm\n</think>[5]", "\nhm\n", "[5]", MAY_OPEN),
        (MAY_THINK, "[5]", None, "[5]", MAY_OPEN),
        (THINKS_NOT, "[5]", None, "[5]", None),
    ],
)
async def test_the_answer_is_what_follows_the_block_streamed_or_not(
    template: str,
    answer: str,
    reasoning: str | None,
    content: str,
    gate: Reasoning | None,
    is_special: bool,
    gaps: tuple[Gap, ...],
    tokens_per_event: int,
) -> None:
    gateway = gateway_of(
        answer, template=template, is_special=is_special, tokens_per_event=tokens_per_event
    )
    gateway.probe.gaps = gaps
    assert await message_of(gateway) == (reasoning, content, "stop")
    streamed = await stream_of(gateway)
    assert (streamed.thoughts, streamed.texts) == ([reasoning or ""], [content])
    assert streamed.finish_reasons == ["stop"]
    assert told(gateway) == [gate, gate]


async def test_all_tokens_count_and_those_of_the_block_once_more() -> None:
    answer = "<think>hm</think>[5]"
    response = await post(gateway_of(answer), asked())
    usage = response.json()["usage"]
    assert usage["completion_tokens"] == len(token_ids(answer)) + 1
    assert usage["completion_tokens_details"]["reasoning_tokens"] == len("hm") + 2
    plain = (await post(gateway_of("[5]"), asked())).json()["usage"]
    assert plain["completion_tokens_details"]["reasoning_tokens"] == 0


@pytest.mark.parametrize("max_tokens", [1, 3, 5])
async def test_an_answer_that_is_cut_inside_its_block_has_no_content(max_tokens: int) -> None:
    gateway = gateway_of("hmmmm</think>[5]", template=THINKS)
    reasoning = "hmmmm"[:max_tokens]
    assert await message_of(gateway, max_tokens=max_tokens) == (reasoning, "", "length")
    streamed = await stream_of(gateway, max_tokens=max_tokens)
    assert (streamed.thoughts, streamed.texts) == ([reasoning], [""])
    assert streamed.finish_reasons == ["length"]


async def test_a_character_that_the_limit_cuts_in_the_block_is_told_as_such() -> None:
    gateway = gateway_of("h\u00e9</think>[5]", template=THINKS)
    assert await message_of(gateway, max_tokens=2) == ("h\ufffd", "", "length")
    assert (await stream_of(gateway, max_tokens=2)).thoughts == ["h\ufffd"]


async def test_each_choice_has_a_block_of_its_own() -> None:
    gateway = gateway_of("<think>a</think>[5]", "[5,5]", "<think>bcd</think>[1,5]")
    streamed = await stream_of(gateway, n=3)
    assert streamed.thoughts == ["a", "", "bcd"]
    assert streamed.texts == ["[5]", "[5,5]", "[1,5]"]


async def test_log_probabilities_are_of_the_content() -> None:
    gateway = gateway_of("<think>hm</think>[5]", tokens_per_event=4)
    response = await post(gateway, asked(logprobs=True, top_logprobs=2))
    entries = response.json()["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]) == b"[5]"
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    streamed = await stream_of(gateway, logprobs=True, top_logprobs=2)
    assert streamed.logprobs == [entries]


@pytest.mark.parametrize(
    ("answer", "status"),
    [("<think>[7]</think>[5]", 200), ("<think>[5]</think>[7]", 500), ("<think>[5]</think>", 500)],
)
async def test_the_content_alone_is_validated(answer: str, status: int) -> None:
    response = await post(gateway_of(answer), asked())
    assert response.status_code == status
    if status == 500:
        assert error_of(response)["code"] == "constraint_failed"


@pytest.mark.parametrize("template", [THINKS, MAY_THINK])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_mended_answer_keeps_its_reasoning(template: str, stream: bool) -> None:
    block = "[7,5]</think>" if template == THINKS else "<think>[7,5]</think>"
    left = [f"{block}[7]", f"{block}[7,5]"]

    def script(submit: Submit, _choice: int) -> Sequence[int]:
        return token_ids(left.pop(0))[len(submit.output_prefix) :]

    gateway = make_gateway(script, assets=reasoning_assets(template))
    gateway.probe.gaps = (GAP,)
    if stream:
        streamed = await stream_of(gateway)
        assert (streamed.thoughts, streamed.texts) == (["[7,5]"], ["[7,5]"])
    else:
        assert await message_of(gateway) == ("[7,5]", "[7,5]", "stop")
    first, later = gateway.engine.submitted
    # Taken back is what ended the array of the answer, not the one that was only thought of.
    assert later.output_prefix == token_ids(f"{block}[7")
    assert later.first_forbidden == (ord("]"),)
    assert later.constraint == first.constraint
    assert told(gateway) == [OPEN if template == THINKS else MAY_OPEN] * 2


async def test_a_message_that_speaks_of_the_marker_opens_no_block() -> None:
    gateway = gateway_of("[5]")
    messages = [{"role": "user", "content": "why <think>"}]
    assert await message_of(gateway, messages=messages) == (None, "[5]", "stop")
    assert told(gateway) == [MAY_OPEN]


@pytest.mark.parametrize(
    ("wish", "content", "reasoning"),
    [
        ({}, "hi", "hm"),
        ({"include_reasoning": False}, "hi", None),
        ({"separate_reasoning": False}, "hm</think>hi", None),
    ],
)
async def test_free_answers_are_split_unless_the_request_says_otherwise(
    wish: dict[str, Any], content: str, reasoning: str | None
) -> None:
    gateway = gateway_of("hm</think>hi", template=THINKS)
    (choice,) = (await post(gateway, chat(**wish))).json()["choices"]
    assert choice["message"]["content"] == content
    assert choice["message"].get("reasoning_content") == reasoning


async def test_a_server_that_is_told_of_no_markers_splits_nothing() -> None:
    gateway = gateway_of("[5]", template=THINKS, reasoning_markers="none")
    assert await message_of(gateway) == (None, "[5]", "stop")
    assert told(gateway) == [None]


async def test_the_setting_names_the_markers() -> None:
    gateway = gateway_of("[5]", reasoning_markers="<|im_start|>,</think>")
    assert await message_of(gateway) == (None, "[5]", "stop")
    assert told(gateway) == [Reasoning(end_ids=(END_THINK,), start_ids=(IM_START,))]


async def test_completions_are_gated_where_the_prompt_ends_inside_a_block() -> None:
    def script(submit: Submit, _choice: int) -> Sequence[int]:
        is_gated = submit.constraint is not None and submit.constraint.reasoning is not None
        return token_ids("hm</think>[5]" if is_gated else "[5]")

    gateway = make_gateway(script, assets=reasoning_assets())
    prompts = ["<think>\nLet me", "<think>a</think>b", "plain"]
    body = completion(prompts, guided_json=SCHEMA)
    choices = (await post(gateway, body, COMPLETIONS)).json()["choices"]
    assert [choice["text"] for choice in choices] == ["[5]"] * 3
    assert [choice.get("reasoning_content") for choice in choices] == ["hm", None, None]
    assert told(gateway) == [OPEN, None, None]
    response = await post(gateway, body | {"stream": True}, COMPLETIONS)
    streamed = check_completion_stream(response.content, num_choices=3)
    assert (streamed.texts, streamed.thoughts) == (["[5]"] * 3, ["hm", "", ""])


async def test_offsets_of_a_completion_count_from_where_the_answer_begins() -> None:
    gateway = gateway_of("hm</think>[5]")
    body = completion("<think>", guided_json=SCHEMA, logprobs=1)
    (choice,) = (await post(gateway, body, COMPLETIONS)).json()["choices"]
    assert choice["logprobs"]["tokens"] == ["[", "5", "]"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]
