"""Figures of a load, from timings that were made up."""

from dataclasses import astuple

import pytest

from telemetry.load import RequestTiming
from tests.bench.load_summary import Limits, LoadSummary, goodput, summarize


def test_a_summary_is_over_all_requests_and_the_walls_time() -> None:
    timings = [
        RequestTiming(ttft_s=0.1, stream_s=0.4, itl_s=(0.1, 0.3), output_tokens=3),
        RequestTiming(ttft_s=0.3, stream_s=0.2, itl_s=(0.2,), output_tokens=2),
    ]
    summary = summarize(timings, wall_s=2.0)
    assert astuple(summary) == pytest.approx((2.5, 200, 300, 300, 200, 200, 200, 300))


def test_a_load_without_answers_has_no_times_and_no_tokens() -> None:
    assert summarize([], wall_s=1.0) == LoadSummary(0.0, *[None] * 7)


def test_goodput_counts_requests_that_kept_both_limits() -> None:
    timings = [
        RequestTiming(ttft_s=ttft, stream_s=stream, itl_s=(), output_tokens=11)
        for ttft, stream in ((1.0, 1.0), (1.1, 1.0), (1.0, 1.1), (0.1, 0.1))
    ]
    limits = Limits(max_ttft_s=1.0, max_tpot_s=0.1)
    assert goodput(timings, limits, wall_s=4.0) == 0.5
