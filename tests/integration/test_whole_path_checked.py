"""Answers of a tiny real model to schemas that its masks enforce in part: valid, or an error."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer

from grammar.llguidance_engine import LLGuidanceEngine
from grammar.matcher import Vocabulary
from grammar.validation import AnswerValidator
from runtime.config import RuntimeConfig
from runtime.model_source import ModelSource, open_model
from tests.fake_token_engine import INFO
from tests.gateway_harness import CHAT, chat
from tests.tiny_model import write_tiny_model
from tests.whole_path import WholePath, serving, stepped_engine

MAX_STEP_TOKENS = 64
DIGITS = {
    "type": "array",
    "items": {"type": "string", "pattern": "^[0-9]{1,9}$"},
    "minItems": 4,
    "maxItems": 4,
    "uniqueItems": True,
}
# By its decimal digits it is a multiple; those who divide doubles have it that it is none.
NO_PRICE = {"type": "number", "multipleOf": 0.01, "minimum": 0.07, "maximum": 0.07}
PRICE = {
    "type": "object",
    "properties": {"price": {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 9}},
    "required": ["price"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    return open_model(str(write_tiny_model(tmp_path_factory.mktemp("tiny"))))


@pytest.fixture
async def path(model: ModelSource) -> AsyncIterator[WholePath]:
    # Imported here: nothing else in this module needs torch.
    from runtime.model_runner import load_executor

    config = RuntimeConfig(
        model=str(model.path),
        dtype="float32",
        device="cpu",
        kv_memory_bytes=8 * 1024 * 1024,
        num_threads=1,
    )
    loaded, text = load_executor(model, config), model.text
    info = msgspec.structs.replace(
        INFO,
        dtype=loaded.dtype,
        vocab_size=loaded.vocab_size,
        eos_token_ids=tuple(text.eos_token_ids),
        max_model_len=loaded.max_model_len,
        page_size=loaded.page_size,
        num_pages=loaded.num_pages,
        kv_root=loaded.kv_root,
    )
    engine = stepped_engine(
        loaded.executor, info, assets=text, max_running=8, max_step_tokens=MAX_STEP_TOKENS
    )
    vocabulary = Vocabulary(text.tokenizer_json, text.vocab_size, tuple(text.eos_token_ids))
    async with serving(engine, assets=text) as path:
        path.probe.prepare = LLGuidanceEngine(vocabulary).prepare
        yield path


async def ask(path: WholePath, schema: dict[str, Any], **parameters: Any) -> tuple[int, Any]:
    outputs = {"json": schema, "allow_checked": True}
    async with path.client() as client:
        body = chat("x", max_tokens=60, structured_outputs=outputs, **parameters)
        response = await client.post(CHAT, json=body)
    assert response.headers["x-radixgate-constraint"] == "checked"
    return response.status_code, response.json()


@pytest.mark.parametrize("temperature", [0, 1])
async def test_a_checked_answer_is_valid_whatever_the_model_says(
    path: WholePath, temperature: float
) -> None:
    statuses = []
    for schema in (DIGITS, NO_PRICE, PRICE):
        status, answer = await ask(path, schema, temperature=temperature, seed=7, n=3)
        statuses.append(status)
        if status != 200:
            assert answer["error"]["code"] == "constraint_failed"
            continue
        validator = AnswerValidator(json.dumps(schema))
        for choice in answer["choices"]:
            assert choice["finish_reason"] in ("stop", "length")
            if choice["finish_reason"] == "stop":
                assert validator.problem(choice["message"]["content"]) is None
    assert statuses == [200, 400, 200]


async def test_repetition_is_mended_and_what_it_cost_is_told(
    path: WholePath, model: ModelSource
) -> None:
    (seven,) = Tokenizer.from_str(model.text.tokenizer_json).encode("7").ids
    retried = []
    for seed in range(6):
        status, answer = await ask(path, DIGITS, seed=seed, logit_bias={str(seven): 12})
        if status == 200:
            digits = json.loads(answer["choices"][0]["message"]["content"])
            assert len(set(digits)) == 4
            details = answer["usage"]["completion_tokens_details"]
            retried.append(details.get("retried_tokens", 0))
    assert any(retried)
    assert len(retried) >= 4
