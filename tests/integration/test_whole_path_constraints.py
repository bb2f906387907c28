"""Constrained answers of a tiny model over HTTP: streamed or whole, cold or warm, alone or among
others they say the same, and what else a request wishes never breaks them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings

from grammar.errors import UnsupportedConstraint
from grammar.spec import ConstraintSpec
from runtime.model_source import open_model
from tests.constrained_model import Arrangement, ConstrainedModel, assert_valid, load_byte_model
from tests.gateway_harness import CHAT, chat, error_of
from tests.property.answer_schemas import schemas
from tests.sse_machine import check_chat_stream
from tests.tiny_model import END_OF_TEXT_ID, IM_END_ID
from tests.whole_path import WholePath, serving, stepped_engine

# A model on cores that other work may share.
pytestmark = pytest.mark.timeout(120)

MAX_TOKENS = 64
NUM_SCHEMAS = 24
PART = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "sizes": {"type": "array", "items": {"enum": [1, 22, "large"]}, "maxItems": 3},
        "name": {"type": "string", "pattern": "^[a-z]{2,8}$"},
    },
    "required": ["ok", "sizes", "name"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConstrainedModel]:
    bench = ConstrainedModel(load_byte_model(tmp_path_factory.mktemp("tiny") / "bytes"))
    yield bench
    bench.close()


@pytest.fixture
async def path(bench: ConstrainedModel) -> AsyncIterator[WholePath]:
    assets = open_model(bench.model.config.model).text
    engine = stepped_engine(
        bench.model.executor, bench.model.info, assets=assets, max_running=8, max_step_tokens=64
    )
    async with serving(engine, assets=assets) as path:
        path.probe.prepare = bench.grammar.prepare
        yield path
        engine.assert_idle()


def drawn(bench: ConstrainedModel) -> list[Any]:
    """Generated schemas that are enforced, the same in each run."""
    found: list[Any] = []

    @settings(
        max_examples=NUM_SCHEMAS,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(schema=schemas)
    def collect(schema: Any) -> None:
        try:
            bench.grammar.prepare(ConstraintSpec("json_schema", json.dumps(schema)))
        except UnsupportedConstraint:
            return
        if schema not in found and isinstance(schema, dict):
            found.append(schema)

    collect()
    return found


def asked(schema: Any, **parameters: Any) -> dict[str, Any]:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    settled = {"temperature": 0, "max_tokens": MAX_TOKENS, "response_format": form, **parameters}
    return chat("Say in JSON:", **settled)


async def said(
    client: httpx2.AsyncClient, body: dict[str, Any], *, stream: bool
) -> list[tuple[str, str | None]]:
    """Text and end of each choice."""
    response = await client.post(CHAT, json={**body, "stream": stream})
    assert response.status_code == 200, response.text
    assert response.headers["x-radixgate-constraint"] == "enforced"
    if stream:
        answer = check_chat_stream(response.content, num_choices=body.get("n", 1))
        return list(zip(answer.texts, answer.finish_reasons, strict=True))
    choices = response.json()["choices"]
    return [(choice["message"]["content"], choice["finish_reason"]) for choice in choices]


async def test_streamed_or_whole_cold_or_warm_together_or_not_greedy_answers_are_the_same(
    path: WholePath, bench: ConstrainedModel
) -> None:
    wanted = drawn(bench)
    async with path.client() as client:
        whole = [await said(client, asked(schema), stream=False) for schema in wanted]
        warm = [await said(client, asked(schema), stream=True) for schema in wanted]
        together = await asyncio.gather(
            *(
                said(client, asked(schema, cache_salt=str(number)), stream=number % 2 == 0)
                for number, schema in enumerate(wanted)
            )
        )
    assert whole == warm == together
    ends = [reason for ((_, reason),) in whole]
    assert min(ends.count("stop"), ends.count("length")) >= 3, ends
    for schema, ((text, reason),) in zip(wanted, whole, strict=True):
        if reason == "stop":
            assert_valid(schema, text)


async def test_over_http_the_answer_is_that_of_the_engine(
    path: WholePath, bench: ConstrainedModel
) -> None:
    async with path.client() as client:
        ((text, reason),) = await said(client, asked(PART), stream=True)
        body = asked(PART, logprobs=True)
        response = await client.post(CHAT, json=body)
    (submit, _) = path.engine.submitted
    plain = bench.answers(submit, Arrangement(jump_forward=False))[0]
    assert (bench.text(plain), plain.finish_reason) == (text, reason) == (text, "stop")
    (choice,) = response.json()["choices"]
    assert choice["message"]["content"] == text
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]).startswith(text)


@pytest.mark.parametrize("stream", [False, True])
async def test_each_sampled_choice_is_valid(
    path: WholePath, bench: ConstrainedModel, stream: bool
) -> None:
    texts = set()
    async with path.client() as client:
        for seed, schema in enumerate([PART, *drawn(bench)]):
            body = asked(schema, temperature=1, seed=seed, n=3)
            for text, reason in await said(client, body, stream=stream):
                texts.add(text)
                if reason == "stop":
                    assert_valid(schema, text)
    assert len(texts) > 2 * NUM_SCHEMAS


Encode = Callable[[str], list[int]]

# What a request may wish beside its schema, against it or not.
WISHES: dict[str, Callable[[Encode], dict[str, Any]]] = {
    "needed tokens unwanted": lambda ids: bias(ids('{}[]":,okszenam'), -100),
    "foreign tokens wanted": lambda ids: bias(ids("\n\t ~ZQ\\"), 100),
    "end wanted at once": lambda _: bias([END_OF_TEXT_ID, IM_END_ID], 100),
    "no end": lambda _: {"ignore_eos": True, **bias([END_OF_TEXT_ID, IM_END_ID], -100)},
    "long": lambda _: {"min_tokens": 200},
    "stop strings": lambda _: {"stop": ['"', "}", ":", "ok"]},
    "stop tokens": lambda ids: {"stop_token_ids": ids('"}{:,]')},
    "hot": lambda _: {"temperature": 2, "seed": 1},
    "one candidate": lambda _: {"temperature": 2, "top_k": 1, "top_p": 0, "min_p": 1},
    "no repetition": lambda _: {"repetition_penalty": 10, "frequency_penalty": 2},
    "repetition": lambda _: {"repetition_penalty": 0.01, "presence_penalty": -2},
    "log-probabilities": lambda _: {"logprobs": True, "top_logprobs": 5},
}


def bias(token_ids: list[int], value: float) -> dict[str, Any]:
    return {"logit_bias": {str(token_id): value for token_id in token_ids}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", WISHES)
async def test_a_wish_beside_the_schema_never_breaks_the_answer(
    path: WholePath, bench: ConstrainedModel, name: str, stream: bool
) -> None:
    wishes = WISHES[name](bench.model.encode)
    async with path.client() as client:
        body = asked(PART, max_tokens=200, **wishes)
        ((text, reason),) = await said(client, body, stream=stream)
    assert reason == "stop"
    assert_valid(PART, text)


async def test_stop_strings_are_named_as_ignored(path: WholePath) -> None:
    async with path.client() as client:
        response = await client.post(CHAT, json=asked(PART, max_tokens=200, stop=["}"]))
    assert response.headers["x-radixgate-ignored"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("max_tokens", [1, 5, 20])
async def test_an_answer_that_does_not_fit_ends_with_length(
    path: WholePath, max_tokens: int, stream: bool
) -> None:
    async with path.client() as client:
        body = asked(PART, max_tokens=max_tokens)
        ((text, reason),) = await said(client, body, stream=stream)
        ((whole, _),) = await said(client, asked(PART, max_tokens=200), stream=False)
    assert (text, reason) == (whole[:max_tokens], "length")


async def test_what_cannot_be_done_beside_a_schema_is_refused_by_name(path: WholePath) -> None:
    async with path.client() as client:
        response = await client.post(CHAT, json=asked(PART, min_tokens=65))
    assert response.status_code == 400
    assert error_of(response)["param"] == "min_tokens"
    assert path.engine.submitted == []


async def test_bad_words_give_way_to_a_schema_and_allowed_tokens_to_nothing(
    path: WholePath,
) -> None:
    async with path.client() as client:
        ((text, reason),) = await said(
            client, asked(PART, max_tokens=200, bad_words=['"', "{"]), stream=False
        )
        response = await client.post(CHAT, json=asked(PART, allowed_token_ids=[5]))
    assert reason == "stop"
    assert_valid(PART, text)
    assert (response.status_code, error_of(response)["code"]) == (400, "constraint_failed")
