"""From wire fields to the runtime's sampling."""

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from gateway.errors import InvalidRequest
from gateway.sampling import cache_salt, stop_strings, to_sampling, token_limit
from gateway.schemas.fields import SamplingFields
from runtime.messages import Sampling


def fields(**parameters: Any) -> SamplingFields:
    return SamplingFields(model="m", **parameters)


def sampling(**parameters: Any) -> Any:
    return to_sampling(fields(**parameters), num_logprobs=None, seed=99)


def test_defaults_are_openais() -> None:
    default = sampling()
    assert (default.temperature, default.top_p, default.top_k) == (1.0, 1.0, 0)
    assert default.repetition_penalty == 1.0
    assert default.seed == 99


def test_seed_of_the_request_wins_even_when_zero() -> None:
    assert sampling(seed=0).seed == 0
    assert sampling(seed=-(2**63)).seed == -(2**63)


def test_zero_mass_means_the_best_token() -> None:
    greedy = sampling(top_p=0)
    assert (greedy.top_p, greedy.top_k) == (1.0, 1)


@pytest.mark.parametrize(("given", "top_k"), [(-1, 0), (0, 0), (5, 5)])
def test_top_k_is_off_at_zero_and_minus_one(given: int, top_k: int) -> None:
    assert sampling(top_k=given).top_k == top_k


def test_every_accepted_number_can_be_sent_to_the_runtime() -> None:
    largest = sampling(top_k=2**63 - 1, seed=2**63 - 1, min_tokens=1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(largest), type=Sampling) == largest
    with pytest.raises(ValidationError):
        sampling(top_k=2**63)


def test_bias_is_by_token_id() -> None:
    assert sampling(logit_bias={"5": 1, "007": -2.5}).logit_bias == {5: 1.0, 7: -2.5}


@pytest.mark.parametrize("key", ["abc", "-1", "1.5", "", " 1", "9" * 30, "\u0664"])
def test_bias_of_what_is_no_token_id_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sampling(logit_bias={key: 1})
    assert caught.value.param == "logit_bias"


@pytest.mark.parametrize("name", ["repetition_penalty", "repeat_penalty"])
def test_a_penalty_that_makes_scores_infinite_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        fields(**{name: 1e-40})
    assert sampling(**{name: 0.01}).repetition_penalty == 0.01


def test_repeat_penalty_is_another_name() -> None:
    assert sampling(repeat_penalty=1.2).repetition_penalty == 1.2
    assert sampling(repeat_penalty=1.2, repetition_penalty=1.2).repetition_penalty == 1.2
    with pytest.raises(InvalidRequest):
        sampling(repeat_penalty=1.2, repetition_penalty=1.3)


def test_stop_strings_are_a_list_without_doubles() -> None:
    assert stop_strings(fields()) == ()
    assert stop_strings(fields(stop="a")) == ("a",)
    assert stop_strings(fields(stop=["b", "a", "b"])) == ("b", "a")


def test_first_limit_wins_and_minus_one_is_none() -> None:
    assert token_limit({"a": None, "b": 5, "c": 9}, min_tokens=None) == 5
    assert token_limit({"a": None}, min_tokens=None) is None
    assert token_limit({"a": -1}, min_tokens=5) is None


@pytest.mark.parametrize(("limit", "min_tokens", "param"), [(0, None, "a"), (3, 4, "min_tokens")])
def test_limits_that_cannot_be(limit: int, min_tokens: int | None, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        token_limit({"a": limit}, min_tokens=min_tokens)
    assert caught.value.param == param


def test_salt_has_two_names_that_must_agree() -> None:
    assert cache_salt(fields(extra_key="x")) == "x"
    assert cache_salt(fields(extra_key="x", cache_salt="x")) == "x"
    with pytest.raises(InvalidRequest):
        cache_salt(fields(extra_key="x", cache_salt="y"))
