"""What a request says of how its tokens are chosen and shown as text."""

from collections.abc import Sequence
from typing import Any

import pytest

from runtime.messages import Submit
from tests.byte_tokenizer import IM_START, byte_assets
from tests.gateway_harness import (
    CHAT,
    Gateway,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
)


def marked(_submit: Submit, _choice: int) -> Sequence[int]:
    """A control token between two words."""
    return [*b"one", IM_START, *b"two"]


async def message_of(gateway: Gateway, **parameters: Any) -> dict[str, Any]:
    async with in_process(gateway) as client:
        response = await client.post(CHAT, json=chat(**parameters))
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return {**choice, "text": choice["message"]["content"]}


async def refused(**parameters: Any) -> tuple[int, str]:
    async with in_process(make_gateway()) as client:
        response = await client.post(CHAT, json=chat(**parameters))
    return response.status_code, error_of(response)["param"]


@pytest.mark.parametrize("name", ["include_stop_str_in_output", "no_stop_trim"])
async def test_the_stop_string_may_be_part_of_the_answer(name: str) -> None:
    gateway = make_gateway()
    assert (await message_of(gateway, stop=["o, w"]))["text"] == "Hell"
    kept = await message_of(gateway, stop=["o, w"], **{name: True})
    assert (kept["text"], kept["finish_reason"]) == ("Hello, w", "stop")


async def test_log_probabilities_of_a_stop_string_that_is_kept_are_given() -> None:
    kept = await message_of(
        make_gateway(), stop=["o, w"], include_stop_str_in_output=True, logprobs=True
    )
    raw = [byte for entry in kept["logprobs"]["content"] for byte in entry["bytes"]]
    assert bytes(raw) == b"Hello, w"


async def test_control_tokens_are_shown_where_they_are_wanted() -> None:
    assert (await message_of(make_gateway(marked)))["text"] == "onetwo"
    shown = await message_of(make_gateway(marked), skip_special_tokens=False, logprobs=True)
    assert shown["text"] == "one<|im_start|>two"
    raw = [byte for entry in shown["logprobs"]["content"] for byte in entry["bytes"]]
    assert bytes(raw) == b"one<|im_start|>two"


async def test_bad_words_reach_the_engine_as_each_way_to_spell_them() -> None:
    gateway = make_gateway()
    await message_of(gateway, bad_words=["cat", "hello", "cat"])
    (submit,) = gateway.engine.submitted
    hello_token, space = 262, ord(" ")
    assert submit.sampling.bad_words == (
        tuple(b"cat"),
        tuple(b" cat"),
        (hello_token,),
        (space, hello_token),
    )


async def test_allowed_tokens_reach_the_engine_once_each() -> None:
    gateway = make_gateway()
    await message_of(gateway, allowed_token_ids=[5, 7, 5])
    assert gateway.engine.submitted[0].sampling.allowed_token_ids == (5, 7)


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [10**9]}, "allowed_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids[0]"),
        ({"bad_words": [""]}, "bad_words[0]"),
        ({"bad_words": "cat"}, "bad_words"),
        ({"bad_words": ["x" * 300]}, "bad_words[0]"),
        ({"stop_token_ids": [10**9]}, "stop_token_ids"),
        ({"include_stop_str_in_output": True, "no_stop_trim": False}, "no_stop_trim"),
        ({"request_id": "two words"}, "request_id"),
        ({"request_id": "a", "rid": "b"}, "rid"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
    ],
)
async def test_bad_values_are_refused_by_name(parameters: dict[str, Any], param: str) -> None:
    assert await refused(**parameters) == (400, param)


async def test_a_request_may_keep_out_of_the_cache() -> None:
    gateway = make_gateway()
    await message_of(gateway)
    await message_of(gateway, cache_prompt=False)
    assert [submit.use_cache for submit in gateway.engine.submitted] == [True, False]


async def test_a_request_that_names_itself_is_found_by_that_name() -> None:
    async with in_process(make_gateway()) as client:
        response = await client.post(
            CHAT, json=chat(request_id="mine.1"), headers={"x-request-id": "other"}
        )
        failed = await client.post(CHAT, json=chat(request_id="mine.2", stop_token_ids=[10**9]))
    assert response.headers["x-request-id"] == "mine.1"
    assert failed.headers["x-request-id"] == "mine.2"
    assert response.json()["id"].startswith("chatcmpl-")


async def test_effort_is_named_as_ignored_where_the_template_has_no_use_for_it() -> None:
    async with in_process(make_gateway()) as client:
        response = await client.post(CHAT, json=chat(reasoning_effort="low"))
    assert response.headers["x-radixgate-ignored"] == "reasoning_effort"


async def test_no_effort_switches_thinking_off_for_templates_that_can() -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}"
        "{{ '-on' if enable_thinking else '-off' }}{{ reasoning_effort }}"
    )
    gateway = make_gateway(assets=byte_assets(chat_template=template))
    await message_of(gateway, reasoning_effort="none")
    await message_of(gateway, reasoning_effort="high")
    await message_of(
        gateway, reasoning_effort="high", chat_template_kwargs={"enable_thinking": False}
    )
    prompts = [bytes(submit.prompt_token_ids) for submit in gateway.engine.submitted]
    assert prompts == [b"hi-offnone", b"hi-onhigh", b"hi-offhigh"]


async def test_completions_take_the_same_extras() -> None:
    gateway = make_gateway(marked)
    body = completion("a", skip_special_tokens=False, bad_words=["b"], cache_prompt=False)
    async with in_process(gateway) as client:
        response = await client.post("/v1/completions", json=body)
    assert response.json()["choices"][0]["text"] == "one<|im_start|>two"
    (submit,) = gateway.engine.submitted
    assert not submit.use_cache
    assert submit.sampling.bad_words == ((ord("b"),), tuple(b" b"))
