"""What a reader of a bench report should know before he believes its numbers: a line each.

Errors, requests that were sent late or not at all, answers that were cut or do not fit, a client
that had too much to do. Called by the renderers of the report.
"""

from collections import Counter
from collections.abc import Iterator

from telemetry.bench_figures import SeriesFigures
from telemetry.bench_report import BenchReport, name_of, one_line
from telemetry.bench_run import Arrival, FailureKind, Series
from telemetry.svg_axis import number_text

# Sending this late begins to show in a TTFT.
LATE_S = 0.005
# Of one core: above it the client is busy when answers come, and sees them late.
BUSY_SHARE = 0.7
_KIND_TEXTS = {
    FailureKind.STATUS: "another status than 200",
    FailureKind.TIMEOUT: "no answer in time",
    FailureKind.CONNECTION: "no connection, or lost before the answer",
    FailureKind.BROKEN_STREAM: "a stream that broke off",
    FailureKind.ERROR_EVENT: "an error within the stream",
    FailureKind.TOO_LARGE: "an answer without end",
}


def odd_lines(report: BenchReport) -> list[str]:
    """In the order of the series; empty where nothing was odd. One line each, unescaped."""
    lines = ["the run was ended by hand: the last round is a part of one"]
    if not report.run.is_interrupted:
        lines.clear()
    lines += _shared_servers(report)
    for series, figures in report.each():
        found = (*_failures(series, figures), *_sending(series, figures), *_answers(series))
        lines += [f"{series.level.text}, {name_of(series.label)}: {line}" for line in found]
    return lines


def _shared_servers(report: BenchReport) -> Iterator[str]:
    labels: dict[str, dict[str, None]] = {}
    for one in report.run.series:
        labels.setdefault(one.url, {})[name_of(one.label)] = None
    for same in labels.values():
        if len(same) > 1:
            names = ", ".join(same)
            yield f"{names} are one server: what it was asked first it may answer from its cache"


def _failures(series: Series, figures: SeriesFigures) -> Iterator[str]:
    if not figures.num_requests:
        yield "no request was measured"
    first: dict[FailureKind, str] = {}
    for record in series.measured():
        if record.failure is not None:
            first.setdefault(record.failure.kind, record.failure.text)
    for kind, count in sorted(figures.errors.items()):
        text = one_line(first[kind])
        yield f"{count:,} of {figures.num_requests:,} requests: {_KIND_TEXTS[kind]} ({text})"
    num_failed_before = sum(
        record.failure is not None
        for one in series.rounds
        for record in one.records
        if record.is_warm_up
    )
    if num_failed_before:
        yield f"{num_failed_before:,} requests of the warm-up failed"


def _sending(series: Series, figures: SeriesFigures) -> Iterator[str]:
    if series.num_unsent:
        yield f"{series.num_unsent:,} planned requests were not sent"
    late = figures.late
    if series.level.arrival is not Arrival.CLOSED and late is not None and late.p99 > LATE_S:
        times = f"p99 {number_text(late.p99 * 1e3)} ms, at most {number_text(late.max * 1e3)} ms"
        yield f"requests were sent later than they should: {times}"
    if figures.client_cpu_share > BUSY_SHARE:
        share = f"{figures.client_cpu_share:.0%}"
        yield f"the bench itself took {share} of a core: times may be too long"
    yield from map(one_line, series.notes)


def _answers(series: Series) -> Iterator[str]:
    answered = [one for one in series.measured() if one.failure is None]
    ends = Counter(one.finish_reason or "no finish reason" for one in answered)
    if len(ends) > 1:
        reasons = ", ".join(f"{count:,} {one_line(end, 40)}" for end, count in ends.most_common(6))
        yield f"answers ended for different reasons, and so differ in length: {reasons}"
    num_empty = sum(one.ttft_s is None for one in answered)
    if num_empty:
        yield f"{num_empty:,} answers have no text"
    num_at_once = sum(one.tpot_s == 0 for one in answered)
    if num_at_once:
        yield f"{num_at_once:,} answers came all at once: their TPOT and ITL say nothing"
    num_judged = sum(one.is_valid is not None for one in answered)
    num_wrong = sum(one.is_valid is False for one in answered)
    if num_wrong:
        yield f"{num_wrong:,} of {num_judged:,} answers do not fit their schema"
    num_silent = sum(one.cached_tokens is None for one in answered)
    num_over = sum((one.cached_tokens or 0) > one.prompt_tokens for one in answered)
    if num_over:
        wrong = "say that more tokens were cached than their prompts have: the hit rate is wrong"
        yield f"{num_over:,} answers {wrong}"
    if 0 < num_silent < len(answered):
        yield f"{num_silent:,} answers do not say how much was cached: the hit rate is too low"
