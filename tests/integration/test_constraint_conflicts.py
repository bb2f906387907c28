"""Where other wishes of a request are against its grammar, the grammar wins, or the choice ends at
its limit or in an error; no token comes that the grammar does not have."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from grammar.spec import ConstraintSpec
from runtime.messages import ErrorCode, Sampling
from runtime.native.native_executor import NativeExecutor
from tests.constrained_model import Arrangement, ConstrainedModel, load_byte_model
from tests.engine_harness import Answer
from tests.native_library import HAS_COMPILER, NO_COMPILER, built_library, make_cache, runnable_sets

pytestmark = pytest.mark.timeout(300)  # building the native step takes 17 s of a free core

SCHEMA = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "size": {"enum": ["small", "large", None]},
        "parts": {"type": "array", "items": {"enum": [1, 2, 33]}, "maxItems": 3},
        "name": {"type": "string", "pattern": "^[a-z]{2,8}$"},
    },
    "required": ["ok", "size", "parts", "name"],
    "additionalProperties": False,
}
JSON_SCHEMA = ConstraintSpec("json_schema", json.dumps(SCHEMA))
WORD = ConstraintSpec("regex", "[ab]{2,9}")
NEEDED = '{}[]":,truefalsnm'
FOREIGN = "\n\t ~{ZQ0.\\"
MAX_TOKENS = 200


@pytest.fixture(
    scope="module",
    params=[
        "float32",
        pytest.param("int8", marks=pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)),
    ],
)
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConstrainedModel]:
    """Both executors: torch and the native step, which samples in C++ where it can."""
    if request.param == "int8":
        built_library(runnable_sets()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(make_cache(tmp_path_factory.mktemp("cache") / "home")))
        model = load_byte_model(tmp_path_factory.mktemp("tiny") / "bytes", dtype=request.param)
    assert isinstance(model.executor, NativeExecutor) == (request.param == "int8")
    bench = ConstrainedModel(model)
    yield bench
    bench.close()


@pytest.fixture(params=[True, False], ids=["jump-forward", "sampled"])
def arrangement(request: pytest.FixtureRequest) -> Arrangement:
    return Arrangement(jump_forward=request.param)


def ask(
    bench: ConstrainedModel, spec: ConstraintSpec, arrangement: Arrangement, **sampling: Any
) -> Answer:
    request = bench.request(
        "a",
        "Answer, please:",
        bench.grammar.prepare(spec),
        sampling=Sampling(**{"max_tokens": MAX_TOKENS, "temperature": 0.0, **sampling}),
    )
    (answer,) = bench.answers(request, arrangement)
    return answer


def biased(bench: ConstrainedModel, text: str, bias: float) -> dict[int, float]:
    return dict.fromkeys(bench.model.encode(text), bias)


def ids(bench: ConstrainedModel, text: str) -> tuple[int, ...]:
    return tuple(bench.model.encode(text))


def ends(bench: ConstrainedModel, bias: float) -> dict[int, float]:
    return dict.fromkeys(bench.vocabulary.eos_token_ids, bias)


@pytest.mark.parametrize("bias", [-100.0, -1e30])
def test_tokens_that_are_needed_come_whatever_their_bias(
    bench: ConstrainedModel, arrangement: Arrangement, bias: float
) -> None:
    answer = ask(bench, JSON_SCHEMA, arrangement, logit_bias=biased(bench, NEEDED, bias))
    assert answer.finish_reason == "stop"
    bench.assert_kept(SCHEMA, answer, max_tokens=MAX_TOKENS)


@pytest.mark.parametrize("bias", [100.0, 1e30])
def test_tokens_that_are_forbidden_stay_out_whatever_their_bias(
    bench: ConstrainedModel, arrangement: Arrangement, bias: float
) -> None:
    bent = {**biased(bench, FOREIGN, bias), **ends(bench, bias)}
    answer = ask(bench, JSON_SCHEMA, arrangement, logit_bias=bent)
    assert answer.finish_reason == "stop"
    bench.assert_kept(SCHEMA, answer, max_tokens=MAX_TOKENS)


def test_a_bias_still_chooses_among_what_is_allowed(
    bench: ConstrainedModel, arrangement: Arrangement
) -> None:
    for letter in "ab":
        bent = {**biased(bench, letter, 100.0), **ends(bench, -100.0)}
        answer = ask(bench, WORD, arrangement, logit_bias=bent)
        assert (bench.text(answer), answer.finish_reason) == (letter * 9, "stop")


def test_a_bias_for_the_end_ends_where_the_grammar_may(
    bench: ConstrainedModel, arrangement: Arrangement
) -> None:
    answer = ask(bench, WORD, arrangement, logit_bias=ends(bench, 100.0))
    assert len(bench.text(answer)) == 2
    assert answer.last.stop_token_id in bench.vocabulary.eos_token_ids


@pytest.mark.parametrize("bias", [-math.inf, math.inf])
def test_a_bias_that_leaves_no_token_is_an_error_and_no_token(
    bench: ConstrainedModel, arrangement: Arrangement, bias: float
) -> None:
    """A client cannot say this; a gateway that lets it pass must not get a token for it."""
    answer = ask(bench, WORD, arrangement, logit_bias=biased(bench, "ab", bias))
    assert (answer.error_code, answer.token_ids) == (ErrorCode.CONSTRAINT_FAILED, [])


@pytest.mark.parametrize("sampling", [{"min_tokens": 150}, {"min_tokens": 200, "ignore_eos": True}])
def test_a_complete_answer_ends_before_min_tokens(
    bench: ConstrainedModel, arrangement: Arrangement, sampling: dict[str, Any]
) -> None:
    answer = ask(bench, JSON_SCHEMA, arrangement, **sampling)
    assert answer.finish_reason == "stop"
    assert len(answer.token_ids) < 150
    bench.assert_kept(SCHEMA, answer, max_tokens=MAX_TOKENS)


@pytest.mark.parametrize("words", [NEEDED, "{", '"ok"', "truefalse", "[]"])
def test_tokens_that_are_needed_come_even_as_bad_words(
    bench: ConstrainedModel, arrangement: Arrangement, words: str
) -> None:
    bad_words = tuple((token_id,) for token_id in ids(bench, words))
    answer = ask(bench, JSON_SCHEMA, arrangement, bad_words=bad_words)
    assert answer.finish_reason == "stop"
    bench.assert_kept(SCHEMA, answer, max_tokens=MAX_TOKENS)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0}, {"num_logprobs": 1}])
def test_a_bad_word_stays_out_where_the_grammar_has_another_way(
    bench: ConstrainedModel, arrangement: Arrangement, sampling: dict[str, Any]
) -> None:
    bent = {**biased(bench, "a", 5.0), **ends(bench, -100.0)}
    for seed in range(3):
        asked = {"logit_bias": bent, "seed": seed, **sampling}
        plain = bench.text(ask(bench, WORD, arrangement, **asked))
        text = bench.text(ask(bench, WORD, arrangement, bad_words=(ids(bench, "aa"),), **asked))
        assert re.fullmatch("[ab]{9}", text)
        assert "aa" in plain
        assert "aa" not in text


def test_of_a_grammars_tokens_only_those_come_that_the_client_allows(
    bench: ConstrainedModel, arrangement: Arrangement
) -> None:
    """Also the end: without it the answer goes on as long as it can."""
    bent = {**biased(bench, "b", 5.0), **ends(bench, 100.0)}
    allowed = ids(bench, "axyz")
    answer = ask(bench, WORD, arrangement, logit_bias=bent, allowed_token_ids=allowed)
    assert (bench.text(answer), answer.finish_reason) == ("a" * 9, "stop")
    assert answer.last.stop_token_id is None
    allowed += tuple(bench.vocabulary.eos_token_ids)
    answer = ask(bench, WORD, arrangement, logit_bias=bent, allowed_token_ids=allowed)
    assert bench.text(answer) == "aa"


@pytest.mark.parametrize("missing", ["{", '"', "}", "l"])
def test_allowed_tokens_of_which_a_grammar_needs_more_are_an_error(
    bench: ConstrainedModel, arrangement: Arrangement, missing: str
) -> None:
    """Whether they lack what comes first, or what is forced later, or what is there twice."""
    letters = NEEDED + "abcdefghijklmnopqrstuvwxyz_0123456789"
    allowed = tuple(set(ids(bench, letters)) - set(ids(bench, missing)))
    answer = ask(bench, JSON_SCHEMA, arrangement, allowed_token_ids=allowed)
    assert answer.error_code is ErrorCode.NO_TOKEN_LEFT
    assert set(answer.token_ids) <= set(allowed)
    assert answer.last.error is not None
    assert "the constraint and allowed_token_ids leave no token" in answer.last.error.message


@pytest.mark.parametrize("sampling", [{"min_tokens": 7}, {"ignore_eos": True}])
def test_an_end_that_is_not_the_only_way_waits(
    bench: ConstrainedModel, arrangement: Arrangement, sampling: dict[str, Any]
) -> None:
    answer = ask(bench, WORD, arrangement, logit_bias=ends(bench, 100.0), **sampling)
    text = bench.text(answer)
    assert re.fullmatch("[ab]{2,9}", text)
    assert len(text) == (9 if "ignore_eos" in sampling else 7)


@pytest.mark.parametrize("stops", ["}", '"', ",", "{", "e", NEEDED])
def test_a_stop_token_inside_the_answer_does_not_stop_it(
    bench: ConstrainedModel, arrangement: Arrangement, stops: str
) -> None:
    answer = ask(bench, JSON_SCHEMA, arrangement, stop_token_ids=ids(bench, stops))
    assert answer.finish_reason == "stop"
    bench.assert_kept(SCHEMA, answer, max_tokens=MAX_TOKENS)


def test_a_stop_token_stops_where_the_answer_may_end(
    bench: ConstrainedModel, arrangement: Arrangement
) -> None:
    bent = {**biased(bench, "a", 100.0), **ends(bench, -100.0)}
    (stop,) = ids(bench, "a")
    answer = ask(bench, WORD, arrangement, logit_bias=bent, stop_token_ids=(stop,))
    assert (bench.text(answer), answer.last.stop_token_id) == ("aa", stop)


@pytest.mark.parametrize("max_tokens", [1, 2, 7, 20])
def test_too_few_tokens_give_the_beginning_of_an_answer(
    bench: ConstrainedModel, arrangement: Arrangement, max_tokens: int
) -> None:
    answer = ask(bench, JSON_SCHEMA, arrangement, max_tokens=max_tokens)
    assert answer.finish_reason == "length"
    bench.assert_kept(SCHEMA, answer, max_tokens=max_tokens)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 2.0},
        {"temperature": 2.0, "top_k": 1},
        {"temperature": 2.0, "top_p": 1e-9},
        {"temperature": 2.0, "min_p": 1.0},
        {"repetition_penalty": 2.0},
        {"repetition_penalty": 1e30},
        {"repetition_penalty": 0.01},
        {"presence_penalty": 2.0, "frequency_penalty": 2.0},
        {"presence_penalty": -2.0, "frequency_penalty": -2.0},
        {"temperature": 2.0, "repetition_penalty": 2.0, "frequency_penalty": 2.0, "top_k": 3},
    ],
)
def test_temperature_filters_and_penalties_choose_among_what_is_allowed(
    bench: ConstrainedModel, arrangement: Arrangement, sampling: dict[str, Any]
) -> None:
    for seed in range(3):
        answer = ask(bench, JSON_SCHEMA, arrangement, seed=seed, **sampling)
        assert answer.finish_reason == "stop"
        bench.assert_kept(SCHEMA, answer, max_tokens=MAX_TOKENS)
