"""What an answer gives of its prompt (echo, scores, ids), and what a request does to its prompt."""

from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from runtime.messages import Submit
from tests.byte_tokenizer import IM_START, byte_assets
from tests.fake_token_engine import hello
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
from tests.sse_machine import check_chat_stream, check_completion_stream


async def answer(gateway: Gateway, body: dict[str, Any]) -> httpx2.Response:
    async with in_process(gateway) as client:
        return await client.post(CHAT if "messages" in body else COMPLETIONS, json=body)


async def choices(body: dict[str, Any], gateway: Gateway | None = None) -> list[dict[str, Any]]:
    response = await answer(gateway or make_gateway(), body)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["choices"]
    return found


def two_texts(_submit: Submit, choice: int) -> Sequence[int]:
    return list(b"yes" if choice == 0 else b"no")


async def test_an_echo_is_the_prompt_and_then_the_answer() -> None:
    (choice,) = await choices(completion("Say: ", echo=True))
    assert choice["text"] == "Say: Hello, world!"


async def test_every_choice_of_every_prompt_has_its_own_echo() -> None:
    body = completion(["a", "b"], echo=True, n=2, max_tokens=3)
    found = await choices(body, make_gateway(two_texts))
    assert [choice["text"] for choice in found] == ["ayes", "ano", "byes", "bno"]


async def test_the_echo_of_token_ids_is_what_they_decode_to() -> None:
    (choice,) = await choices(completion(list("né".encode()), echo=True, max_tokens=2))
    assert choice["text"] == "néHe"


async def test_a_scored_prompt_has_null_for_its_first_token_and_values_for_the_others() -> None:
    """The crash that scoring tools met elsewhere: echo with max_tokens 0 and logprobs."""
    gateway = make_gateway()
    response = await answer(gateway, completion("abc", echo=True, max_tokens=0, logprobs=1))
    (choice,) = response.json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"] == {
        "tokens": ["a", "b", "c"],
        "token_logprobs": [None, -0.5, -0.5],
        "top_logprobs": [None, {"b": -0.5}, {"c": -0.5}],
        "text_offset": [0, 1, 2],
    }
    assert response.json()["usage"]["completion_tokens"] == 0
    (submit,) = gateway.engine.submitted
    assert (submit.sampling.max_tokens, submit.num_prompt_logprobs) == (0, 1)


async def test_generated_tokens_follow_the_scores_of_the_prompt_in_each_choice() -> None:
    body = completion("ab", echo=True, max_tokens=2, logprobs=0, n=2)
    for choice in await choices(body, make_gateway(two_texts)):
        logprobs = choice["logprobs"]
        assert "".join(logprobs["tokens"]) == choice["text"]
        assert logprobs["token_logprobs"] == [None, -0.5, -0.5, -0.5]
        assert logprobs["text_offset"] == [0, 1, 2, 3]


async def test_a_prompt_of_one_token_needs_no_scores() -> None:
    (choice,) = await choices(completion("a", echo=True, max_tokens=1, logprobs=0))
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5]


@pytest.mark.parametrize("body", [{"echo": True}, {"echo": True, "logprobs": 2}])
async def test_a_streamed_echo_is_the_same_text_with_the_same_scores(body: dict[str, Any]) -> None:
    whole = await choices(completion("abc", n=2, **body), make_gateway(two_texts))
    streamed = await answer(make_gateway(two_texts), completion("abc", n=2, stream=True, **body))
    told = check_completion_stream(streamed.content, num_choices=2)
    assert told.texts == [choice["text"] for choice in whole]
    assert told.texts == ["abcyes", "abcno"]
    if "logprobs" in body:
        assert told.logprobs == [choice["logprobs"]["tokens"] for choice in whole]


async def test_a_choice_that_stops_while_its_prompt_is_scored_says_nothing_after_it() -> None:
    """Its tokens wait for the scores, which come with another choice, and there are too many."""
    gateway = make_gateway(two_texts)
    gateway.engine.first_choice_delay = 3
    body = completion("ab", echo=True, logprobs=0, n=2, stop=["n"], stream=True)
    streamed = await answer(gateway, {**body, "stream_options": {"include_usage": True}})
    told = check_completion_stream(streamed.content, num_choices=2, includes_usage=True)
    assert told.texts == ["abyes", "ab"]
    assert told.usage is not None
    assert told.usage["completion_tokens"] == len("yes") + 1 + len("n")


@pytest.mark.parametrize(
    ("body", "text", "offsets"),
    [
        (completion("<|im_start|>a"), "<|im_start|>aHe", [0, 0, 12, 13, 14]),
        (completion(""), "He", [0, 0, 1]),
        (completion("", skip_special_tokens=False), "He", [0, 0, 1]),
        (completion([IM_START, 97]), "aHe", [0, 0, 1, 2]),
        (
            completion([IM_START, 97], skip_special_tokens=False),
            "<|im_start|>aHe",
            [0, 12, 13, 14],
        ),
    ],
)
async def test_offsets_are_those_of_the_echo_whatever_control_tokens_there_are(
    body: dict[str, Any], text: str, offsets: list[int]
) -> None:
    gateway = make_gateway(assets=byte_assets(add_bos=True))
    (choice,) = await choices({**body, "echo": True, "logprobs": 0, "max_tokens": 2}, gateway)
    assert (choice["text"], choice["logprobs"]["text_offset"]) == (text, offsets)
    assert len(choice["logprobs"]["tokens"]) == len(offsets)


