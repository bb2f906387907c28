"""A tiny real model that may reason before its constrained answer: through gateway, wire, runtime
and the matcher, which forces all of the answer that the schema leaves no choice about."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grammar.llguidance_engine import LLGuidanceEngine
from grammar.matcher import Vocabulary
from grammar.validation import AnswerValidator
from runtime.config import RuntimeConfig
from runtime.model_source import open_model
from tests.fake_token_engine import INFO
from tests.gateway_harness import CHAT, chat
from tests.reasoning_model import MAY_THINK, THINKS, THINKS_NOT, write_reasoning_model
from tests.sse_machine import check_chat_stream
from tests.whole_path import WholePath, serving, stepped_engine

SEEDS = range(6)
ORDER = {
    "type": "object",
    "properties": {"kind": {"const": "pizza"}, "count": {"enum": [1, 2, 30]}},
    "required": ["kind", "count"],
    "additionalProperties": False,
}
CHECKED = {
    "type": "array",
    "items": {"enum": [1, 2, 3]},
    "maxItems": 4,
    "minItems": 2,
    "uniqueItems": True,
    "contains": {"const": 3},
}


class Model:
    """The model that reasons, with one executor for all servers of this module."""

    def __init__(self, folder: Path) -> None:
        from runtime.model_runner import load_executor  # brings torch

        self.source = open_model(str(write_reasoning_model(folder)))
        config = RuntimeConfig(
            model=str(self.source.path),
            dtype="float32",
            device="cpu",
            kv_memory_bytes=8 * 1024 * 1024,
            num_threads=1,
        )
        loaded, text = load_executor(self.source, config), self.source.text
        self.executor = loaded.executor
        self.info = msgspec.structs.replace(
            INFO,
            dtype=loaded.dtype,
            vocab_size=loaded.vocab_size,
            eos_token_ids=tuple(text.eos_token_ids),
            max_model_len=loaded.max_model_len,
            page_size=loaded.page_size,
            num_pages=loaded.num_pages,
            kv_root=loaded.kv_root,
        )
        vocabulary = Vocabulary(text.tokenizer_json, text.vocab_size, tuple(text.eos_token_ids))
        self.grammar = LLGuidanceEngine(vocabulary)
        self.end_id, self.start_id = text.vocab_size - 1, text.vocab_size - 2

    @asynccontextmanager
    async def serving(self, template: str) -> AsyncIterator[WholePath]:
        assets = replace(self.source.text, chat_template=template)
        engine = stepped_engine(
            self.executor, self.info, assets=assets, max_running=8, max_step_tokens=64
        )
        async with serving(engine, assets=assets) as path:
            path.probe.prepare = self.grammar.prepare
            yield path
            engine.assert_idle()

    def asked(self, schema: dict[str, Any], **parameters: Any) -> dict[str, Any]:
        """A request to which the model says something of its own, but ends its block in time."""
        return chat(
            "x",
            structured_outputs={"json": schema, "allow_checked": True},
            **{"max_tokens": 300, "logit_bias": {str(self.start_id): -3, str(self.end_id): 3}}
            | parameters,
        )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("tiny"))


async def ask(path: WholePath, body: dict[str, Any]) -> Any:
    async with path.client() as client:
        response = await client.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def reasoning_of(answer: Any) -> str | None:
    reasoning: str | None = answer["choices"][0]["message"].get("reasoning_content")
    return reasoning


def num_reasoning_tokens(answer: Any) -> int:
    num_tokens: int = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    return num_tokens


def assert_valid(schema: dict[str, Any], answer: Any) -> None:
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert AnswerValidator(json.dumps(schema)).problem(choice["message"]["content"]) is None


@pytest.mark.parametrize("schema", [ORDER, CHECKED])
@pytest.mark.parametrize("template", [THINKS, MAY_THINK, THINKS_NOT])
async def test_the_answer_is_valid_after_any_reasoning_and_streamed_the_same(
    model: Model, template: str, schema: dict[str, Any]
) -> None:
    thoughts, num_tokens = [], []
    async with model.serving(template) as path:
        for seed in SEEDS:
            answer = await ask(path, model.asked(schema, seed=seed))
            assert_valid(schema, answer)
            thoughts.append(reasoning_of(answer))
            num_tokens.append(num_reasoning_tokens(answer))
            async with path.client() as client:
                body = model.asked(schema, seed=seed, stream=True)
                streamed = check_chat_stream((await client.post(CHAT, json=body)).content)
            assert streamed.thoughts == [thoughts[-1] or ""]
            assert streamed.texts == [answer["choices"][0]["message"]["content"]]
    assert any(thoughts) == any(num_tokens) == (template != THINKS_NOT)
    assert all(num_tokens) == (template == THINKS)


async def test_the_model_opens_a_block_or_not(model: Model) -> None:
    async with model.serving(MAY_THINK) as path:
        for bias, num_tokens in ((20, 2), (-100, 0)):
            biases = {str(model.start_id): bias, str(model.end_id): 40}
            answer = await ask(path, model.asked(ORDER, logit_bias=biases, seed=1))
            assert_valid(ORDER, answer)
            assert num_reasoning_tokens(answer) == num_tokens


async def test_a_block_that_never_ends_is_cut_by_the_limit(model: Model) -> None:
    async with model.serving(THINKS) as path:
        body = model.asked(ORDER, max_tokens=40, logit_bias={str(model.end_id): -100}, seed=1)
        answer = await ask(path, body)
    (choice,) = answer["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "")
    assert (num_reasoning_tokens(answer), answer["usage"]["completion_tokens"]) == (40, 40)
    assert reasoning_of(answer)


async def test_what_a_schema_forces_follows_the_end_marker_at_once(model: Model) -> None:
    """With the marker as the likeliest token the block is empty, and the rest is forced."""
    schema = {"const": {"kind": "pizza", "sizes": [1, 2, 30]}}
    async with model.serving(THINKS) as path:
        answer = await ask(path, model.asked(schema, logit_bias={str(model.end_id): 100}, seed=1))
    assert_valid(schema, answer)
    assert (reasoning_of(answer), num_reasoning_tokens(answer)) == (None, 1)


async def test_mended_answers_keep_what_was_reasoned_before_them(model: Model) -> None:
    retried = []
    async with model.serving(THINKS) as path:
        for seed in SEEDS:
            before = len(path.engine.submitted)
            answer = await ask(path, model.asked(CHECKED, seed=seed))
            assert_valid(CHECKED, answer)
            _, *later = path.engine.submitted[before:]
            retried.append(len(later))
            for submit in later:
                assert submit.output_prefix.index(model.end_id) == num_reasoning_tokens(answer) - 1
    assert any(retried)
