"""Faults of constrained answers that other servers were reported for: constraints that are dropped,
whitespace without end, schemas that take a server down, keys out of order."""

import asyncio
import json
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

import httpx2
import pytest

from runtime.messages import Submit
from tests.constrained_model import assert_valid
from tests.gateway_harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    RESPONSES,
    chat,
    error_of,
    in_process,
    make_gateway,
)
from tests.integration.http.faults.wishful import wishing

SCHEMA = {"type": "object"}
TAGS = {
    "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f"],
}
# What clients of OpenAI, vLLM (old and new), SGLang and llama.cpp send, and what they may come to.
CONSTRAINTS: dict[str, Any] = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
    "structured_outputs": {"json": SCHEMA},
    "guided_json": SCHEMA,
    "guided_regex": "{}",
    "guided_choice": ["{}"],
    "guided_grammar": 'root ::= "{}"',
    "guided_json_object": True,
    "guided_structural_tag": TAGS,
    "guided_decoding": {"json": SCHEMA},
    "structural_tag": TAGS,
    "json_schema": json.dumps(SCHEMA),
    "regex": "{}",
    "ebnf": 'root ::= "{}"',
    "grammar": 'root ::= "{}"',
    "grammar_lazy": True,
    "grammar_triggers": [{"type": 1, "value": "<f"}],
    "stop_regex": "}",
    "logit_processors": ["x"],
    "logits_processors": ["x"],
}
# Not their names on that route, as on OpenAI's: they are no constraints there.
ELSEWHERE = {(CHAT, "text"), (COMPLETIONS, "text")}
NESTED = (
    {"structured_outputs": {"json": SCHEMA, "lark": "start: /a/"}},
    {"structured_outputs": {"guided_json": SCHEMA}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA},
                         "grammar": "x"}},
    {"response_format": {"type": "xml"}},
    {"response_format": {"type": "json_schema"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
)  # fmt: skip


def braces(submit: Submit, _choice: int) -> Sequence[int]:
    return list(b"Hello!" if submit.constraint is None else b"{}")


@pytest.mark.parametrize("path", BODIES)
async def test_a_constraint_is_enforced_or_refused_by_name_and_never_dropped(path: str) -> None:
    """vllm#53975, #12692, outlines#1887: 200 and free text for a name that was renamed."""
    told = {}
    gateway = make_gateway(braces)
    async with in_process(gateway) as client:
        for name, value in CONSTRAINTS.items():
            if (path, name) in ELSEWHERE:
                continue
            num_submitted = len(gateway.engine.submitted)
            answer = await client.post(path, json=BODIES[path](**{name: value}))
            told[name] = answer.status_code
            if answer.status_code == 400:
                assert error_of(answer)["param"].split(".")[0] == name
                assert len(gateway.engine.submitted) == num_submitted
            else:
                assert answer.headers["x-radixgate-constraint"] == "enforced", name
                assert gateway.engine.submitted[-1].constraint is not None
    assert {name for name, status in told.items() if status == 200} >= {
        *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
        *("json_schema", "regex", "ebnf", "grammar"),
        "text" if path == RESPONSES else "response_format",
    }


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_an_unsupported_part_of_a_format_is_named_and_no_server_error(path: str) -> None:
    """llama.cpp#23463: 500 for a type of response_format that does not exist."""
    async with in_process(make_gateway(braces)) as client:
        for parameters in NESTED:
            answer = await client.post(path, json=BODIES[path](**parameters))
            error = error_of(answer)
            assert answer.status_code == 400, parameters
            assert error["param"].split(".")[0] == next(iter(parameters))
            if parameters == {"response_format": {"type": "xml"}}:
                assert error["param"] == "response_format.type"


def blank(said: bytes) -> bytes:
    """Whitespace for ever, wherever it is no part of a string."""
    return b'"' if said.count(b'"') % 2 else b" \n\t\r}]"


FORMS: tuple[Any, ...] = (
    SCHEMA,
    {"type": "array", "maxItems": 3},
    {
        "type": "object",
        "properties": {"b": {"type": "integer", "maximum": 9}, "a": {"enum": [[1, 2], {"x": 1}]}},
        "required": ["b", "a"],
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}},
)


def _runs(text: str) -> list[str]:
    """Of whitespace outside of strings."""
    runs, run, is_string = [], "", False
    for letter in text:
        is_string ^= letter == '"'
        if letter.isspace() and not is_string:
            run += letter
        elif run:
            runs.append(run)
            run = ""
    return runs


