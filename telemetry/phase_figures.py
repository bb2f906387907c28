"""What the metrics take from the phases of one request, once it is over."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from telemetry import names
from telemetry.phases import PhaseLike, first_wait_ns

_NS = 1e9
_MS = 1e3


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """`queue_s` is the wait until admission, or until its end where there was none, of several
    choices the longest; `mask_s` the time of all masks. None: it had no such phase. `misses` has a
    reason for each prompt of which the cache did not have all."""

    queue_s: float | None
    mask_s: float | None
    misses: tuple[str, ...]


def figures_of(phases: Sequence[PhaseLike]) -> PhaseFigures:
    """Of the phases as they became known."""
    waits = [ns for phase in phases if (ns := first_wait_ns(phase)) is not None]
    return PhaseFigures(
        queue_s=max(waits) / _NS if waits else None,
        mask_s=_mask_s(phases),
        misses=tuple(_misses(phases)),
    )


def _mask_s(phases: Iterable[PhaseLike]) -> float | None:
    times = [phase.attributes.get(names.ATTR_MASK_TIME_MS) for phase in phases]
    measured = [ms for ms in times if isinstance(ms, int | float)]
    return sum(measured) / _MS if measured else None


def _misses(phases: Iterable[PhaseLike]) -> Iterable[str]:
    """Of each prompt's first choice: the others find what that one computed."""
    for phase in phases:
        reason = phase.attributes.get(names.ATTR_MISS_REASON)
        if isinstance(reason, str) and not phase.attributes.get(names.ATTR_CHOICE):
            yield reason
