"""The bodies of the workloads: the same for the same seed, new for another, bounded as they say."""

import itertools
import json

import jsonschema
import pytest

from tests.bench.workloads import (
    ANSWER_SCHEMA,
    WORKLOADS,
    Workload,
    make_bodies,
    make_pairs,
)
from tests.fake_openai_server import INVALID, VALID


def prompt_words(body: dict[str, object]) -> int:
    messages = body["messages"]
    assert isinstance(messages, list)
    return sum(len(message["content"].split()) for message in messages)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_bodies_follow_from_the_seed(workload: Workload) -> None:
    once, again, other = (
        make_bodies(workload, "m", num_requests=3, seed=seed) for seed in ("1", "1", "2")
    )
    assert once == again
    assert [body for body in once if body in other] == []


@pytest.mark.parametrize(
    ("workload", "words", "max_tokens"), [("short", 10, 128), ("unique", 250, 64)]
)
def test_plain_workloads_have_their_size(workload: Workload, words: int, max_tokens: int) -> None:
    for body in make_bodies(workload, "m", num_requests=4, seed="1"):
        assert prompt_words(body) == words
        assert (body["max_tokens"], body["ignore_eos"], body["temperature"]) == (
            max_tokens,
            True,
            0,
        )


def test_unique_prompts_share_no_beginning() -> None:
    bodies = make_bodies("unique", "m", num_requests=8, seed="1")
    beginnings = {" ".join(body["messages"][0]["content"].split()[:4]) for body in bodies}
    assert len(beginnings) == len(bodies)


def test_shared_bodies_differ_after_one_system_prompt() -> None:
    bodies = make_bodies("shared", "m", num_requests=4, seed="1")
    systems, questions = zip(*(body["messages"] for body in bodies), strict=True)
    assert {message["role"] for message in systems} == {"system"}
    assert len({message["content"] for message in systems}) == 1
    assert len({message["content"] for message in questions}) == len(bodies)
    assert 1300 < len(systems[0]["content"].split()) < 1500


def test_a_json_body_ends_by_itself_and_asks_for_the_schema() -> None:
    (body,) = make_bodies("json", "m", num_requests=1, seed="1")
    assert "ignore_eos" not in body
    assert body["response_format"]["json_schema"]["schema"] is ANSWER_SCHEMA


@pytest.mark.parametrize(("text", "is_valid"), [(VALID, True), (INVALID, False)])
def test_the_schema_tells_the_fake_servers_answers_apart(text: str, is_valid: bool) -> None:
    validator = jsonschema.Draft202012Validator(ANSWER_SCHEMA)
    assert validator.is_valid(json.loads(text)) == is_valid


def test_a_pair_is_one_prompt_twice() -> None:
    bodies = make_pairs("m", num_pairs=3, seed="1")
    pairs = list(itertools.pairwise(bodies))[::2]
    assert len(pairs) == 3
    assert all(cold == warm for cold, warm in pairs)
    assert len({str(cold) for cold, _ in pairs}) == 3
