"""Sampled at temperature 1.0, every finished answer fits its constraint."""

import asyncio
import json
import re
from typing import Any

import httpx2
import jsonschema
import pytest

from tests.conformance.target import Target
from tests.model_file import needs_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

CHAT = "/v1/chat/completions"
NUM_REQUESTS = 50
MAX_AT_ONCE = 16
MAX_TOKENS = 160


def closed(**properties: Any) -> dict[str, Any]:
    """An object of exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def short(max_length: int = 12) -> dict[str, Any]:
    return {"type": "string", "maxLength": max_length}


ADDRESS = closed(city=short(), code={"type": "string", "pattern": "^[0-9]{4,5}$"})
PERSON = closed(
    name={"type": "string", "minLength": 2, "maxLength": 12},
    age={"type": "integer", "minimum": 0, "maximum": 120},
    home=ADDRESS,
    partner={"type": ["string", "null"], "maxLength": 8},
)
ORDER = closed(
    status={"enum": ["new", "paid", "sent", None]},
    items={
        "type": "array",
        "minItems": 1,
        "maxItems": 3,
        "items": closed(
            sku={"enum": ["apple", "pear", "plum"]},
            count={"type": "integer", "minimum": 1, "exclusiveMaximum": 100},
        ),
    },
)
CONTACT = closed(
    kind={"const": "contact"},
    reach={
        "anyOf": [
            closed(mail={"type": "string", "pattern": "^[a-z]{1,8}@[a-z]{1,8}\\.org$"}),
            closed(phone={"type": "integer", "minimum": 100, "maximum": 999999}),
        ]
    },
    urgent={"type": "boolean"},
)
TREE = {
    "$defs": {
        "leaf": closed(word=short(6)),
        "pair": closed(left={"$ref": "#/$defs/leaf"}, right={"$ref": "#/$defs/leaf"}),
    },
    **closed(
        root={"$ref": "#/$defs/pair"},
        grid={
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "items": {"type": "integer", "minimum": -9, "maximum": 9},
            },
        },
        born={"type": "string", "format": "date"},
    ),
}
SCHEMAS = (PERSON, ORDER, CONTACT, TREE)


async def answers(
    target: Target, bodies: list[dict[str, Any]], *, max_at_once: int = MAX_AT_ONCE
) -> list[tuple[str, str]]:
    """Finish reason and text of each, in order."""
    turns = asyncio.Semaphore(max_at_once)

    async def answer(client: httpx2.AsyncClient, body: dict[str, Any]) -> tuple[str, str]:
        async with turns:
            response = await client.post(CHAT, json=body, timeout=170)
        assert response.status_code == 200, response.text
        (choice,) = response.json()["choices"]
        return choice["finish_reason"], choice["message"]["content"]

    async with target.http() as client:
        return await asyncio.gather(*(answer(client, body) for body in bodies))


def schema_request(target: Target, seed: int) -> dict[str, Any]:
    schema = SCHEMAS[seed % len(SCHEMAS)]
    return target.chat(
        "Answer with one JSON object about someone you know.",
        temperature=1.0,
        seed=seed,
        max_tokens=MAX_TOKENS,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )


async def check_schema_answers(target: Target) -> None:
    bodies = [schema_request(target, seed) for seed in range(NUM_REQUESTS)]
    texts = []
    for seed, (reason, text) in enumerate(await answers(target, bodies)):
        assert reason in ("stop", "length")
        if reason == "stop":
            texts.append(text)
            jsonschema.validate(
                json.loads(text),
                SCHEMAS[seed % len(SCHEMAS)],
                cls=jsonschema.Draft202012Validator,
                format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
            )
    assert len(texts) >= NUM_REQUESTS * 3 // 4
    assert len(set(texts)) >= NUM_REQUESTS // 2, "sampled answers should differ"


@needs_model
async def test_50_sampled_answers_of_the_default_model_fit_their_schemas(server: Target) -> None:
    await check_schema_answers(server)


async def test_50_sampled_answers_of_a_random_model_fit_their_schemas(tiny_server: Target) -> None:
    await check_schema_answers(tiny_server)


@pytest.mark.parametrize(
    "pattern",
    [
        r"[A-Z][a-z]{2,8} [0-9]{1,3}(, [a-z]{3})?",
        r"([0-9]{1,3}\.){3}[0-9]{1,3}",
        "[\u00e0-\u00ff]{2,5}!",
    ],
)
async def test_sampled_answers_match_their_regex_wholly(tiny_server: Target, pattern: str) -> None:
    bodies = [
        tiny_server.chat(
            temperature=1.0, seed=seed, max_tokens=60, structured_outputs={"regex": pattern}
        )
        for seed in range(12)
    ]
    got = await answers(tiny_server, bodies)
    assert {reason for reason, _ in got} == {"stop"}
    assert [text for _, text in got if re.fullmatch(pattern, text) is None] == []
    assert len({text for _, text in got}) > 4


async def test_sampled_choices_are_of_the_list_and_all_of_it_is_used(tiny_server: Target) -> None:
    choices = ["red", "reddish", "\U0001f7e6 blue"]
    bodies = [
        tiny_server.chat(
            temperature=1.0, seed=seed, max_tokens=20, structured_outputs={"choice": choices}
        )
        for seed in range(32)
    ]
    got = await answers(tiny_server, bodies)
    assert {reason for reason, _ in got} == {"stop"}
    assert {text for _, text in got} == set(choices)


async def test_json_object_has_an_object_at_its_root(tiny_server: Target) -> None:
    bodies = [
        tiny_server.chat(
            temperature=1.0, seed=seed, max_tokens=400, response_format={"type": "json_object"}
        )
        for seed in range(8)
    ]
    got = await answers(tiny_server, bodies)
    assert all(text.startswith("{") for _, text in got)
    assert all(isinstance(json.loads(text), dict) for reason, text in got if reason == "stop")
