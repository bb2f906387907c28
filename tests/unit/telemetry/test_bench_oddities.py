"""What is said before anybody believes a bench report."""

from dataclasses import replace

import pytest

from telemetry.bench_oddities import odd_lines
from telemetry.bench_report import BenchReport
from telemetry.bench_run import Arrival, Failure, FailureKind, LoadLevel, Series
from tests.bench_run_samples import failed, record, run_of, series


def said(*found: Series) -> list[str]:
    return odd_lines(BenchReport.of(run_of(*found)))


def test_a_plain_run_has_nothing_odd() -> None:
    assert said(series(record(), record(1.0))) == []


def test_failures_are_counted_by_kind_with_the_first_text_of_each() -> None:
    lost = Failure(FailureKind.BROKEN_STREAM, "no end\nmark \x1b[2J")
    lines = said(series(record(), failed(), failed(1.0, lost), failed(2.0)))
    assert lines == [
        "1 client, ours: 1 of 4 requests: a stream that broke off (no end mark ?[2J)",
        "1 client, ours: 2 of 4 requests: another status than 200 (busy)",
    ]


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_of_failure_has_words(kind: FailureKind) -> None:
    (line,) = said(series(failed(failure=Failure(kind, "why")), record()))
    assert line.endswith("(why)")
    assert len(line.partition("requests: ")[2]) > 20


def test_requests_that_were_sent_late_are_told_where_the_load_has_times() -> None:
    late = series(record(late_s=0.02), record(1.0))
    assert said(late) == []
    rated = replace(late, level=LoadLevel(Arrival.POISSON, rate=2.0))
    assert said(rated) == [
        "2 requests/s, ours: requests were sent later than they should: p99 20 ms, at most 20 ms"
    ]
    punctual = series(record(late_s=0.004))
    assert said(replace(punctual, level=rated.level)) == []


def test_what_was_not_sent_or_not_measured_is_told() -> None:
    assert said(series(record(), num_unsent=3)) == [
        "1 client, ours: 3 planned requests were not sent"
    ]
    assert said(series(record(is_warm_up=True))) == ["1 client, ours: no request was measured"]
    warm = replace(failed(), is_warm_up=True)
    assert said(series(warm, record())) == ["1 client, ours: 1 requests of the warm-up failed"]


def test_more_cached_tokens_than_a_prompt_has_are_told() -> None:
    (line,) = said(series(record(), record(1.0, cached_tokens=41)))
    assert line.startswith("1 client, ours: 1 answers say that more tokens were cached than")


def test_answers_that_came_in_one_piece_are_told() -> None:
    (line,) = said(series(record(), record(1.0, gap_s=0.0)))
    assert line.startswith("1 client, ours: 1 answers came all at once")


def test_a_client_with_too_much_to_do_is_told() -> None:
    (line,) = said(series(record(), client_cpu_s=1.8))
    assert line == "1 client, ours: the bench itself took 90% of a core: times may be too long"


def test_answers_that_were_cut_empty_or_wrong_are_told() -> None:
    odd = series(
        record(),
        record(1.0, finish_reason="stop", is_valid=False),
        record(2.0, finish_reason=None, is_valid=True, cached_tokens=None),
        replace(record(3.0), ttft_s=None),
    )
    ends, *others = said(odd)
    assert ends.startswith("1 client, ours: answers ended for different reasons")
    assert ends.endswith(": 2 length, 1 stop, 1 no finish reason")
    assert others == [
        "1 client, ours: 1 answers have no text",
        "1 client, ours: 1 of 2 answers do not fit their schema",
        "1 client, ours: 1 answers do not say how much was cached: the hit rate is too low",
    ]


def test_one_server_under_two_names_is_told() -> None:
    twin = replace(series(record()), label="twin")
    (line,) = said(series(record()), twin)
    assert line.startswith("ours, twin are one server")
    assert said(series(record()), series(record(), clients=4)) == []


def test_notes_and_an_early_end_are_told() -> None:
    noted = replace(series(record()), notes=("the server refuses ignore_eos",))
    assert said(noted) == ["1 client, ours: the server refuses ignore_eos"]
    run = replace(run_of(series(record())), is_interrupted=True)
    (line,) = odd_lines(BenchReport.of(run))
    assert "ended by hand" in line
