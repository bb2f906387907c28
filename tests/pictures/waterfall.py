"""Traces as an SVG picture: a row for each span, a bar for its time. Knows no OpenTelemetry.

Readable on light and dark pages; no text reaches beyond the canvas.
"""

from collections.abc import Iterator, Sequence
from html import escape

from tests.pictures.trace_rows import Row, TraceRows

WIDTH = 960
LABELS = 210
MARGIN = 16
BARS = WIDTH - LABELS - 2 * MARGIN
ROW = 30
HEADER = 52
STEPS = 34
GAP = 22
TEXT, SMALL = 12.0, 10.5
# Of a letter's height, in the fonts named below: wide enough for any of them.
CHAR = 0.62
MIN_BAR = 1.5
NUM_TICKS = 5
_COLOURS = {
    "tokenize": "a",
    "grammar.compile": "c",
    "queue": "q",
    "cache.match": "m",
    "cache.fetch": "m",
    "prefill": "p",
    "decode": "d",
    "validate": "c",
}
_STYLE = """
svg{--bg:#ffffff;--fg:#1f2328;--dim:#59636e;--line:#d1d9e0;--a:#8250df;--c:#bc4c00;--q:#9a6700;
--m:#1a7f37;--p:#0969da;--d:#0550ae;--r:#59636e;--e:#cf222e;--first:#cf222e}
@media (prefers-color-scheme:dark){svg{--bg:#0d1117;--fg:#e6edf3;--dim:#9198a1;--line:#3d444d;
--a:#ab7df8;--c:#db6d28;--q:#d29922;--m:#3fb950;--p:#4493f8;--d:#79c0ff;--r:#9198a1;--e:#f85149;
--first:#f85149}}
text{font:12px system-ui,-apple-system,Segoe UI,Roboto,Helvetica,Arial,sans-serif;fill:var(--fg);
paint-order:stroke;stroke:var(--bg);stroke-width:3px}
.s{font-size:10.5px;fill:var(--dim)}.t{font-weight:600}.g{stroke:var(--line);stroke-width:1}
.f{stroke:var(--first);stroke-width:1;stroke-dasharray:3 3}
.step{fill:none;stroke:var(--dim);stroke-width:1}
"""


def waterfall(traces: Sequence[TraceRows], *, description: str) -> str:
    """The picture; `description` is for those who do not see it."""
    height = MARGIN
    parts: list[str] = []
    for trace in traces:
        parts += _panel(trace, height)
        height += _panel_height(trace) + GAP
    height += MARGIN - GAP
    colours = "".join(f".{c}{{fill:var(--{c})}}" for c in "acqmpdre")
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(description)}</title>",
            f"<style>{_STYLE}{colours}</style>",
            f'<rect width="{WIDTH}" height="{height}" fill="var(--bg)"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def fitted(text: str, width: float, *, size: float = TEXT) -> str:
    """The text, or as much of it as the width has room for."""
    num_chars = int(width / (size * CHAR))
    return text if len(text) <= num_chars else text[: max(num_chars - 1, 0)] + "…"


def width_of(text: str, *, size: float = TEXT) -> float:
    """At most."""
    return len(text) * size * CHAR


def _panel_height(trace: TraceRows) -> int:
    return HEADER + ROW * len(trace.rows) + (STEPS if trace.steps else 0)


def _panel(trace: TraceRows, top: int) -> Iterator[str]:
    scale = BARS / max(trace.duration_ms, 1e-9)
    title = fitted(trace.title, WIDTH - 2 * MARGIN, size=TEXT * 1.1)
    yield _text(MARGIN, top + 14, title, kind="t")
    bottom = top + _panel_height(trace)
    for number in range(NUM_TICKS):
        at_ms = trace.duration_ms * number / (NUM_TICKS - 1)
        x = LABELS + MARGIN + at_ms * scale
        yield f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{top + 40}" y2="{bottom}"/>'
        yield _placed(x, top + 34, _time(at_ms))
    if trace.ttft_ms is not None:
        x = LABELS + MARGIN + min(trace.ttft_ms, trace.duration_ms) * scale
        yield f'<line class="f" x1="{x:.1f}" x2="{x:.1f}" y1="{top + 40}" y2="{bottom}"/>'
        yield _placed(x + 4, top + 48, "first token")
    for number, row in enumerate(trace.rows):
        yield from _row(row, top + HEADER + number * ROW, scale)
    if trace.steps:
        yield from _steps(trace, bottom - STEPS, scale)


def _row(row: Row, y: int, scale: float) -> Iterator[str]:
    indent = MARGIN + 14 * row.depth
    name = fitted(row.name, LABELS + MARGIN - indent - 6)
    yield _text(indent, y + 14, name)
    left = LABELS + MARGIN + row.start_ms * scale
    width = max(row.duration_ms * scale, MIN_BAR)
    left = min(left, WIDTH - MARGIN - width)
    colour = "e" if row.is_error else _COLOURS.get(row.name, "r")
    place = f'x="{left:.1f}" y="{y + 3}" width="{width:.1f}"'
    yield f'<rect class="{colour}" {place} height="9" rx="2"/>'
    told = ", ".join((_time(row.duration_ms), *row.notes)) + (" ↗ step" if row.is_linked else "")
    yield _placed(left, y + 23, told)


def _steps(trace: TraceRows, y: int, scale: float) -> Iterator[str]:
    label = f"{len(trace.steps)} × engine.step"
    yield _text(MARGIN, y + 14, fitted(label, LABELS - 6))
    bars = []
    for start_ms, end_ms in trace.steps:
        left = LABELS + MARGIN + max(start_ms, 0.0) * scale
        right = LABELS + MARGIN + min(end_ms, trace.duration_ms) * scale
        width = max(right - left, MIN_BAR)
        left = min(left, WIDTH - MARGIN - width)
        bars.append(f"M{left:.1f} {y + 4}h{width:.1f}v8h-{width:.1f}z")
    yield f'<path class="step" d="{"".join(bars)}"/>'
    yield _placed(
        LABELS + MARGIN, y + 24, "traces of their own, with links to the requests in them"
    )


def _placed(x: float, y: float, text: str) -> str:
    """Small text that begins at x, or before it where it would reach beyond the canvas."""
    shown = fitted(text, BARS, size=SMALL)
    room = WIDTH - MARGIN - width_of(shown, size=SMALL)
    return _text(max(min(x, room), LABELS + MARGIN), y, shown, kind="s")


def _text(x: float, y: float, text: str, *, kind: str = "") -> str:
    shown = f' class="{kind}"' if kind else ""
    return f'<text{shown} x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _time(ms: float) -> str:
    if ms >= 1000:
        return f"{ms / 1000:.2f} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"
