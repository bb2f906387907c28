"""From phase records to child spans: bounded in number, with nothing left out of the sums.

The first records of each name become a span each; the rest of that name share one span that
covers them and carries their count and summed amounts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from telemetry.names import (
    ATTR_COMPUTED_TOKENS,
    ATTR_FOLDED_COUNT,
    ATTR_MASK_TIME_MS,
    ATTR_RECOMPUTED_TOKENS,
    ATTR_STEPS,
    ATTR_TOKENS,
)

AttributeValue = str | int | float | bool

# A 32k prompt in chunks of 512 still has a span per chunk; a 10,000-chunk one cannot flood the
# exporter's queue (2,048 spans by default) on its own.
MAX_SPANS_PER_PHASE = 64
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


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One child span to make."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, AttributeValue]


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
        attributes = {**self.sums, ATTR_FOLDED_COUNT: self.num_phases}
        return PhaseSpan(name, self.start_ns, self.end_ns, attributes)


class PhaseBuffer:
    """Collects the phases of one request until its spans are made. Not thread-safe."""

    def __init__(self, *, max_spans_per_phase: int = MAX_SPANS_PER_PHASE) -> None:
        self._max_spans_per_phase = max_spans_per_phase
        self._spans: list[PhaseSpan] = []
        self._num_kept: dict[str, int] = {}
        self._folds: dict[str, _Fold] = {}
        self._mask_time_ms: float | None = None

    def add(self, phases: Iterable[PhaseLike]) -> None:
        for phase in phases:
            self._sum_mask_time(phase)
            num_kept = self._num_kept.get(phase.name, 0)
            if num_kept < self._max_spans_per_phase:
                self._num_kept[phase.name] = num_kept + 1
                self._spans.append(_span_of(phase))
            else:
                fold = self._folds.setdefault(phase.name, _Fold(phase.start_ns, phase.end_ns))
                fold.add(phase)

    def spans(self) -> list[PhaseSpan]:
        """The spans to make, folded ones last."""
        return [*self._spans, *(fold.span(name) for name, fold in self._folds.items())]

    def num_folded(self) -> int:
        return sum(fold.num_phases for fold in self._folds.values())

    def mask_time_ms(self) -> float | None:
        """Over all phases; None when no phase measured any."""
        return self._mask_time_ms

    def _sum_mask_time(self, phase: PhaseLike) -> None:
        value = phase.attributes.get(ATTR_MASK_TIME_MS)
        if isinstance(value, int | float):
            self._mask_time_ms = (self._mask_time_ms or 0.0) + value


def _span_of(phase: PhaseLike) -> PhaseSpan:
    # Clocks of two processes may disagree by a step; a span never ends before it starts.
    end_ns = max(phase.start_ns, phase.end_ns)
    return PhaseSpan(phase.name, phase.start_ns, end_ns, dict(phase.attributes))