async def test_a_limit_of_zero_is_for_echo_only() -> None:
    response = await answer(make_gateway(), completion("a", max_tokens=0))
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, "max_tokens")
    assert error["code"] == "integer_below_min_value"


async def test_token_ids_of_prompt_and_answer_are_given_when_asked_for() -> None:
    whole = (await answer(make_gateway(), chat(return_token_ids=True))).json()
    (choice,) = whole["choices"]
    assert choice["token_ids"][:-1] == list(b"Hello, world!")
    assert whole["prompt_token_ids"][0] == IM_START
    assert "token_ids" not in (await choices(chat()))[0]
    body = completion("ab", return_token_ids=True, max_tokens=2)
    assert (await choices(body))[0]["prompt_token_ids"] == list(b"ab")
    assert (await choices(body))[0]["token_ids"] == list(b"He")


async def test_streamed_token_ids_are_those_of_the_whole_answer() -> None:
    whole = (await answer(make_gateway(), chat(return_token_ids=True))).json()
    streamed = await answer(make_gateway(), chat(return_token_ids=True, stream=True))
    told = check_chat_stream(streamed.content)
    assert told.prompt_token_ids == [whole["prompt_token_ids"]]
    assert told.token_ids == [whole["choices"][0]["token_ids"]]


async def test_logprobs_may_name_tokens_by_their_ids() -> None:
    body = completion("a", logprobs=0, return_tokens_as_token_ids=True, max_tokens=2)
    (choice,) = await choices(body)
    assert choice["logprobs"]["tokens"] == [f"token_id:{ord('H')}", f"token_id:{ord('e')}"]
    assert choice["text"] == "He"


@pytest.mark.parametrize(
    ("keep", "kept"), [(3, b"fgh"), (100, b"abcdefgh"), (-1, b"abcdefgh"), (1, b"h")]
)
async def test_of_a_long_prompt_the_last_tokens_are_kept(keep: int, kept: bytes) -> None:
    gateway = make_gateway()
    await answer(gateway, completion("abcdefgh", truncate_prompt_tokens=keep))
    assert gateway.engine.submitted[0].prompt_token_ids == list(kept)


async def test_minus_one_keeps_what_fits_beside_the_answer() -> None:
    gateway = make_gateway()  # of 128 tokens
    response = await answer(gateway, completion("x" * 500, truncate_prompt_tokens=-1, max_tokens=8))
    assert response.status_code == 200
    assert len(gateway.engine.submitted[0].prompt_token_ids) == 120


async def test_keeping_no_token_is_refused() -> None:
    response = await answer(make_gateway(), completion("a", truncate_prompt_tokens=0))
    assert (response.status_code, error_of(response)["param"]) == (400, "truncate_prompt_tokens")


async def test_a_model_without_such_tokens_fills_in_no_middle() -> None:
    response = await answer(make_gateway(), completion("a", suffix="b"))
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, "suffix")
    assert error["code"] == "unsupported_parameter"


@pytest.mark.parametrize(
    "body",
    [
        completion("a", suffix="b", echo=True),
        completion([1, 2], suffix="b"),
        chat(continue_final_message=True, add_generation_prompt=True),
    ],
)
async def test_wishes_that_exclude_each_other_are_refused(body: dict[str, Any]) -> None:
    assert (await answer(make_gateway(), body)).status_code == 400


async def test_the_first_token_of_a_text_can_be_left_out() -> None:
    gateway = make_gateway(assets=byte_assets(add_bos=True))
    await answer(gateway, completion("a"))
    await answer(gateway, completion("a", add_special_tokens=False))
    with_bos, without = (submit.prompt_token_ids for submit in gateway.engine.submitted)
    assert with_bos[1:] == without == list(b"a")


async def test_a_conversation_may_go_on_with_its_last_message() -> None:
    gateway = make_gateway()
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Yes,"}]
    body = {**chat(continue_final_message=True), "messages": messages}
    assert (await answer(gateway, body)).status_code == 200
    assert bytes(gateway.engine.submitted[0].prompt_token_ids[-4:]) == b"Yes,"


async def test_a_message_may_be_left_without_the_beginning_of_an_answer() -> None:
    gateway = make_gateway()
    await answer(gateway, chat(add_generation_prompt=False))
    await answer(gateway, chat())
    short, long = (submit.prompt_token_ids for submit in gateway.engine.submitted)
    assert long[: len(short)] == short
    assert long[len(short)] == IM_START


@pytest.mark.parametrize("name", ["chat_template", "tokenize", "messages", "tools", "conversation"])
async def test_a_request_that_brings_a_template_into_the_template_is_refused(name: str) -> None:
    """A template of a client's would be a program of a client's."""
    body = chat(chat_template_kwargs={name: "{% for i in range(10**9) %}{% endfor %}"})
    response = await answer(make_gateway(hello), body)
    assert (response.status_code, error_of(response)["param"]) == (400, "chat_template_kwargs")


async def test_template_variables_are_bounded() -> None:
    response = await answer(make_gateway(), chat(chat_template_kwargs={"x": "y" * 20_000}))
    assert (response.status_code, error_of(response)["param"]) == (400, "chat_template_kwargs")
