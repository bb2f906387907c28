"""Plots as SVG text: lines, dots and bars on two axes; no I/O and no script.

A plot knows numbers and names only. Colours are classes (`c0`, `c1` ..) that the page around it
defines, so that one picture fits a light and a dark page. Everything that comes in as text may come
from outside, and is escaped here.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from telemetry.svg_axis import Axis, number_text

NUM_COLORS = 8
Stroke = Literal["solid", "dashed", "dotted"]
Marker = Literal["circle", "square", "diamond", "triangle"]
MARKERS: tuple[Marker, ...] = ("circle", "square", "diamond", "triangle")
Point = tuple[float, float]

WIDTH, HEIGHT = 520, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 12, 46
_INNER_WIDTH, _INNER_HEIGHT = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
# How many characters of text fit side by side below the plot.
_ROW_CHARS = 70
_MAX_TICK_CHARS = 14
_MAX_BAR_WIDTH = 70.0
_MARKER_PATHS = {
    "circle": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "square": "M-3.2-3.2h6.4v6.4h-6.4z",
    "diamond": "M0-4.4l4.4 4.4l-4.4 4.4l-4.4-4.4z",
    "triangle": "M0-4.2l4.2 7.4h-8.4z",
}
_CROSS = "m-3-3l6 6m0-6l-6 6"


@dataclass(frozen=True, slots=True)
class Line:
    """Points in the order in which they are joined; None leaves a gap. With `texts`, one a point,
    each has a marker that says its text when it is pointed at. `is_stepped`: up only at points."""

    color: int
    points: Sequence[Point | None]
    texts: Sequence[str] = ()
    stroke: Stroke = "solid"
    is_stepped: bool = False


@dataclass(frozen=True, slots=True)
class Dots:
    """Points of their own; `are_crosses` for what went wrong."""

    color: int
    points: Sequence[Point]
    are_crosses: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a group: the `place`-th of `num_places` at `x`."""

    color: int
    x: float
    place: int
    num_places: int
    value: float
    text: str


Mark = Line | Dots | Bar


@dataclass(frozen=True, slots=True)
class Plot:
    """`key` is unique in its page; `description` says in words what the picture shows."""

    key: str
    title: str
    description: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]


def draw(plot: Plot) -> str:
    """An `svg` element with the title and the description that readers without eyes are given."""
    inside = "".join(
        itertools.chain(
            _horizontal_ticks(plot.x), _vertical_ticks(plot.y), _frame(plot), _marks(plot)
        )
    )
    key = escaped(plot.key)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="{key}-t {key}-d"><title id="{key}-t">{escaped(plot.title)}</title>'
        f'<desc id="{key}-d">{escaped(plot.description)}</desc>{inside}</svg>'
    )


def swatch(color: int | None, stroke: Stroke) -> str:
    """A piece of such a line for a legend, of no colour for None; its text stands beside it."""
    kind = "any" if color is None else _color(color)
    marker = "" if color is None else _marker(color, (14.0, 6.0), "")
    return (
        '<svg viewBox="0 0 28 12" width="28" height="12" aria-hidden="true">'
        f'<path class="line {kind} {stroke}" d="M1 6H27"/>{marker}</svg>'
    )


def escaped(text: str) -> str:
    """As text or in an attribute in double quotes. What XML cannot hold becomes a question mark."""
    safe = "".join(char if _is_xml(ord(char)) else "?" for char in text)
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        safe = safe.replace(char, entity)
    return safe


def _is_xml(code: int) -> bool:
    """Of XML's characters those that say something: neither controls nor overrides of direction."""
    if code < 0x20:
        return code in (0x09, 0x0A, 0x0D)
    is_hidden = 0x7F <= code < 0xA0 or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
    return not (is_hidden or 0xD800 <= code < 0xE000 or code in (0xFFFE, 0xFFFF))


