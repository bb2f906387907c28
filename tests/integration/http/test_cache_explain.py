"""POST /v1/cache/explain over a scripted engine: what it is asked, what is told of its answers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from runtime.cache_messages import (
    CacheAnswer,
    CacheExplanation,
    CacheQuery,
    ExplainCache,
)
from tests.byte_tokenizer import IM_START
from tests.cache_routes import EXPLAIN, KEYS, PAST, PAST_NS, gateway_with, with_keys
from tests.fake_token_engine import AnswerScript
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    MODEL,
    RESPONSES,
    Gateway,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
    response,
)


def explaining(**fields: Any) -> AnswerScript:
    """A cache that says this of every prompt."""

    def answer(query: CacheQuery) -> CacheAnswer:
        assert isinstance(query, ExplainCache)
        return CacheExplanation(
            query.request_id, len(query.prompt_token_ids), **{"matched_tokens": 0, **fields}
        )

    return answer


async def explained(gateway: Gateway, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    async with in_process(gateway) as client:
        answer = await client.post(EXPLAIN, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, chat()), (COMPLETIONS, completion()), (RESPONSES, response())]
)
async def test_the_prompt_asked_about_is_that_of_the_request_and_nothing_runs(
    path: str, body: dict[str, Any]
) -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        told = (await client.post(EXPLAIN, json={**body, "stream": True})).json()
        assert gateway.engine.submitted == []
        await client.post(path, json=body)
    (asked,), (submitted,) = gateway.engine.asked, gateway.engine.submitted
    assert isinstance(asked, ExplainCache)
    assert asked.prompt_token_ids == submitted.prompt_token_ids
    assert asked.namespace == submitted.namespace
    assert told["object"] == "cache.explanation"
    assert told["model"] == MODEL
    assert told["prompt_tokens"] == len(submitted.prompt_token_ids)
    assert told["cacheable_tokens"] == len(submitted.prompt_token_ids) - 1


async def test_where_it_differs_both_sides_are_shown_with_the_message() -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi world"}]
    before = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi w"
    # Three control tokens are one token each.
    index = len(before) - 2 * (len("<|im_start|>") - 1) - (len("<|im_end|>") - 1)
    gateway = gateway_with(
        explaining(matched_tokens=index, reason="differs", cached_ids=list(b"alrus"))
    )
    told = await explained(gateway, {"model": MODEL, "messages": messages})
    assert (told["matched_tokens"], told["tiers"]) == (index, {"device": index})
    difference = told["first_difference"]
    assert difference["index"] == index
    assert difference["before"].endswith("<|im_start|>user\nhi w")
    assert difference["prompt"] == {
        "token_id": ord("o"), "text": "o", "after": "rld<|im_end|>\n<|im_start|>assistant\n",
    }  # fmt: skip
    assert difference["cached"] == {"token_id": ord("a"), "text": "a", "after": "lrus"}
    assert difference["message"] == {
        "kind": "content", "index": 1, "role": "user", "part": None, "offset": 4,
    }  # fmt: skip
    assert told["reason"] == "differs"
    assert f"Token {index} is 'o' here, 'a' in the cache" in told["explanation"]
    assert "after 4 characters of the content of message 1 (user)" in told["explanation"]


async def test_what_lower_tiers_have_comes_before_the_first_difference() -> None:
    gateway = gateway_with(
        explaining(
            matched_tokens=4, tier_tokens={"host": 2, "disk": 1}, reason="differs",
            cached_ids=list(b"z"),
        )
    )  # fmt: skip
    told = await explained(gateway, completion("abcdefghij"))
    assert told["tiers"] == {"device": 4, "host": 2, "disk": 1}
    assert (told["matched_tokens"], told["first_difference"]["index"]) == (4, 7)
    assert told["first_difference"]["before"] == "abcdefg"
    assert told["first_difference"]["prompt"]["text"] == "h"
    # How the tree goes on after four tokens says nothing of what comes after seven.
    assert told["first_difference"]["cached"] is None
    assert told["first_difference"]["message"] is None
    assert told["explanation"].startswith("7 of the 9 tokens that can be cached are: 4 in the tier")


async def test_a_prompt_that_is_cached_has_no_difference() -> None:
    told = await explained(gateway_with(explaining(matched_tokens=9)), completion("abcdefghij"))
    assert told["reason"] is told["first_difference"] is told["evicted_at"] is None
    assert told["matched_tokens"] == told["cacheable_tokens"] == 9


async def test_an_eviction_has_its_time_and_its_cause() -> None:
    answer = explaining(reason="evicted", evicted_at_ns=PAST_NS, evicted_for="quota")
    told = await explained(gateway_with(answer), completion("abcdefghij"))
    assert told["evicted_at"] == PAST
    assert told["evicted_at_s"] == 1_700_000_000.25
    assert told["evicted_for"] == "quota"
    assert f"evicted at {PAST}, as the cache quota was used up" in (told["explanation"])


@pytest.mark.parametrize("cause", ["own_request", "other_tenant"])
async def test_a_tenant_is_not_told_which_tenant_needed_its_pages(
    tmp_path: Path, cause: str
) -> None:
    gateway = with_keys(tmp_path, explaining(reason="evicted", evicted_for=cause))
    told = [
        await explained(gateway, completion(), authorization=f"Bearer {key}")
        for key in ("alice", "root")
    ]
    assert [one["evicted_for"] for one in told] == ["memory", cause]
    assert cause not in str(told[0])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (completion(cache_prompt=False), "cache_prompt_false"),
        (chat(cache_prompt=False), "cache_prompt_false"),
        (chat(prompt_cache_options={"mode": "explicit"}), "no_breakpoint"),
        (completion(echo=True, logprobs=1, max_tokens=0), "prompt_scored"),
    ],
)
async def test_a_request_that_keeps_the_cache_out_is_told_so_without_asking(
    body: dict[str, Any], reason: str
) -> None:
    gateway = gateway_with(explaining(matched_tokens=9))
    told = await explained(gateway, body)
    assert (told["reason"], told["matched_tokens"]) == (reason, 0)
    assert told["tiers"] == {"device": 0}
    assert gateway.engine.asked == []


@pytest.mark.parametrize(
    "reason", ["grows", "never_seen", "other_salt", "other_tenant", "model_changed"]
)
async def test_every_reason_has_words_of_its_own(reason: str) -> None:
    other = await explained(gateway_with(explaining(reason="differs")), completion())
    told = await explained(gateway_with(explaining(reason=reason)), completion())
    assert told["reason"] == reason
    assert told["explanation"] != other["explanation"]


async def test_several_prompts_are_explained_one_by_one() -> None:
    def answer(query: CacheQuery) -> CacheAnswer:
        assert isinstance(query, ExplainCache)
        first = query.prompt_token_ids[0]
        return CacheExplanation(query.request_id, len(query.prompt_token_ids), first % 2)

    gateway = gateway_with(answer)
    told = await explained(gateway, completion(["bcd", "ab"], n=3))
    assert told["object"] == "list"
    assert [(one["prompt_tokens"], one["matched_tokens"]) for one in told["data"]] == [
        (3, 0),
        (2, 1),
    ]
    assert len({query.request_id for query in gateway.engine.asked}) == 2


async def test_tokens_that_are_no_characters_are_shown_as_such() -> None:
    """The prompt's euro sign is cut after its first byte."""
    gateway = gateway_with(explaining(matched_tokens=3, reason="differs", cached_ids=[0xC3, 0xA9]))
    told = await explained(gateway, completion("ab\u20acc"))
    difference = told["first_difference"]
    assert (difference["before"], difference["prompt"]["text"]) == ("ab", "\ufffd")
    assert difference["prompt"]["after"] == "c"
    assert difference["cached"] == {"token_id": 0xC3, "text": "\ufffd", "after": ""}


