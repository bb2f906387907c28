"""Counting on the way to a collector, with exporters that obey the test."""

import logging
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from telemetry.export import CountingExporter, SpanCounts


class ScriptedExporter(SpanExporter):
    """Each export ends as the script says: True, False or an exception."""

    def __init__(self, *script: bool | Exception) -> None:
        self.script = list(script)
        self.num_calls = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002
        self.num_calls += 1
        outcome = self.script.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return SpanExportResult.SUCCESS if outcome else SpanExportResult.FAILURE


def batch(counts: SpanCounts, size: int) -> list[ReadableSpan]:
    for _ in range(size):
        assert counts.queue(max_queued=100)
    return [ReadableSpan(f"s{i}") for i in range(size)]


def exporting(*script: bool | Exception) -> tuple[CountingExporter, SpanCounts, ScriptedExporter]:
    counts, inner = SpanCounts(), ScriptedExporter(*script)
    return CountingExporter(inner, counts=counts, target="somewhere"), counts, inner


def test_exported_and_failed_batches_are_counted_by_spans() -> None:
    exporter, counts, _ = exporting(True, False, ValueError("odd"))
    for size in (1, 2, 3):
        exporter.export(batch(counts, size))
    assert (counts.num_exported, counts.num_dropped) == (1, 5)


def test_an_outage_is_reported_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    exporter, counts, _ = exporting(False, ValueError("odd"), True, True, False)
    for _ in range(5):
        exporter.export(batch(counts, 1))
    assert [(record.levelname, "cannot" in record.msg) for record in caplog.records] == [
        ("WARNING", True),
        ("INFO", False),
        ("WARNING", True),
    ]


def test_the_warning_says_why(caplog: pytest.LogCaptureFixture) -> None:
    exporter, counts, _ = exporting(ValueError("no route"))
    exporter.export(batch(counts, 1))
    assert "somewhere" in caplog.text
    assert "ValueError: no route" in caplog.text


def test_a_stopped_exporter_fails_batches_without_trying() -> None:
    exporter, counts, inner = exporting(True)
    exporter.stop()
    exporter.stop()
    exporter.export(batch(counts, 2))
    assert inner.num_calls == 0
    assert counts.num_dropped == 2


def test_a_full_queue_drops_until_a_batch_has_left_it() -> None:
    counts = SpanCounts()
    assert [counts.queue(max_queued=2) for _ in range(3)] == [True, True, False]
    counts.begin(2)
    assert counts.queue(max_queued=2)
    assert counts.num_dropped == 1


def test_closing_counts_the_undecided_once_and_late_results_not_at_all() -> None:
    counts = SpanCounts()
    for _ in range(5):
        counts.queue(max_queued=9)
    counts.begin(2)
    assert counts.close() == 5
    counts.end(2, num_exported=2)
    assert counts.close() == 0
    assert not counts.queue(max_queued=9)
    assert (counts.num_exported, counts.num_dropped) == (0, 6)
