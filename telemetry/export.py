"""Spans on their way to a collector: bounded, counted, and never in a request's way.

Every sampled span is either exported or counted as dropped. Imports the SDK; setup.py loads this
module only when a collector is configured.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from telemetry.outage import Outage, last_words
from telemetry.settings import BatchSettings

# The SDK's own loggers speak at each failed attempt; one warning for each outage is enough.
_NOISY_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
)
_STOP_S = 0.5

_logger = logging.getLogger(__name__)


class SpanCounts:
    """Where each sampled span went. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._num_queued = 0
        self._num_in_flight = 0
        self._num_exported = 0
        self._num_dropped = 0

    @property
    def num_exported(self) -> int:
        return self._num_exported

    @property
    def num_dropped(self) -> int:
        return self._num_dropped

    def queue(self, *, max_queued: int) -> bool:
        """Counts one span as queued, or as dropped when the queue is full or closed."""
        with self._lock:
            has_room = not self._is_closed and self._num_queued < max_queued
            if has_room:
                self._num_queued += 1
            else:
                self._num_dropped += 1
            return has_room

    def begin(self, num_spans: int) -> None:
        """A batch left the queue."""
        with self._lock:
            self._num_queued -= num_spans
            self._num_in_flight += num_spans

    def end(self, num_spans: int, *, num_exported: int) -> None:
        """A batch was delivered or lost, or a part of it; after close() it has been counted
        already."""
        with self._lock:
            if self._is_closed:
                return
            self._num_in_flight -= num_spans
            self._num_exported += num_exported
            self._num_dropped += num_spans - num_exported

    def close(self) -> int:
        """Counts what is queued or in flight as dropped, and says how many that were."""
        with self._lock:
            num_lost = 0 if self._is_closed else self._num_queued + self._num_in_flight
            self._is_closed = True
            self._num_dropped += num_lost
            return num_lost


class CountingExporter(SpanExporter):
    """Counts what the inner exporter does with each batch, and reports an outage once."""

    def __init__(
        self,
        inner: SpanExporter,
        *,
        counts: SpanCounts,
        target: str,
        take_rejected: Callable[[], int] = int,
    ) -> None:
        """`take_rejected` says how many spans of the last batch the collector did not want."""
        self._inner = inner
        self._take_rejected = take_rejected
        self._counts = counts
        self._outage = Outage(
            _logger, "traces", target=target, consequence="lost spans are counted"
        )
        self._is_stopped = threading.Event()
        last_words.silence(_NOISY_LOGGERS)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Called by the processor's thread only, one batch at a time."""
        self._counts.begin(len(spans))
        is_exported = not self._is_stopped.is_set() and self._try_export(spans)
        num_rejected = min(self._take_rejected(), len(spans)) if is_exported else 0
        num_exported = len(spans) - num_rejected if is_exported else 0
        self._counts.end(len(spans), num_exported=num_exported)
        if not self._is_stopped.is_set():
            self._outage.note(is_exported and not num_rejected)
        return SpanExportResult.SUCCESS if is_exported else SpanExportResult.FAILURE

    def _try_export(self, spans: Sequence[ReadableSpan]) -> bool:
        try:
            return self._inner.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:
            last_words.keep(f"{type(error).__name__}: {error}")
            return False

    def stop(self) -> None:
        """Ends the batch in flight as far as the inner exporter can, and fails all later ones."""
        if not self._is_stopped.is_set():
            self._is_stopped.set()
            self._inner.shutdown()

    def shutdown(self) -> None:
        self.stop()


class BoundedExport(SpanProcessor):
    """A BatchSpanProcessor whose queue drops are counted and whose end is bounded in time."""

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        settings: BatchSettings,
        target: str,
        take_rejected: Callable[[], int] = int,
    ) -> None:
        self.counts = SpanCounts()
        self.target = target
        self._max_queue_size = settings.max_queue_size
        self._exporter = CountingExporter(
            exporter, counts=self.counts, target=target, take_rejected=take_rejected
        )
        self._batches = BatchSpanProcessor(
            self._exporter,
            max_queue_size=settings.max_queue_size,
            schedule_delay_millis=settings.schedule_delay_ms,
            max_export_batch_size=settings.max_export_batch_size,
            export_timeout_millis=settings.export_timeout_ms,
        )

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        pass

    def on_end(self, span: ReadableSpan) -> None:
        is_sampled = span.context is not None and span.context.trace_flags.sampled
        # The inner queue never overflows: it has as much room as is admitted here.
        if is_sampled and self.counts.queue(max_queued=self._max_queue_size):
            self._batches.on_end(span)

    def close(self, *, drain_s: float) -> None:
        """Exports what is queued for at most `drain_s`; the rest is counted as dropped."""
        drain = threading.Thread(target=self._batches.shutdown, name="trace-drain", daemon=True)
        drain.start()
        drain.join(drain_s)
        if drain.is_alive():
            self._exporter.stop()
            drain.join(_STOP_S)
        if num_lost := self.counts.close():
            _logger.warning("%d spans were not exported before the end", num_lost)