def _horizontal_ticks(axis: Axis) -> Iterator[str]:
    """All that have room; marks without text for the others."""
    longest = max((len(tick.text) for tick in axis.ticks), default=0)
    fitting = max(1, _ROW_CHARS // (min(longest, _MAX_TICK_CHARS) + 2))
    every = -(-len(axis.ticks) // fitting)
    bottom = _TOP + _INNER_HEIGHT
    for index, tick in enumerate(axis.ticks):
        x = _number(_across(axis, tick.value))
        yield f'<path class="tick" d="M{x} {bottom}v4"/>'
        if index % every == 0:
            yield _text(x, str(bottom + 17), _cut(tick.text), anchor="middle")


def _vertical_ticks(axis: Axis) -> Iterator[str]:
    for tick in axis.ticks:
        y = _up(axis, tick.value)
        yield f'<path class="grid" d="M{_LEFT} {_number(y)}h{_INNER_WIDTH}"/>'
        yield _text(str(_LEFT - 7), _number(y + 4), _cut(tick.text), anchor="end")


def _frame(plot: Plot) -> Iterator[str]:
    bottom, middle = _TOP + _INNER_HEIGHT, _TOP + _INNER_HEIGHT / 2
    yield f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{WIDTH - _RIGHT}"/>'
    x = _number(_LEFT + _INNER_WIDTH / 2)
    yield _text(x, str(HEIGHT - 9), plot.x.label, anchor="middle")
    turned = f' transform="rotate(-90 14 {_number(middle)})"'
    yield _text("14", _number(middle), plot.y.label, anchor="middle", more=turned)


def _marks(plot: Plot) -> Iterator[str]:
    for mark in plot.marks:
        if isinstance(mark, Line):
            yield from _line(plot, mark)
        elif isinstance(mark, Dots):
            yield _dots(plot, mark)
        else:
            yield _bar(plot, mark)


def _line(plot: Plot, line: Line) -> Iterator[str]:
    parts: list[str] = []
    follows = False
    for point in line.points:
        if point is not None:
            x, y = map(_number, _at(plot, point))
            joined = f"H{x}V{y}" if line.is_stepped else f"L{x} {y}"
            parts.append(joined if follows else f"M{x} {y}")
        follows = point is not None
    if parts:
        yield f'<path class="line {_color(line.color)} {line.stroke}" d="{"".join(parts)}"/>'
    for point, text in zip(line.points, line.texts, strict=False):
        if point is not None:
            yield _marker(line.color, _at(plot, point), text)


def _dots(plot: Plot, dots: Dots) -> str:
    """One path of strokes without length, which round caps make dots of: a few bytes each."""
    end = _CROSS if dots.are_crosses else "h0"
    places = (map(_number, _at(plot, point)) for point in dots.points)
    path = "".join(f"M{x} {y}{end}" for x, y in places)
    kind = "cross" if dots.are_crosses else "dots"
    return f'<path class="{kind} {_color(dots.color)}" d="{path}"/>' if path else ""


def _bar(plot: Plot, bar: Bar) -> str:
    room = _INNER_WIDTH / (plot.x.high - plot.x.low)
    width = min(room * 0.8 / bar.num_places, _MAX_BAR_WIDTH)
    left = _across(plot.x, bar.x) + width * (bar.place - bar.num_places / 2)
    top, bottom = _up(plot.y, bar.value), _TOP + _INNER_HEIGHT
    return (
        f'<path class="bar {_color(bar.color)}" d="M{_number(left)} {bottom}V{_number(top)}'
        f'h{_number(max(width - 2, 1.0))}V{bottom}z"><title>{escaped(bar.text)}</title></path>'
    )


def _marker(color: int, at: Point, text: str) -> str:
    path = _MARKER_PATHS[MARKERS[color % len(MARKERS)]]
    title = f"<title>{escaped(text)}</title>" if text else ""
    place = f"translate({_number(at[0])} {_number(at[1])})"
    return f'<path class="mark {_color(color)}" transform="{place}" d="{path}">{title}</path>'


def _text(x: str, y: str, text: str, *, anchor: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{more}>{escaped(text)}</text>'


def _at(plot: Plot, point: Point) -> Point:
    return _across(plot.x, point[0]), _up(plot.y, point[1])


def _across(axis: Axis, value: float) -> float:
    return _LEFT + _INNER_WIDTH * axis.place(value)


def _up(axis: Axis, value: float) -> float:
    return _TOP + _INNER_HEIGHT * (1 - axis.place(value))


def _color(index: int) -> str:
    return f"c{index % NUM_COLORS}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TICK_CHARS else f"{text[: _MAX_TICK_CHARS - 1]}…"


def _number(value: float) -> str:
    return number_text(round(value, 1)) if value < 1000 else str(round(value))
