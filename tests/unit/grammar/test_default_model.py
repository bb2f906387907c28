"""The engines over the default model's own vocabulary, as the product uses them."""

import json
import random
from functools import cache

import pytest

from grammar.engines import load_engine
from grammar.matcher import Vocabulary, compile_constraint
from grammar.spec import ConstraintSpec, EngineName
from runtime.model_source import open_model
from tests.grammar_walk import Texts
from tests.model_file import default_model_path, needs_model

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["café", "日本料理"]},
        "seats": {"type": "integer", "minimum": 1, "maximum": 500},
    },
    "required": ["city", "kind", "seats"],
    "additionalProperties": False,
}


@cache
def vocabulary() -> Vocabulary:
    text = open_model(default_model_path()).text
    return Vocabulary(text.tokenizer_json, text.vocab_size, text.eos_token_ids)


@needs_model
@pytest.mark.parametrize("name", ["llguidance", "xgrammar", "outlines"])
def test_outputs_through_the_default_vocabulary_fit_the_schema(name: EngineName) -> None:
    matcher = compile_constraint(
        load_engine(name, vocabulary()), ConstraintSpec("json_schema", json.dumps(SCHEMA), name)
    )
    texts = Texts(vocabulary())
    opening = matcher.forced_tokens()
    assert matcher.accept(opening) == len(opening)
    value = json.loads(texts.decode(opening + texts.walk(matcher, random.Random(3))))
    assert list(value) == ["city", "kind", "seats"]
    assert value["kind"] in SCHEMA["properties"]["kind"]["enum"]  # type: ignore[index]
    assert 1 <= value["seats"] <= 500


@needs_model
def test_forced_tokens_are_those_of_the_tokenizer() -> None:
    matcher = compile_constraint(
        load_engine("llguidance", vocabulary()),
        ConstraintSpec("choice", json.dumps(["The answer is 42."])),
    )
    assert matcher.forced_tokens() == Texts(vocabulary()).encode("The answer is 42.")
