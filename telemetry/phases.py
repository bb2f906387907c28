"""From phase records to child spans: bounded in number, with nothing left out of the sums.

The first records of each name become a span each; the rest of that name share one span that
covers them and carries their count and summed amounts. Moments become events in the same way.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from telemetry.names import (
    ATTR_COMPUTED_TOKENS,
    ATTR_FOLDED_COUNT,
    ATTR_MASK_TIME_MS,
    ATTR_PREEMPTIONS,
    ATTR_QUEUE_MS,
    ATTR_QUEUE_REASON,
    ATTR_RECOMPUTED_TOKENS,
    ATTR_STEPS,
    ATTR_TOKENS,
    EVENT_PREEMPTED,
    PHASE_EVENTS,
    SPAN_QUEUE,
)

AttributeValue = str | int | float | bool

# A 32k prompt in chunks of 512 still has a span per chunk; a 10,000-chunk one cannot flood the
# exporter's queue (2,048 spans by default) on its own.
MAX_SPANS_PER_PHASE = 64
# All events of a span shall fit the specification's limit of 128.
MAX_EVENTS_PER_NAME = 32
_MS = 1e6
_ADDITIVE = frozenset(
    {ATTR_TOKENS, ATTR_COMPUTED_TOKENS, ATTR_RECOMPUTED_TOKENS, ATTR_STEPS, ATTR_MASK_TIME_MS}
)


class PhaseLike(Protocol):
    """A finished phase; `runtime.messages.Phase` is one. Times are wall-clock nanoseconds."""

    @property
    def name(self) -> str: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def attributes(self) -> Mapping[str, AttributeValue]: ...
    @property
    def step(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One child span to make, or one event; `step` is the traceparent of the engine step that it
    was computed in, "" where that is not recorded."""

    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, AttributeValue]
    step: str = ""


@dataclass(slots=True)
class _Fold:
    start_ns: int
    end_ns: int
    num_phases: int = 0
    sums: dict[str, int | float] = field(default_factory=dict)

    def add(self, phase: PhaseLike) -> None:
        self.start_ns = min(self.start_ns, phase.start_ns)
        self.end_ns = max(self.end_ns, phase.end_ns)
        self.num_phases += 1
        for key, value in phase.attributes.items():
            if key in _ADDITIVE and isinstance(value, int | float):
                self.sums[key] = self.sums.get(key, 0) + value

    def span(self, name: str) -> PhaseSpan:
        attributes: dict[str, AttributeValue] = {**self.sums, ATTR_FOLDED_COUNT: self.num_phases}
        return PhaseSpan(name, self.start_ns, self.end_ns, attributes)


class PhaseBuffer:
    """Collects the phases of one request until its spans are made. Not thread-safe."""

    def __init__(self, *, max_spans_per_phase: int = MAX_SPANS_PER_PHASE) -> None:
        self._max_spans_per_phase = max_spans_per_phase
        self._spans: list[PhaseSpan] = []
        self._num_kept: dict[str, int] = {}
        self._moments: list[PhaseSpan] = []
        self._folds: dict[str, _Fold] = {}
        self._mask_time_ms: float | None = None
        self._queue_ns: int | None = None
        self._queue_reason: str | None = None
        self._num_preemptions = 0

    def add(self, phases: Iterable[PhaseLike]) -> None:
        for phase in phases:
            self._sum_up(phase)
            num_kept = self._num_kept.get(phase.name, 0)
            is_moment = phase.name in PHASE_EVENTS
            if num_kept < (MAX_EVENTS_PER_NAME if is_moment else self._max_spans_per_phase):
                self._num_kept[phase.name] = num_kept + 1
                (self._moments if is_moment else self._spans).append(_span_of(phase))
            else:
                fold = self._folds.setdefault(phase.name, _Fold(phase.start_ns, phase.end_ns))
                fold.add(phase)

    def spans(self) -> list[PhaseSpan]:
        """The spans to make, folded ones last."""
        return [*self._spans, *self._folded(are_moments=False)]

    def moments(self) -> list[PhaseSpan]:
        """The events to make, folded ones last: as of their last time."""
        return [*self._moments, *self._folded(are_moments=True)]

    def _folded(self, *, are_moments: bool) -> list[PhaseSpan]:
        return [
            fold.span(name)
            for name, fold in self._folds.items()
            if (name in PHASE_EVENTS) is are_moments
        ]

    def num_folded(self) -> int:
        return sum(fold.num_phases for fold in self._folds.values())

    def summary(self) -> dict[str, AttributeValue | None]:
        """What the request's span says of all phases, folded ones included: None where no phase
        measured it. A wait for admission is the longest of all choices; what a choice waited after
        a preemption is in its events."""
        return {
            ATTR_MASK_TIME_MS: self._mask_time_ms,
            ATTR_QUEUE_MS: None if self._queue_ns is None else self._queue_ns / _MS,
            ATTR_QUEUE_REASON: self._queue_reason,
            ATTR_PREEMPTIONS: self._num_preemptions or None,
        }

    def _sum_up(self, phase: PhaseLike) -> None:
        attributes = phase.attributes
        mask_time_ms = attributes.get(ATTR_MASK_TIME_MS)
        if isinstance(mask_time_ms, int | float):
            self._mask_time_ms = (self._mask_time_ms or 0.0) + mask_time_ms
        if phase.name == EVENT_PREEMPTED:
            self._num_preemptions += 1
        elif phase.name == SPAN_QUEUE:
            if (wait_ns := first_wait_ns(phase)) is not None:
                self._queue_ns = max(self._queue_ns or 0, wait_ns)
            reason = attributes.get(ATTR_QUEUE_REASON)
            self._queue_reason = str(reason) if reason is not None else self._queue_reason


def first_wait_ns(phase: PhaseLike) -> int | None:
    """What a choice waited for its admission. None for a wait after a preemption, and for a phase
    that is no wait."""
    if phase.name != SPAN_QUEUE or ATTR_PREEMPTIONS in phase.attributes:
        return None
    return max(0, phase.end_ns - phase.start_ns)


def _span_of(phase: PhaseLike) -> PhaseSpan:
    # Clocks of two processes may disagree by a step; a span never ends before it starts.
    end_ns = max(phase.start_ns, phase.end_ns)
    return PhaseSpan(phase.name, phase.start_ns, end_ns, dict(phase.attributes), phase.step)
