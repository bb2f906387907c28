"""Which requests count as served well."""

from typing import Any

import pytest

from telemetry.goodput import NO_LIMITS, Ended, Slo, judge

SLO = Slo(ttft_s=1.0, tpot_s=0.1)


def result(slo: Slo = SLO, **changes: Any) -> str | None:
    fields: dict[str, Any] = {
        "outcome": "ok", "status": 200, "life_s": 3.0, "ttft_s": 0.5, "tpot_s": 0.05
    }  # fmt: skip
    return judge(Ended(**(fields | changes)), slo)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "good"),
        ({"ttft_s": 1.0, "tpot_s": 0.1}, "good"),
        ({"ttft_s": 1.001}, "slow_ttft"),
        ({"tpot_s": 0.101}, "slow_tpot"),
        ({"ttft_s": 1.1, "tpot_s": 0.2}, "slow_ttft"),
        ({"tpot_s": None}, "good"),
        ({"ttft_s": None, "tpot_s": None}, "good"),
        ({"outcome": "error", "status": 500}, "failed"),
        ({"outcome": "error", "status": 200, "ttft_s": 9.0}, "failed"),
        ({"outcome": "rejected", "status": 503}, "failed"),
        ({"outcome": "rejected", "status": 400}, None),
        ({"outcome": "rejected", "status": 429}, None),
    ],
)
def test_a_request_is_judged_by_its_end_and_its_times(
    changes: dict[str, Any], expected: str | None
) -> None:
    assert result(**changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"ttft_s": None, "life_s": 0.9}, None),
        ({"ttft_s": None, "life_s": 1.1}, "slow_ttft"),
        ({"ttft_s": 1.1}, "slow_ttft"),
        ({"tpot_s": 0.2}, "slow_tpot"),
    ],
)
def test_a_client_that_left_counts_only_where_a_limit_was_missed(
    changes: dict[str, Any], expected: str | None
) -> None:
    assert result(outcome="aborted", status=499, **changes) == expected


def test_without_limits_every_answer_is_good_and_a_failure_is_not() -> None:
    assert result(NO_LIMITS, ttft_s=900.0, tpot_s=90.0) == "good"
    assert result(NO_LIMITS, outcome="error") == "failed"
    assert result(NO_LIMITS, outcome="aborted", ttft_s=None, life_s=900.0) is None


def test_settings_are_milliseconds_and_zero_is_any() -> None:
    assert Slo.of_ms(ttft_ms=500.0, tpot_ms=0.0) == Slo(ttft_s=0.5, tpot_s=None)
    assert Slo.of_ms(ttft_ms=0.0, tpot_ms=50.0) == Slo(ttft_s=None, tpot_s=0.05)
