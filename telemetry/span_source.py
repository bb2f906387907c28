"""Spans as plain data while they are made, and where they go to: the SDK's processor
(recorded_spans.py), or nowhere when no collector is configured.

The SDK's own spans cost about ten times as much to make and fill, in the request's way.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

SpanValue = str | int | float | bool | tuple[str, ...]


class SpanEvent(NamedTuple):
    """A moment of a span, wall-clock nanoseconds."""

    name: str
    at_ns: int
    attributes: Mapping[str, SpanValue] = {}


@dataclass(eq=False, slots=True)
class SpanDraft:
    """One span; `error` is its status' text, None where the status is unset. Of one that is not
    `is_recorded` only the context is of use."""

    name: str
    context: SpanContext
    parent: SpanContext | None
    kind: SpanKind
    start_ns: int
    is_recorded: bool
    end_ns: int = 0
    attributes: dict[str, SpanValue] = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    links: tuple[SpanContext, ...] = ()
    error: str | None = None

    def child(
        self, name: str, *, start_ns: int, end_ns: int = 0, attributes: dict[str, SpanValue]
    ) -> "SpanDraft":
        """A span below this one, recorded where this one is."""
        own = self.context
        context = SpanContext(
            own.trace_id,
            random_id(64),
            is_remote=False,
            trace_flags=own.trace_flags,
            trace_state=own.trace_state,
        )
        return SpanDraft(
            name,
            context,
            own,
            SpanKind.INTERNAL,
            start_ns,
            self.is_recorded,
            end_ns,
            attributes,
        )


class SpanSource(Protocol):
    """Starts the first span of a request here and takes all of them when they are done."""

    def start(
        self,
        name: str,
        *,
        parent: SpanContext | None,
        attributes: Mapping[str, SpanValue],
        start_ns: int,
    ) -> SpanDraft:
        """A SERVER span, with the caller's as its parent where there is one. Whether it is recorded
        is settled here, for all that will be below it."""

    def end(self, spans: Sequence[SpanDraft]) -> None:
        """Finished spans, in the order in which they shall arrive."""


class UnrecordedSpans:
    """New span ids in the caller's trace, with the caller's sampled flag; nothing is recorded.

    A trace that starts here is not sampled. The SDK is not imported.
    """

    def start(
        self,
        name: str,
        *,
        parent: SpanContext | None,
        attributes: Mapping[str, SpanValue],  # noqa: ARG002
        start_ns: int,
    ) -> SpanDraft:
        context = SpanContext(
            trace_id=random_id(128) if parent is None else parent.trace_id,
            span_id=random_id(64),
            is_remote=False,
            trace_flags=TraceFlags(0) if parent is None else parent.trace_flags,
            trace_state=None if parent is None else parent.trace_state,
        )
        return SpanDraft(name, context, parent, SpanKind.SERVER, start_ns, is_recorded=False)

    def end(self, spans: Sequence[SpanDraft]) -> None:
        pass


def random_id(num_bits: int) -> int:
    """A new id. Zero is none; one draw in 2**64 at most meets it."""
    return random.getrandbits(num_bits) or 1