async def test_control_tokens_are_shown_as_they_are_written() -> None:
    told = await explained(gateway_with(explaining(reason="never_seen")), chat())
    assert told["first_difference"]["prompt"]["text"] == "<|im_start|>"
    assert told["first_difference"]["prompt"]["token_id"] == IM_START
    assert told["first_difference"]["message"]["kind"] == "preamble"


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": []},
        {"temperature": 3},
        {"max_tokens": 1000},
        {"chat_template": "x"},
        {"stop_token_ids": [10**6]},
        {"stream_options": {}},
        {"model": "nope"},
        {"cache_salt": 5},
    ],
)
async def test_it_is_refused_for_what_the_chat_would_be_refused_for(wrong: dict[str, Any]) -> None:
    async with in_process(make_gateway()) as client:
        refused = await client.post(CHAT, json=chat() | wrong)
        answer = await client.post(EXPLAIN, json=chat() | wrong)
    assert answer.status_code == refused.status_code >= 400
    assert error_of(answer) == error_of(refused)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, completion(max_tokens=1000)),
        (COMPLETIONS, completion([])),
        (COMPLETIONS, completion(suffix="x")),
        (RESPONSES, response("x" * 500)),
        (RESPONSES, response(previous_response_id="resp_1")),
        (RESPONSES, response(conversation="x")),
    ],
)
async def test_bodies_of_other_endpoints_are_held_to_their_rules(
    path: str, body: dict[str, Any]
) -> None:
    async with in_process(make_gateway()) as client:
        refused = await client.post(path, json=body)
        answer = await client.post(EXPLAIN, json=body)
    assert answer.status_code == refused.status_code >= 400
    assert error_of(answer) == error_of(refused)


