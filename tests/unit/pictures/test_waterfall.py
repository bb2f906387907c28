"""The picture of a trace: spans in, SVG out."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry import names
from tests.otlp_receiver import ReceivedSpan
from tests.pictures.trace import BEGIN, END, with_trees
from tests.pictures.trace_rows import TOLD, Row, TraceRows, trace_rows, tree_text
from tests.pictures.waterfall import MARGIN, SMALL, TEXT, WIDTH, fitted, waterfall, width_of

SVG = "{http://www.w3.org/2000/svg}"
TRACE, STEP_TRACE = "a" * 32, "b" * 32
MS = 1_000_000


def span(
    name: str,
    start_ms: int,
    end_ms: int,
    *,
    parent: str = "",
    links: tuple[tuple[str, str], ...] = (),
    trace_id: str = TRACE,
    **attributes: Any,
) -> ReceivedSpan:
    return ReceivedSpan(
        name=name,
        kind="INTERNAL" if parent or trace_id != TRACE else "SERVER",
        trace_id=trace_id,
        span_id=name,
        parent_id=parent,
        start_ns=start_ms * MS,
        end_ns=end_ms * MS,
        status="UNSET",
        status_message="",
        attributes={key.replace("__", "."): value for key, value in attributes.items()},
        events=(),
        links=links,
        resource={},
    )


SPANS = [
    span("prefill", 1020, 1080, parent="chat m", links=((STEP_TRACE, "s"),), radixgate__tokens=8),
    span("tokenize", 1002, 1010, parent="chat m", radixgate__tokens=8, radixgate__messages=2),
    span("POST /v1/chat/completions", 1000, 1100),
    span("chat m", 1001, 1100, parent="POST /v1/chat/completions", radixgate__ttft_ms=81.0),
    span("engine.step", 1019, 1081, trace_id=STEP_TRACE, links=((TRACE, "x"),)),
    span("engine.step 2", 1, 2, trace_id=STEP_TRACE, links=(("c" * 32, "x"),)),
]


def test_rows_are_a_tree_in_the_order_of_time() -> None:
    trace = trace_rows("t", TRACE, SPANS)
    assert [(row.depth, row.name) for row in trace.rows] == [
        (0, "POST /v1/chat/completions"),
        (1, "chat m"),
        (2, "tokenize"),
        (2, "prefill"),
    ]
    assert [(row.start_ms, row.duration_ms) for row in trace.rows[2:]] == [(2, 8), (20, 60)]
    assert [row.is_last for row in trace.rows[2:]] == [False, True]
    assert trace.rows[2].notes == ("8 tokens", "2 messages")
    assert (trace.ttft_ms, trace.steps) == (81.0, ((19, 81),))


def test_a_trace_without_a_request_is_no_picture() -> None:
    with pytest.raises(ValueError, match="SERVER"):
        trace_rows("t", STEP_TRACE, SPANS)


def test_the_tree_as_text_says_times_notes_and_links() -> None:
    lines = tree_text(trace_rows("t", TRACE, SPANS)).splitlines()
    assert lines[1].startswith("└─ chat m")
    assert lines[2].split() == "├─ tokenize 2.0 + 8.0 ms 8 tokens, 2 messages".split()
    assert lines[3].lstrip().startswith("└─ prefill")
    assert lines[3].endswith("8 tokens → engine.step")
    assert lines[4] == "engine.step × 1, linked with it"


def texts(svg: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(f"{SVG}text"))


def test_the_picture_has_a_bar_for_each_span_to_scale() -> None:
    root = ElementTree.fromstring(
        waterfall([trace_rows("t", TRACE, SPANS)], description="what it shows")
    )
    bars = {
        bar.get("class"): float(bar.get("width", 0))
        for bar in root.iter(f"{SVG}rect")
        if bar.get("class")
    }
    # The request took 100 ms, its prefill 60, the tokenizer 8.
    assert bars["p"] / bars["a"] == pytest.approx(60 / 8, rel=0.01)
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == "what it shows"


def test_names_and_notes_of_any_kind_are_text_and_no_markup() -> None:
    row = Row('<script>&"', 0, is_last=True, start_ms=0, end_ms=1, notes=("</svg>",))
    svg = waterfall([TraceRows("<b>&", (row,))], description="<i>")
    shown = [one.text or "" for one in texts(svg)]
    assert '<script>&"' in shown
    assert any("</svg>" in text for text in shown)
    assert "<script" not in svg


NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=200)
ROWS = st.builds(
    lambda name, depth, times, notes: Row(
        name, depth, is_last=False, start_ms=min(times), end_ms=max(times), notes=tuple(notes)
    ),
    NAMES,
    st.integers(0, 6),
    st.tuples(st.floats(0, 1e7), st.floats(0, 1e7)),
    st.lists(NAMES, max_size=5),
)


@given(st.lists(ROWS, min_size=1, max_size=6), NAMES, st.lists(st.floats(-10, 1e7), max_size=9))
@settings(derandomize=True, max_examples=15, deadline=None)
def test_nothing_reaches_beyond_the_canvas(rows: list[Row], title: str, at: list[float]) -> None:
    steps = tuple((start, start + 5) for start in at)
    svg = waterfall([TraceRows(title, tuple(rows), steps, ttft_ms=3.0)] * 2, description=title)
    root = ElementTree.fromstring(svg)
    height = float(root.get("height", 0))
    for one in root.iter(f"{SVG}text"):
        size = {"s": SMALL, "t": TEXT * 1.1}.get(one.get("class") or "", TEXT)
        x, y = float(one.get("x", -1)), float(one.get("y", -1))
        assert 0 <= x
        assert x + width_of(one.text or "", size=size) <= WIDTH
        assert 0 < y < height
    for bar in root.iter(f"{SVG}rect"):
        assert float(bar.get("x", 0)) + float(bar.get("width", 0)) <= WIDTH
        assert float(bar.get("x", 0)) >= 0
    for path in root.iter(f"{SVG}path"):
        for left, width in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)v", path.get("d", "")):
            assert MARGIN <= float(left) <= float(left) + float(width) <= WIDTH


def test_a_long_text_is_cut_with_a_mark() -> None:
    assert fitted("short", 200) == "short"
    cut = fitted("x" * 100, 200)
    assert cut.endswith("…")
    assert width_of(cut) <= 200


def test_trees_take_the_place_of_older_ones() -> None:
    trace = trace_rows("Cold", TRACE, SPANS)
    page = f"# A\n{BEGIN}before\n{END}\nrest"
    once = with_trees(page, [trace])
    assert "before" not in once
    assert once.startswith("# A\n")
    assert once.endswith("\nrest")
    assert f"Cold:\n\n{tree_text(trace)}" in once
    assert with_trees(once, [trace]) == once
    with pytest.raises(ValueError, match="trace:begin"):
        with_trees("nothing", [trace])


def test_every_phase_has_something_to_say() -> None:
    phases = {value for key, value in vars(names).items() if key.startswith("SPAN_")}
    assert phases - {names.SPAN_ENGINE_STEP} <= set(TOLD)
