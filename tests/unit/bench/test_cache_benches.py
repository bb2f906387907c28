"""What the benches of the cache make of what they measured."""

import argparse

import pytest

from tests.bench.cache_isolation import Times
from tests.bench.cache_multi_turn import make_workload
from tests.bench.cache_redis_faults import FULL, NO_REDIS, STOPPED, FaultRow, outcomes
from tests.bench.cache_shared import Side, without_prefix
from tests.bench.restored import Pair, judge, two_questions
from tests.bench.workloads import make_bodies

JITTER = [float(number % 10) for number in range(50)]


def times(known_ms: float, fresh_ms: float, own_ms: float, *, cached: int = 20) -> Times:
    known, fresh, own = ([ms + noise for noise in JITTER] for ms in (known_ms, fresh_ms, own_ms))
    return Times(known, fresh, own, most_cached=cached)


def test_times_that_tell_nothing_and_a_control_that_does_are_isolation() -> None:
    assert times(200, 200, 10).is_isolated


@pytest.mark.parametrize(
    "leaking",
    [times(20, 200, 10), times(190, 200, 10), times(200, 200, 10, cached=600)],
    ids=["times", "a little", "usage"],
)
def test_a_leak_in_times_or_usage_is_seen(leaking: Times) -> None:
    assert not leaking.is_isolated


def test_without_a_working_cache_nothing_is_proved() -> None:
    assert not times(200, 200, 190).is_isolated


def test_the_lines_name_both_p_values() -> None:
    text = "\n".join(times(200, 200, 10).lines())
    assert "Mann-Whitney p = 1.000, Kolmogorov-Smirnov p = 1.000" in text


def test_the_same_question_without_its_prefix() -> None:
    (body,) = make_bodies("shared", "m", num_requests=1, seed="1")
    bare = without_prefix(body)
    assert bare["messages"] == body["messages"][1:]
    assert {**bare, "messages": 0} == {**body, "messages": 0}
    assert len(body["messages"]) == 2


def test_a_sides_middle_is_its_figure() -> None:
    side = Side((10.0, 20.0, 90.0), 100, 25)
    assert side.p50_ms == 20.0
    assert "p95 90.0 ms (25.0% of the prompts cached)" in side.describe()


def test_the_chats_fit_the_default_pool_of_the_default_model() -> None:
    """1,456 pages of 16 tokens; the template adds some ten tokens a turn."""
    workload = make_workload(argparse.Namespace(users=16, turns=20, user_tokens=24))
    a_turn = workload.user_tokens + workload.output_tokens + 12
    assert workload.system_tokens + workload.users * workload.turns * a_turn < 1456 * 16


def pair(known_ms: float, cold_ms: float, *, cached: int = 1392) -> Pair:
    return Pair(known_ms, cold_ms, known_tokens=1412, cached_tokens=cached)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([pair(10, 100), pair(15, 100), pair(90, 100)], True),
        ([pair(10, 100), pair(16, 100), pair(16, 100)], False),
        ([pair(10, 100), pair(10, 100), pair(10, 100, cached=30)], False),
    ],
    ids=["the median counts", "too slow", "a prefix was not found"],
)
def test_restored_prefixes_are_judged(pairs: list[Pair], expected: bool) -> None:
    assert judge("disk", pairs, max_ratio=0.15) is expected


def test_two_questions_have_one_prefix() -> None:
    first, second = two_questions("m", "1")
    other, _ = two_questions("m", "2")
    assert first["messages"][0] == second["messages"][0] != other["messages"][0]
    assert first["messages"][1] != second["messages"][1]
    assert 1300 < len(first["messages"][0]["content"].split()) < 1500


def fault_rows(
    share: float, *, failed: int = 0, openings: float = 1.0, closed: float | None = 2.0
) -> list[FaultRow]:
    return [
        FaultRow(NO_REDIS, 500.0, 0),
        FaultRow(STOPPED, 500.0 * share, failed, "", 3.0, openings, closed),
    ]


def test_faults_are_compared_within_their_round() -> None:
    slow_round = [FaultRow(NO_REDIS, 100.0, 0), FaultRow(STOPPED, 98.0, 0, "", 1.0, 1.0, 1.0)]
    (outcome,) = outcomes([fault_rows(0.94), slow_round, fault_rows(0.96)])
    assert outcome.share == pytest.approx(0.96)
    assert (outcome.num_openings, outcome.num_failed, outcome.is_good) == (3, 0, True)


@pytest.mark.parametrize(
    "rows",
    [
        fault_rows(0.8),
        fault_rows(1.0, failed=1),
        fault_rows(1.0, openings=0.0),
        fault_rows(1.0, closed=None),
    ],
    ids=["slow", "failed", "never opened", "never closed"],
)
def test_a_fault_that_is_felt_or_not_noticed_is_not_good(rows: list[FaultRow]) -> None:
    (outcome,) = outcomes([rows])
    assert not outcome.is_good


def test_a_full_redis_need_not_open_the_breaker() -> None:
    rows = [FaultRow(NO_REDIS, 100.0, 0), FaultRow(FULL, 99.0, 0)]
    (outcome,) = outcomes([rows])
    assert outcome.is_good
