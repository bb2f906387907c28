"""The pictures of a bench report over its loads: latencies, throughput, goodput, hit rate.

What no request has a figure for is not drawn. Called by telemetry.bench_html; the pictures of
single requests are telemetry.bench_samples.
"""

from collections.abc import Callable, Iterator

from telemetry.bench_figures import Distribution, SeriesFigures
from telemetry.bench_grid import Grid, KeyEntry, Picture, Values
from telemetry.bench_report import BenchReport
from telemetry.svg_axis import amount_axis, number_text, place_axis, share_axis
from telemetry.svg_plot import Bar, Line, Mark, Plot, Point, Stroke

_MS = 1e3
PERCENTILES: tuple[tuple[str, Stroke], ...] = (
    ("p50", "solid"),
    ("p95", "dashed"),
    ("p99", "dotted"),
)
_Latency = Callable[[SeriesFigures], Distribution | None]
_Figure = Callable[[SeriesFigures], float | None]
_LATENCIES: tuple[tuple[str, str, _Latency], ...] = (
    ("TTFT", "time to the first token", lambda one: one.ttft),
    ("TPOT", "time per output token", lambda one: one.tpot),
    ("E2E", "time to the end of the answer", lambda one: one.e2e),
)
_SHARES: tuple[tuple[str, str, _Figure], ...] = (
    ("Goodput", "requests that kept the limits", lambda one: one.goodput_share),
    ("Hit rate", "prompt tokens that came from the cache", lambda one: one.hit_rate),
)


def load_pictures(report: BenchReport) -> Iterator[Picture]:
    """In the order in which a page shows them."""
    grid = Grid.of(report)
    for name, words, latency_of in _LATENCIES:
        if any(latency_of(figures) is not None for figures in report.figures):
            yield _latency_picture(grid, f"{name}: {words}", latency_of)
    if report.figures:
        yield _throughput_picture(grid)
    if len(grid.levels) > 1 and grid.values(_e2e_p50_ms):
        yield _trade_picture(grid)
    for name, words, share_of in _SHARES:
        if grid.values(share_of):
            yield _share_picture(grid, f"{name}: {words}", share_of)


def _latency_picture(grid: Grid, title: str, latency_of: _Latency) -> Picture:
    """Lines of percentiles over the loads; of a single load bars, a group a percentile."""
    name = title.partition(":")[0]
    found = [
        (percentile, stroke, grid.values(_percentile_ms(latency_of, percentile)))
        for percentile, stroke in PERCENTILES
    ]
    is_single = len(grid.levels) == 1
    x = place_axis("percentile", [one for one, _ in PERCENTILES]) if is_single else grid.load_axis()
    marks: list[Mark] = []
    for group, (percentile, stroke, values) in enumerate(found):
        if is_single:
            grouped = {(group, server): value for (_, server), value in values.items()}
            marks += _bars(grid, grouped, f"{percentile} {{}} ms")
        else:
            marks += _lines(grid, values, f"{percentile} {{}} ms", stroke=stroke)
    every = [value for _, _, values in found for value in values.values()]
    y = amount_axis(f"{name}, ms", every, may_be_log=not is_single)
    columns = {f"{percentile} ms": values for percentile, _, values in found}
    strokes = () if is_single else tuple(KeyEntry(p, None, stroke) for p, stroke in PERCENTILES)
    plot = Plot(name.lower(), title, grid.spoken(columns, ""), x, y, marks)
    return Picture(plot, "", (*grid.key(), *strokes), grid.table(title, columns))


def _throughput_picture(grid: Grid) -> Picture:
    title = "Throughput: output tokens a second of all requests together"
    values = grid.values(lambda one: one.output_tok_s)
    draw = _lines if len(grid.levels) > 1 else _bars
    columns = {"output tok/s": values}
    y = amount_axis("output tok/s", values.values(), may_be_log=False)
    spoken, marks = grid.spoken(columns, ""), draw(grid, values, "{} tok/s")
    plot = Plot("throughput", title, spoken, grid.load_axis(), y, marks)
    return Picture(plot, "", grid.key(), grid.table(title, columns))


def _trade_picture(grid: Grid) -> Picture:
    """What more load costs each user."""
    title = "Latency and throughput: a point for each load"
    outputs, times = grid.values(lambda one: one.output_tok_s), grid.values(_e2e_p50_ms)
    marks: list[Mark] = []
    for server in range(len(grid.servers)):
        points: list[Point | None] = []
        texts = []
        for level, load in enumerate(grid.levels):
            time_ms = times.get((level, server))
            if time_ms is not None:
                rate = outputs[level, server]
                points.append((rate, time_ms))
                shown = f"{number_text(rate)} tok/s, {number_text(time_ms)} ms"
                texts.append(f"{grid.name(server)}, {load.text}: {shown}")
        marks.append(Line(server, points, texts))
    columns = {"output tok/s": outputs, "E2E p50 ms": times}
    x = amount_axis("output tok/s", outputs.values(), may_be_log=False)
    y = amount_axis("E2E p50, ms", times.values())
    plot = Plot("trade", title, grid.spoken(columns, ""), x, y, marks)
    caption = "Further to the right is more, further down is faster."
    return Picture(plot, caption, grid.key(), grid.table(title, columns))


def _share_picture(grid: Grid, title: str, share_of: _Figure) -> Picture:
    name = title.partition(":")[0]
    shares = grid.values(share_of)
    columns = {f"{name}, %": {place: share * 100 for place, share in shares.items()}}
    marks = [
        Bar(server, float(level), server, len(grid.servers), share, f"{grid.name(server)}: {text}%")
        for (level, server), share in shares.items()
        for text in [number_text(share * 100)]
    ]
    key = name.lower().replace(" ", "-")
    spoken = grid.spoken(columns, "")
    plot = Plot(key, title, spoken, grid.load_axis(), share_axis(name), marks)
    return Picture(plot, "", grid.key(), grid.table(title, columns))


def _lines(grid: Grid, values: Values, form: str, *, stroke: Stroke = "solid") -> list[Mark]:
    """One a server, with a gap where it has no figure for a load."""
    lines: list[Mark] = []
    for server in range(len(grid.servers)):
        points: list[Point | None] = []
        texts = []
        for level, load in enumerate(grid.levels):
            value = values.get((level, server))
            points.append(None if value is None else (float(level), value))
            texts.append(f"{grid.name(server)}, {load.text}: {_filled(form, value or 0.0)}")
        lines.append(Line(server, points, texts, stroke))
    return lines


def _bars(grid: Grid, values: Values, form: str) -> list[Mark]:
    """Groups by the first number of a place, in each a bar a server."""
    num = len(grid.servers)
    return [
        Bar(server, float(group), server, num, v, f"{grid.name(server)}: {_filled(form, v)}")
        for (group, server), v in values.items()
    ]


def _filled(form: str, value: float) -> str:
    return form.format(number_text(value))


def _percentile_ms(latency_of: _Latency, name: str) -> _Figure:
    def of(figures: SeriesFigures) -> float | None:
        found = latency_of(figures)
        return None if found is None else float(getattr(found, name)) * _MS

    return of


_e2e_p50_ms = _percentile_ms(lambda one: one.e2e, "p50")