async def test_names_without_effect_are_told_by_the_rules_of_the_endpoint() -> None:
    async with in_process(make_gateway()) as client:
        given = {"best_of": 1, "zebra": 1, "user": "u"}
        answer = await client.post(EXPLAIN, json=completion(**given))
        same = await client.post(COMPLETIONS, json=completion(**given))
    assert answer.headers["x-radixgate-ignored"] == same.headers["x-radixgate-ignored"]


async def test_a_body_about_nothing_is_refused() -> None:
    async with in_process(make_gateway()) as client:
        answer = await client.post(EXPLAIN, json={"model": MODEL, "messages": None})
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (400, "missing_required_parameter")
    assert "'prompt'" in error["message"]


async def test_a_conversation_goes_on_with_what_is_kept() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        first = (await client.post(RESPONSES, json=response("hi"))).json()
        body = response("and?", previous_response_id=first["id"])
        await client.post(EXPLAIN, json=body)
        await client.post(RESPONSES, json=body)
    (asked,) = gateway.engine.asked
    assert isinstance(asked, ExplainCache)
    assert asked.prompt_token_ids == gateway.engine.submitted[-1].prompt_token_ids
    assert b"o, world!" in bytes(token for token in asked.prompt_token_ids if token < 256)


async def test_a_conversation_that_is_shortened_is_explained_as_it_would_be_run() -> None:
    items = [{"role": "user", "content": f"{number:02} " + "x" * 20} for number in range(9)]
    body = response(items, truncation="auto")
    gateway = make_gateway()
    async with in_process(gateway) as client:
        await client.post(EXPLAIN, json=body)
        await client.post(RESPONSES, json=body)
    (asked,) = gateway.engine.asked
    assert isinstance(asked, ExplainCache)
    assert asked.prompt_token_ids == gateway.engine.submitted[0].prompt_token_ids
    assert len(asked.prompt_token_ids) < 128


async def test_each_key_asks_about_its_own_and_an_admin_about_all(tmp_path: Path) -> None:
    gateway = with_keys(tmp_path, explaining())
    for key in KEYS:
        await explained(gateway, completion(cache_salt="s"), authorization=f"Bearer {key}")
    asked = [query for query in gateway.engine.asked if isinstance(query, ExplainCache)]
    assert [query.sees_all for query in asked] == [False, False, True]
    assert len({query.owner for query in asked}) == len({query.namespace for query in asked}) == 3
    assert all(query.owner and query.owner not in KEYS for query in asked)


async def test_without_keys_everybody_sees_all() -> None:
    gateway = make_gateway()
    await explained(gateway, completion())
    (asked,) = gateway.engine.asked
    assert isinstance(asked, ExplainCache)
    assert (asked.owner, asked.sees_all) == ("", True)


async def test_many_prompts_take_no_longer_than_a_request_may_live() -> None:
    """Each is explained in time; all of them are not."""
    gateway = make_gateway(request_timeout_s=0.1)
    asked = []

    async def answer_late(query: CacheQuery) -> CacheAnswer:
        asked.append(query)
        await asyncio.sleep(0.03)
        return CacheExplanation(query.request_id, 1, 0)

    gateway.engine.ask = answer_late  # type: ignore[method-assign]
    async with in_process(gateway) as client:
        answer = await client.post(EXPLAIN, json=completion(["a"] * 100))
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    assert 1 <= len(asked) < 50
