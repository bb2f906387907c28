"""Constraints over SentencePiece vocabularies: a space put first, spaces inside pieces, characters
of several byte tokens. Whatever the masks let through is text that fits."""

import json
import random
from functools import cache

import jsonschema
import pytest

from grammar.engines import load_engine
from grammar.matcher import GrammarEngine, Vocabulary, compile_constraint
from grammar.spec import EngineName
from runtime.gguf_vocabulary import build_tokenizer_json
from tests.grammar_walk import Texts, compact, constraint, json_schema
from tests.sentencepiece import SPACE, sentencepiece_metadata

END = 2
PIECES = (
    f"{SPACE}the", f"{SPACE}t", "he", '{"', '":', '"}', '","', f'{SPACE}"', f"{SPACE}{{", "name",
    "nam", "na", "am", "me", "12", f"{SPACE}1", SPACE * 2,
    *(chr(code) for code in range(33, 127)), SPACE, "é",
)  # fmt: skip
ENGINES: tuple[EngineName, ...] = ("llguidance", "xgrammar", "outlines")


@cache
def vocabulary(*, adds_prefix: bool) -> Vocabulary:
    changes = {"tokenizer.ggml.add_space_prefix": adds_prefix}
    metadata = sentencepiece_metadata(PIECES, user_defined=["\n", "<b>", "[x]"], changes=changes)
    num_tokens = len(metadata["tokenizer.ggml.tokens"])
    return Vocabulary(build_tokenizer_json(metadata), num_tokens + 5, (END,))


@cache
def _engine(name: EngineName, *, adds_prefix: bool) -> GrammarEngine:
    return load_engine(name, vocabulary(adds_prefix=adds_prefix))


@pytest.fixture(params=[True, False], ids=["space first", "no space first"])
def adds_prefix(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> EngineName:
    name: EngineName = request.param
    return name


@pytest.fixture
def engine(engine_name: EngineName, adds_prefix: bool) -> GrammarEngine:
    return _engine(engine_name, adds_prefix=adds_prefix)


@pytest.fixture
def texts(adds_prefix: bool) -> Texts:
    return Texts(vocabulary(adds_prefix=adds_prefix))


@pytest.mark.parametrize(
    "value",
    ["a", " the  the ", "é 日本 🌍\n", "q<b>[x]z", {"name": "the", " 1": [12, None]}, "a</s>b"],
)
def test_what_a_schema_forces_is_its_text(
    engine: GrammarEngine, engine_name: EngineName, texts: Texts, value: object
) -> None:
    matcher = compile_constraint(engine, json_schema({"const": value}, engine_name))
    output = texts.walk(matcher, random.Random(0))
    assert json.loads(texts.decode(output)) == value


@pytest.mark.parametrize("value", ["name", " the", "é", "日本 🌍"])
def test_a_choice_is_written_as_it_is(
    engine: GrammarEngine, engine_name: EngineName, texts: Texts, value: str
) -> None:
    matcher = compile_constraint(engine, constraint("choice", json.dumps([value]), engine_name))
    for seed in range(5):
        assert texts.decode(texts.walk(matcher, random.Random(seed))) == value


def test_random_answers_fit_their_schema(
    engine: GrammarEngine, engine_name: EngineName, texts: Texts
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 6},
            "n": {"type": "integer", "minimum": 0, "maximum": 200},
            "kind": {"enum": ["the", " name", "日本"]},
        },
        "required": ["name", "n", "kind"],
        "additionalProperties": False,
    }
    matcher = compile_constraint(engine, json_schema(schema, engine_name))
    outputs = [texts.walk(matcher, random.Random(seed)) for seed in range(40)]
    answers = [json.loads(texts.decode(output)) for output in outputs if output]
    assert len(answers) > 20
    for answer in answers:
        jsonschema.validate(answer, schema)
        assert compact(answer)


def test_a_space_where_none_may_stand_is_not_let_through_inside_a_piece(
    engine: GrammarEngine, engine_name: EngineName, texts: Texts
) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "null"}},
        "additionalProperties": False,
    }
    matcher = compile_constraint(engine, json_schema(schema, engine_name))
    allowed = {texts.decode([token_id]) for token_id in texts.allowed(matcher)}
    assert "{" in allowed
    assert not {text for text in allowed if text.startswith(" ")}


def test_forced_tokens_are_the_forced_text(adds_prefix: bool, texts: Texts) -> None:
    engine = _engine("llguidance", adds_prefix=adds_prefix)
    matcher = compile_constraint(engine, json_schema({"const": {"name": " the é"}}))
    assert texts.forced(matcher) == '{"name":" the é"}'