async def test_whitespace_never_fills_an_answer_up_to_its_limit() -> None:
    """vllm#38696, #13260, sglang#8250, omlx#2990, outlines#691"""
    async with wishing(blank) as path, path.client() as client:
        for form in FORMS:
            texts = []
            for asked in ({}, {"guided_whitespace_pattern": "[\\n ]?"}):
                body = chat(guided_json=form, max_tokens=512, **asked)
                (choice,) = (await client.post(CHAT, json=body)).json()["choices"]
                assert choice["finish_reason"] == "stop", choice
                assert_valid(form, choice["message"]["content"])
                texts.append(choice["message"]["content"])
            assert _runs(texts[0]) == [], "compact unless whitespace is asked for"
            assert max(map(len, _runs(texts[1]))) <= 62
        body = chat(response_format={"type": "json_object"}, max_tokens=512)
        (choice,) = (await client.post(CHAT, json=body)).json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("{}", "stop")


BROKEN: tuple[dict[str, Any], ...] = (
    {"guided_regex": "foo**"},
    {"guided_regex": "(a"},
    {"guided_json": {"type": "banana"}},
    {"guided_json": {"$ref": "#/nope"}},
    {"guided_json": {"$ref": "#"}},
    {"guided_grammar": "root ::= nothing"},
    {"guided_grammar": "start: start"},
    {"structured_outputs": {"regex": "[z-a]"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x",
                                                                "schema": {"enum": []}}}},
)  # fmt: skip


async def test_a_broken_constraint_is_a_400_and_harms_no_neighbour() -> None:
    """vllm#17313, #19270, #17248: the engine went down, and all requests with it."""

    async def neighbour(client: httpx2.AsyncClient, salt: str) -> str:
        body = chat(guided_regex="[a-z]{40}", cache_salt=salt, max_tokens=60)
        text: str = (await client.post(CHAT, json=body)).json()["choices"][0]["message"]["content"]
        return text

    async with wishing(lambda said: [97 + len(said) % 26]) as path, path.client() as client:
        alone = await neighbour(client, "alone")
        beside, answers = await asyncio.gather(
            neighbour(client, "beside"),
            asyncio.gather(*(client.post(CHAT, json=chat(**broken)) for broken in BROKEN)),
        )
        for parameters, answer in zip(BROKEN, answers, strict=True):
            error = error_of(answer)
            assert answer.status_code == 400, parameters
            assert error["param"].split(".")[0] == next(iter(parameters))
            assert error["code"] in ("invalid_grammar", "invalid_json_schema")
        assert len(path.engine.submitted) == 2
        assert beside == alone == ascii_lowercase + ascii_lowercase[:14]
        assert await neighbour(client, "after") == alone


OPEN = {
    "type": "object",
    "properties": {"b": {"type": "integer"}, "a": {"type": "integer"}},
    "additionalProperties": True,
}


# What the model wants to say, and what it says of it.
WANTED = {
    '{"b":1,"a":2}': '{"b":1,"a":2}',
    '{"b":1,"a":2,"c":[{"b":3,"a":4}]}': '{"b":1,"a":2,"c":[{"b":3,"a":4}]}',
    '{"b":1,"ab":2}': '{"b":1,"ab":2}',
    '{"a":1,"c":2}': '{"a":1,"c":2}',
    # Where its own order is against the schema's, some other key comes instead.
    '{"a":1,"b":2}': None,
    '{"c":1,"b":2,"a":3}': None,
}


async def test_keys_keep_the_order_of_the_schema_without_a_dead_end() -> None:
    """xgrammar#831, llama.cpp#15216, ollama#8461"""
    wanted = b""

    def wish(so_far: bytes) -> bytes:
        goes_on = wanted[len(so_far) : len(so_far) + 1] if wanted.startswith(so_far) else b""
        return goes_on + b'":}1'

    async with wishing(wish) as path, path.client() as client:
        for text, expected in WANTED.items():
            wanted = text.encode()
            body = chat(guided_json=OPEN, max_tokens=200, cache_prompt=False)
            (choice,) = (await client.post(CHAT, json=body)).json()["choices"]
            said = choice["message"]["content"]
            assert choice["finish_reason"] == "stop", said
            assert_valid(OPEN, said)
            assert expected in (said, None)
            keys = [key for key, _ in json.loads(said, object_pairs_hook=list)]
            assert len(set(keys)) == len(keys), "a key came twice"
            assert not any('"' in key for key in keys)


async def test_required_keys_come_in_the_order_of_the_schema_whatever_the_model_wants() -> None:
    """ollama#8461: they came in the order of the alphabet."""
    form = {**OPEN, "required": ["a", "b"], "additionalProperties": False}
    async with wishing(lambda _said: b'a"') as path, path.client() as client:
        body = chat(guided_json=form, max_tokens=200)
        (choice,) = (await client.post(CHAT, json=body)).json()["choices"]
    assert list(json.loads(choice["message"]["content"])) == ["b", "a"]
