"""Axes of plots: which part of the numbers they show, where a number lies, and which have a tick.

Called by telemetry.svg_plot and those who describe plots. Numbers are finite here: `finite` drops
what is not.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Where the largest number is this many times the smallest, a linear axis shows only the largest.
LOG_FROM = 50.0
_MAX_TICKS = 6
_STEPS = (1.0, 2.0, 5.0, 10.0)
# Beyond these a double's arithmetic in here would overflow or vanish.
_MOST, _LEAST = 1e200, 1e-200


@dataclass(frozen=True, slots=True)
class Tick:
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """Shows `low` to `high`; on a logarithmic one both are above 0."""

    label: str
    low: float
    high: float
    ticks: tuple[Tick, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """0 at `low`, 1 at `high`; what is outside is at the nearer end."""
        if self.is_log:
            span = math.log(self.high / self.low)
            share = math.log(max(value, self.low) / self.low) / span
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)


def finite(values: Iterable[float | None]) -> list[float]:
    """Those that can be drawn."""
    return [one for one in values if one is not None and abs(one) < _MOST]


def amount_axis(label: str, values: Iterable[float | None], *, may_be_log: bool = True) -> Axis:
    """From 0 to the largest; logarithmic, and said so, where the values differ too much."""
    known = [value for value in finite(values) if value > _LEAST]
    high = max(known, default=1.0)
    low = min(known, default=1.0)
    if may_be_log and high / low >= LOG_FROM:
        return _log_axis(f"{label}, log scale", low, high)
    step = _nice(high / (_MAX_TICKS - 1))
    num_steps = math.ceil(high / step - 1e-9)
    ticks = tuple(Tick(n * step, number_text(n * step)) for n in range(num_steps + 1))
    return Axis(label, 0.0, num_steps * step, ticks)


def share_axis(label: str) -> Axis:
    """Of shares from 0 to 1, in per cent."""
    ticks = tuple(Tick(share, f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0))
    return Axis(label, 0.0, 1.0, ticks)


def place_axis(label: str, texts: Sequence[str]) -> Axis:
    """Of things in a row: the first is at 0, the next at 1, each with its text."""
    ticks = tuple(Tick(float(place), text) for place, text in enumerate(texts))
    return Axis(label, -0.5, max(len(texts) - 0.5, 0.5), ticks)


def number_text(value: float) -> str:
    """As short as a reader needs it: 12,000; 350; 4.2; 0.003."""
    text = column_text(value)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def column_text(value: float) -> str:
    """Three digits at least, below numbers of its kind: 12,000; 350; 4.20; 0.00300."""
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e9:
        digits = max(0, 2 - math.floor(math.log10(abs(value))))
        return f"{value:,.{digits}f}"
    return f"{value:.2e}"


def _log_axis(label: str, low: float, high: float) -> Axis:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = range(first, last + 1)
    every = math.ceil(len(decades) / _MAX_TICKS)
    ticks = tuple(Tick(10.0**power, number_text(10.0**power)) for power in decades[::every])
    return Axis(label, 10.0**first, 10.0**last, ticks, is_log=True)


def _nice(size: float) -> float:
    """The next larger 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(size))
    return power * next(step for step in _STEPS if step * power >= size * (1 - 1e-9))
