"""What a trace says of a request in the gateway: the conventions' attributes, and each phase's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from grammar.errors import UnsupportedConstraint
from grammar.spec import Gap
from runtime.messages import Submit
from telemetry import names
from tests.byte_tokenizer import byte_assets
from tests.gateway_harness import (
    BODIES,
    CHAT,
    RESPONSES,
    Gateway,
    chat,
    in_process,
    make_gateway,
    response,
)
from tests.reasoning_model import reasoning_assets, token_ids

SCHEMA = {"type": "array", "contains": {"const": 5}}
GAP = Gap("/contains", "contains", "counts are not kept")
CHECKED = {"structured_outputs": {"json": SCHEMA, "allow_checked": True}}


def gateway_that_says(*answers: str, **settings: Any) -> Gateway:
    """In turn, without the part that an answer goes on from."""
    left = [answer.encode() for answer in answers]

    def script(submit: Submit, _choice: int) -> Sequence[int]:
        return list(left.pop(0)[len(submit.output_prefix) :])

    return make_gateway(script, **settings)


async def post(gateway: Gateway, body: Mapping[str, Any], path: str = CHAT) -> dict[str, Any]:
    async with in_process(gateway) as client:
        answer: dict[str, Any] = (await client.post(path, json=body)).json()
    return answer


def spans_of(gateway: Gateway, name: str) -> list[dict[str, Any]]:
    spans = gateway.spans.get_finished_spans()
    return [dict(span.attributes or {}) for span in spans if span.name == name]


def one(gateway: Gateway, name: str) -> dict[str, Any]:
    (attributes,) = spans_of(gateway, name)
    return attributes


async def test_both_spans_say_where_the_request_came_to() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        await client.post(f"http://forged.example:1{CHAT}", json=chat(), headers={"host": "x.y"})
    server, model = one(gateway, f"POST {CHAT}"), one(gateway, "chat tiny")
    assert (server[names.URL_SCHEME], server[names.URL_PATH]) == ("http", CHAT)
    # The test's transport has the URL's host for the socket's address.
    address = ("forged.example", 1)
    for span in (server, model):
        assert (span[names.SERVER_ADDRESS], span[names.SERVER_PORT]) == address


@pytest.mark.parametrize(
    ("path", "operation"),
    [(CHAT, "chat"), ("/v1/completions", "text_completion"), (RESPONSES, "chat")],
)
async def test_each_route_that_generates_has_a_model_span(path: str, operation: str) -> None:
    gateway = make_gateway()
    await post(gateway, BODIES[path](), path)
    assert one(gateway, f"{operation} tiny")[names.GEN_AI_OPERATION] == operation


async def test_embeddings_have_a_model_span_that_says_that_there_are_none() -> None:
    gateway = make_gateway()
    await post(gateway, {"model": "tiny", "input": "hi"}, "/v1/embeddings")
    model = one(gateway, "embeddings tiny")
    assert model[names.GEN_AI_OPERATION] == "embeddings"
    assert model[names.ERROR_TYPE] == "unsupported_value"


@pytest.mark.parametrize("path", [f"{CHAT}/render", "/apply-template", "/v1/cache/explain"])
async def test_what_is_only_prepared_has_the_phases_of_that_and_no_model_span(path: str) -> None:
    gateway = make_gateway()
    await post(gateway, chat(), path)
    assert [span.name for span in gateway.spans.get_finished_spans()] == [
        "tokenize",
        f"POST {path}",
    ]


async def test_stop_strings_are_told_and_bounded() -> None:
    gateway = make_gateway()
    await post(gateway, chat(stop=["END", "x" * 2000]))
    assert one(gateway, "chat tiny")[names.GEN_AI_REQUEST_STOP] == ("END", "x" * 1024)
    plain = make_gateway()
    await post(plain, chat())
    assert names.GEN_AI_REQUEST_STOP not in one(plain, "chat tiny")


async def test_all_that_shapes_an_answer_is_told() -> None:
    gateway = make_gateway()
    await post(
        gateway,
        chat(
            temperature=0.25,
            top_p=0.5,
            top_k=7,
            seed=11,
            frequency_penalty=0.75,
            presence_penalty=-0.5,
            max_tokens=3,
            n=2,
        ),
    )
    shape = {
        names.GEN_AI_REQUEST_TEMPERATURE: 0.25,
        names.GEN_AI_REQUEST_TOP_P: 0.5,
        names.GEN_AI_REQUEST_TOP_K: 7,
        names.GEN_AI_REQUEST_SEED: 11,
        names.GEN_AI_REQUEST_FREQUENCY_PENALTY: 0.75,
        names.GEN_AI_REQUEST_PRESENCE_PENALTY: -0.5,
        names.GEN_AI_REQUEST_MAX_TOKENS: 3,
        names.GEN_AI_REQUEST_CHOICES: 2,
    }
    told = one(gateway, "chat tiny")
    assert {name: told.get(name) for name in shape} == shape
    plain = make_gateway()
    await post(plain, chat())
    left_out = {names.GEN_AI_REQUEST_CHOICES, names.GEN_AI_REQUEST_TOP_K}
    assert not left_out & one(plain, "chat tiny").keys()


@pytest.mark.parametrize("kind", ["text", "json"])
async def test_what_an_answer_shall_be_is_told(kind: str) -> None:
    gateway = gateway_that_says("{}")
    wanted = {"response_format": {"type": "json_object"}} if kind == "json" else {}
    await post(gateway, chat(**wanted))
    assert one(gateway, "chat tiny")[names.GEN_AI_OUTPUT_TYPE] == kind


async def test_tokens_of_reasoning_are_part_of_the_usage() -> None:
    gateway = make_gateway(
        lambda _submit, _choice: token_ids("<think>hm</think>yes"), assets=reasoning_assets()
    )
    answer = await post(gateway, chat())
    told = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert one(gateway, "chat tiny")[names.GEN_AI_USAGE_REASONING] == told > 0


async def test_cached_tokens_of_lower_tiers_are_told_by_tier() -> None:
    gateway = make_gateway()
    gateway.engine.cached_tokens, gateway.engine.tier_tokens = 9, {"disk": 3, "redis": 4}
    await post(gateway, chat())
    model = one(gateway, "chat tiny")
    told = {key: value for key, value in model.items() if names.ATTR_TIER_TOKENS in key}
    assert told == {f"{names.ATTR_TIER_TOKENS}.disk": 3, f"{names.ATTR_TIER_TOKENS}.redis": 4}
    assert model[names.ATTR_CACHED_TOKENS] == 9


async def test_a_chain_of_responses_is_one_conversation() -> None:
    gateway = make_gateway()
    first = await post(gateway, response(), RESPONSES)
    second = await post(gateway, response(previous_response_id=first["id"]), RESPONSES)
    await post(gateway, response(previous_response_id=second["id"]), RESPONSES)
    ids = [span.get(names.GEN_AI_CONVERSATION) for span in spans_of(gateway, "chat tiny")]
    assert ids == [first["id"]] * 3


@pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, chat(prompt_cache_key="many")), (RESPONSES, response(store=False))],
)
async def test_what_nobody_can_go_on_with_is_no_conversation(
    path: str, body: dict[str, Any]
) -> None:
    gateway = make_gateway()
    await post(gateway, body, path)
    assert names.GEN_AI_CONVERSATION not in one(gateway, "chat tiny")


async def test_tokenize_says_how_many_messages_and_tokens() -> None:
    gateway = make_gateway()
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 2
    answer = await post(gateway, {**chat(), "messages": messages})
    tokenize = one(gateway, "tokenize")
    assert tokenize[names.ATTR_MESSAGES] == 4
    assert tokenize[names.ATTR_TOKENS] == answer["usage"]["prompt_tokens"]


async def test_compiling_says_what_it_cost_and_what_it_covers() -> None:
    gateway = gateway_that_says("[5]", "[5]")
    gateway.probe.gaps = (GAP, GAP)
    for _ in range(2):
        await post(gateway, chat(**CHECKED))
    first, second = spans_of(gateway, "grammar.compile")
    assert first == {
        names.ATTR_GRAMMAR_WHERE: "gateway",
        names.ATTR_GRAMMAR_ENGINE: "llguidance",
        names.ATTR_CONSTRAINT_KIND: "json_schema",
        names.ATTR_COMPILE_CACHED: False,
        names.ATTR_COMPILE_MS: 1.0,
        names.ATTR_CONSTRAINT: "checked",
        names.ATTR_CONSTRAINT_GAPS: 2,
    }
    assert second == {**first, names.ATTR_COMPILE_CACHED: True}


async def test_refused_schema_says_for_which_keyword_and_not_under_which_name() -> None:
    gateway = make_gateway()
    gateway.probe.error = UnsupportedConstraint("no", pointer="/properties/salary/not")
    await post(gateway, chat(**CHECKED))
    told = one(gateway, "grammar.compile")
    assert told[names.ATTR_CONSTRAINT] == "refused"
    assert told[names.ATTR_CONSTRAINT_KEYWORD] == "not"
    assert told[names.ATTR_CONSTRAINT_POINTER] == "/properties/*/not"


async def test_each_try_of_a_checked_answer_is_validated() -> None:
    gateway = gateway_that_says("[7]", "[7,5]")
    gateway.probe.gaps = (GAP,)
    await post(gateway, chat(**CHECKED))
    first, second = spans_of(gateway, "validate")
    assert first == {
        names.ATTR_VALIDATION: "invalid",
        names.ATTR_CHOICE: 0,
        names.ATTR_CONSTRAINT_KIND: "json_schema",
        names.ATTR_CONSTRAINT_KEYWORD: "contains",
        names.ATTR_CONSTRAINT_POINTER: "/contains",
    }
    assert second[names.ATTR_VALIDATION] == "valid"


async def test_tools_whose_schemas_are_kept_in_part_say_so() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    gateway = gateway_that_says("no call", assets=replace(byte_assets(), max_position=2048))
    assert gateway.engine.info is not None
    gateway.engine.info = msgspec.structs.replace(gateway.engine.info, max_model_len=2048)
    gateway.probe.gaps = (Gap("/calls/0/schema/not", "not", "no"),)
    await post(gateway, chat(tools=[tool]))
    told = one(gateway, "grammar.compile")
    assert (told[names.ATTR_CONSTRAINT], told[names.ATTR_CONSTRAINT_GAPS]) == ("partial", 1)
    assert told[names.ATTR_CONSTRAINT_KIND] == "tool_calls"


async def test_free_answer_is_not_validated() -> None:
    gateway = make_gateway()
    await post(gateway, chat())
    assert spans_of(gateway, "validate") == []
