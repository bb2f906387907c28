"""What the bench calls good is what the server's metric calls good."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry import goodput
from telemetry.bench_run import Slo
from tests.bench_run_samples import failed, record

SECONDS = st.sampled_from([0.05, 0.1, 0.2])
LIMITS = st.none() | SECONDS


@given(ttft_s=SECONDS, tpot_s=st.none() | SECONDS, max_ttft_s=LIMITS, max_tpot_s=LIMITS)
@settings(derandomize=True, max_examples=100)
def test_an_answer_is_good_for_both_or_for_none(
    ttft_s: float, tpot_s: float | None, max_ttft_s: float | None, max_tpot_s: float | None
) -> None:
    seen = replace(record(ttft_s=ttft_s), tpot_s=tpot_s)
    ended = goodput.Ended("ok", 200, life_s=seen.e2e_s, ttft_s=ttft_s, tpot_s=tpot_s)
    theirs = goodput.judge(ended, goodput.Slo(max_ttft_s, max_tpot_s))
    assert Slo(max_ttft_s, max_tpot_s).is_kept_by(seen) == (theirs == "good")


def test_a_failed_request_is_good_for_nobody() -> None:
    assert not Slo().is_kept_by(failed())
    assert goodput.judge(goodput.Ended("error", 500, life_s=0.1), goodput.NO_LIMITS) == "failed"


@pytest.mark.parametrize(("limit_s", "is_good"), [(0.18, True), (0.17, False)])
def test_the_bench_has_a_limit_of_the_whole_answer_too(limit_s: float, is_good: bool) -> None:
    seen = record(ttft_s=0.1, gap_s=0.02, tokens=5)
    assert Slo(max_e2e_s=limit_s + 1e-9).is_kept_by(seen) is is_good
