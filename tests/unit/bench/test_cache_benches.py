"""What the benches of the cache make of what they measured."""

import argparse

import pytest

from tests.bench.cache_isolation import Times
from tests.bench.cache_multi_turn import make_workload
from tests.bench.cache_shared import Side, without_prefix
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
