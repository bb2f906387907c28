"""Tracing of one server: starts request traces and owns their export.

Without a collector it still makes ids and carries W3C context, and imports no SDK.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanContext

from telemetry import names
from telemetry.phases import PhaseLike
from telemetry.request_trace import RequestTrace
from telemetry.settings import (
    MAX_CONTENT_LEN,
    accepts_incoming_context,
    read_export_settings,
)
from telemetry.span_source import SpanSource, SpanValue, UnrecordedSpans
from telemetry.step_spans import StepLike, make_step_span
from telemetry.w3c import read_context

if TYPE_CHECKING:
    from telemetry.export import BoundedExport

__all__ = ["PhaseLike", "RequestTrace", "Tracing"]

_logger = logging.getLogger(__name__)

# Long enough for one export to a healthy collector, short enough for a shutdown.
DRAIN_S = 3.0


class Tracing:
    """One per server. All methods are thread-safe."""

    def __init__(
        self,
        spans: SpanSource,
        *,
        export: "BoundedExport | None" = None,
        accepts_context: bool = True,
        clock: Callable[[], int] = time.time_ns,
        strict: bool = False,
        max_content_len: int = MAX_CONTENT_LEN,
    ) -> None:
        self._spans = spans
        self._max_content_len = max_content_len
        self._export = export
        self._accepts_context = accepts_context
        self._clock = clock
        self._strict = strict

    @classmethod
    def from_environment(cls, *, service_version: str) -> "Tracing":
        """Exports when OTEL_EXPORTER_OTLP_ENDPOINT (or _TRACES_ENDPOINT) is set.

        Raises: SetupError when an OTEL_* variable cannot work.
        """
        accepts_context = accepts_incoming_context(os.environ)
        settings = read_export_settings(os.environ)
        if settings is None:
            return cls(UnrecordedSpans(), accepts_context=accepts_context)
        from telemetry.setup import make_export, make_sampler, make_spans

        export = make_export(settings)
        spans = make_spans(export, sampler=make_sampler(settings), service_version=service_version)
        return cls(
            spans,
            export=export,
            accepts_context=accepts_context,
            max_content_len=settings.max_content_len,
        )

    @property
    def num_dropped_spans(self) -> int:
        """Sampled spans that no collector will get: queue full, export failed, or shut down."""
        return 0 if self._export is None else self._export.counts.num_dropped

    @property
    def num_exported_spans(self) -> int:
        return 0 if self._export is None else self._export.counts.num_exported

    def start_request(
        self,
        *,
        method: str,
        route: str,
        headers: Mapping[str, str],
        tenant_hash: str | None,
        attributes: Mapping[str, SpanValue] = MappingProxyType({}),
    ) -> RequestTrace:
        """Opens the SERVER span; `route` is the template, `tenant_hash` no key and no name,
        `attributes` are further ones.

        A fault in telemetry gives a trace that is not recorded; strict tracing raises it.
        """
        attributes = {names.HTTP_METHOD: method, names.HTTP_ROUTE: route, **attributes}
        if tenant_hash is not None:
            attributes[names.ATTR_TENANT] = tenant_hash
        try:
            parent = read_context(headers) if self._accepts_context else None
            return self._start(
                self._spans, f"{method} {route}", parent=parent, attributes=attributes
            )
        except Exception:
            if self._strict:
                raise
            _logger.exception("a request is not traced: its span could not be started")
            return self._start(UnrecordedSpans(), f"{method} {route}", parent=None, attributes={})

    def record_step(self, step: StepLike) -> None:
        """Makes the span of a step that the runtime has recorded; without a collector nothing."""
        try:
            span = make_step_span(step)
            if span is not None:
                self._spans.end([span])
        except Exception:
            if self._strict:
                raise
            _logger.exception("an engine step is not traced")

    def _start(
        self,
        spans: SpanSource,
        name: str,
        *,
        parent: SpanContext | None,
        attributes: Mapping[str, SpanValue],
    ) -> RequestTrace:
        start_ns = self._clock()
        span = spans.start(name, parent=parent, attributes=attributes, start_ns=start_ns)
        return RequestTrace(
            spans,
            span,
            start_ns=start_ns,
            clock=self._clock,
            strict=self._strict,
            max_content_len=self._max_content_len,
        )

    def shutdown(self) -> None:
        """Exports what is left within a few seconds, whatever the collector does."""
        if self._export is not None:
            self._export.close(drain_s=DRAIN_S)
