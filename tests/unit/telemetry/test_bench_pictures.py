"""What the pictures of a bench report draw, point by point, and what their tables say."""

from telemetry.bench_grid import Grid, Picture
from telemetry.bench_plots import load_pictures
from telemetry.bench_report import BenchReport
from telemetry.bench_run import BenchRun, Slo
from telemetry.bench_samples import Budget, level_pictures
from telemetry.svg_plot import Bar, Dots, Line
from tests.bench_run_samples import failed, record, run_of, series, two_servers_at_two_loads

FEW = Budget(num_steps=4, num_dots=10)


def over_load(run: BenchRun) -> dict[str, Picture]:
    return {one.plot.key: one for one in load_pictures(BenchReport.of(run))}


def of_requests(run: BenchRun, budget: Budget = FEW) -> dict[str, Picture]:
    grid = Grid.of(BenchReport.of(run))
    return {one.plot.key: one for one in level_pictures(grid, 0, budget)}


def cells(picture: Picture) -> list[list[str]]:
    return [[cell.shown for cell in row] for row in picture.table.rows]


def test_latencies_are_lines_of_three_percentiles_for_each_server() -> None:
    times = [0.1] * 50 + [0.2] * 47 + [0.3] * 3
    found = [series(*(record(ttft_s=one * n) for one in times), clients=n) for n in (1, 2)]
    picture = over_load(run_of(*found))["ttft"]
    lines = [mark for mark in picture.plot.marks if isinstance(mark, Line)]
    assert [(line.stroke, line.points) for line in lines] == [
        ("solid", [(0.0, 100.0), (1.0, 200.0)]),
        ("dashed", [(0.0, 200.0), (1.0, 400.0)]),
        ("dotted", [(0.0, 300.0), (1.0, 600.0)]),
    ]
    assert lines[1].texts[1] == "ours, 2 clients: p95 400 ms"
    assert cells(picture) == [
        ["1 client", "ours", "100", "200", "300"],
        ["2 clients", "ours", "200", "400", "600"],
    ]
    assert [entry.text for entry in picture.key] == ["ours", "p50", "p95", "p99"]


def test_a_server_without_a_load_has_a_gap_there() -> None:
    run = run_of(series(record()), series(record(), clients=2), series(record(), label="b"))
    lines = [m for m in over_load(run)["throughput"].plot.marks if isinstance(m, Line)]
    assert [line.points for line in lines] == [[(0.0, 2.5), (1.0, 2.5)], [(0.0, 2.5), None]]


def test_the_curve_has_throughput_to_the_right_and_latency_upwards() -> None:
    picture = over_load(two_servers_at_two_loads())["trade"]
    first, second = (mark for mark in picture.plot.marks if isinstance(mark, Line))
    places = [(point[0], round(point[1])) for point in first.points if point is not None]
    assert places == [(7.5, 180), (7.5, 480)]
    assert second.texts[0] == "theirs, 1 client: 3.75 tok/s, 360 ms"


def test_shares_are_bars_as_high_as_they_are() -> None:
    half = series(record(), record(1.0, ttft_s=9.0))
    pictures = over_load(run_of(half, slo=Slo(max_ttft_s=1.0)))
    (bar,) = pictures["goodput"].plot.marks
    assert isinstance(bar, Bar)
    assert (bar.value, bar.text) == (0.5, "ours: 50%")
    assert cells(pictures["goodput"]) == [["1 client", "ours", "50.0"]]
    assert cells(pictures["hit-rate"]) == [["1 client", "ours", "40.0"]]


def test_the_distribution_goes_from_nothing_to_all_through_measured_values() -> None:
    run = run_of(series(*(record(ttft_s=n / 10) for n in (4, 2, 1, 3))))
    (line,) = of_requests(run)["ttft-0"].plot.marks
    assert isinstance(line, Line)
    assert line.is_stepped
    assert line.points == [(100.0, 0.0), (100.0, 0.25), (200.0, 0.5), (300.0, 0.75), (400.0, 1.0)]


def test_many_values_are_drawn_at_even_ranks_and_the_caption_says_so() -> None:
    run = run_of(series(*(record(ttft_s=n / 1000) for n in range(1, 101))))
    picture = of_requests(run)["ttft-0"]
    (line,) = picture.plot.marks
    assert isinstance(line, Line)
    assert line.points == [(1.0, 0.0), (25.0, 0.25), (50.0, 0.5), (75.0, 0.75), (100.0, 1.0)]
    assert picture.caption == "Drawn at 4 evenly spaced ranks of up to 100 values."
    assert cells(picture)[0][:4] == ["ours", "10.0", "25.0", "50.0"]


def test_failures_are_crosses_where_they_were_sent() -> None:
    picture = of_requests(run_of(series(record(1.0), failed(2.0), record(3.0))))["time-0"]
    dots, crosses = (mark for mark in picture.plot.marks if isinstance(mark, Dots))
    assert dots.points == [(1.0, 100.0), (3.0, 100.0)]
    assert (crosses.points, crosses.are_crosses) == ([(2.0, 0.0)], True)
    assert cells(picture) == [["ours", "2", "1", "2", "1"]]


def test_the_slowest_are_drawn_where_not_all_can_be() -> None:
    slow = {17: 0.9, 58: 0.8}
    records = [record(at, ttft_s=slow.get(at, 0.1)) for at in range(100)]
    picture = of_requests(run_of(series(*records)))["time-0"]
    dots, _ = (mark for mark in picture.plot.marks if isinstance(mark, Dots))
    assert {(17.0, 900.0), (58.0, 800.0)} <= set(dots.points)
    assert 6 <= len(dots.points) <= 10
    assert "Not all are drawn" in picture.caption
    assert cells(picture) == [["ours", "100", "0", str(len(dots.points)), "0"]]


def test_the_points_of_a_page_are_shared_among_its_series() -> None:
    assert Budget.of(1) == Budget(150, 6000)
    assert Budget.of(100) == Budget(60, 60)
    assert Budget.of(100_000) == Budget(2, 2)


def test_what_a_picture_shows_is_said_in_words() -> None:
    spoken = over_load(two_servers_at_two_loads())["throughput"].plot.description
    assert spoken == (
        "ours, output tok/s: from 7.5 to 7.5; theirs, output tok/s: from 3.75 to 3.75."
    )
