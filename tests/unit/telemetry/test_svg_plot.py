"""Plots as SVG: marks where their numbers are, names of servers that cannot be markup."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

from telemetry.svg_axis import Tick, amount_axis, place_axis
from telemetry.svg_plot import Bar, Dots, Line, Mark, Plot, draw, escaped, swatch

SVG = "{http://www.w3.org/2000/svg}"
# Where the inner part of a plot is.
LEFT, RIGHT, TOP, BOTTOM = 62.0, 506.0, 12.0, 254.0


def plot(*marks: Mark, title: str = "t", texts: Sequence[str] = ("a", "b")) -> Plot:
    return Plot("k", title, "words", place_axis("x", texts), amount_axis("y", [100.0]), marks)


def drawn(*marks: Mark, title: str = "t", texts: Sequence[str] = ("a", "b")) -> ET.Element:
    return ET.fromstring(draw(plot(*marks, title=title, texts=texts)))


def of_class(picture: ET.Element, name: str) -> list[ET.Element]:
    return [one for one in picture.iter() if name in one.attrib.get("class", "").split()]


def test_a_line_goes_through_its_points() -> None:
    (line,) = of_class(drawn(Line(1, [(0, 0.0), (1, 100.0)])), "line")
    middle, width = (LEFT + RIGHT) / 2, RIGHT - LEFT
    first, last = middle - width / 4, middle + width / 4
    assert line.attrib["d"] == f"M{first:g} {BOTTOM:g}L{last:g} {TOP:g}"
    assert "c1" in line.attrib["class"]


def test_a_missing_point_is_a_gap() -> None:
    points = [(0, 1.0), None, (1, 2.0), (1, 3.0)]
    (line,) = of_class(drawn(Line(0, points)), "line")
    assert re.sub(r"[\d. ]", "", line.attrib["d"]) == "MML"


def test_a_stepped_line_goes_up_at_its_points_only() -> None:
    (line,) = of_class(drawn(Line(0, [(0, 0.0), (1, 50.0)], is_stepped=True)), "line")
    assert re.sub(r"[\d. ]", "", line.attrib["d"]) == "MHV"


def test_a_point_with_a_text_says_it_when_pointed_at() -> None:
    marks = of_class(drawn(Line(0, [(0, 1.0), None], texts=["ours: 1 ms", "none"])), "mark")
    assert [one.findtext(f"{SVG}title") for one in marks] == ["ours: 1 ms"]


def test_a_dot_is_a_few_bytes_and_a_failure_is_a_cross() -> None:
    picture = drawn(Dots(0, [(0, 1.0), (1, 2.0)]), Dots(1, [(0, 0.0)], are_crosses=True))
    (dots,), (cross,) = of_class(picture, "dots"), of_class(picture, "cross")
    assert dots.attrib["d"].count("h0") == 2
    assert len(dots.attrib["d"]) < 40
    assert "l6 6" in cross.attrib["d"]


def test_nothing_is_drawn_of_no_points() -> None:
    picture = drawn(Dots(0, []), Line(0, [None]), Line(0, []))
    assert not of_class(picture, "dots") + of_class(picture, "line")


def test_bars_of_a_group_stand_side_by_side_and_as_high_as_their_value() -> None:
    bars = [Bar(one, 0, one, 2, 50.0 * (one + 1), str(one)) for one in range(2)]
    shapes = [one.attrib["d"] for one in of_class(drawn(*bars), "bar")]
    found = [re.fullmatch(r"M([\d.]+) 254V([\d.]+)h([\d.]+)V254z", shape) for shape in shapes]
    (left, half, width), (right, top, _) = (
        [float(x) for x in one.groups()] for one in found if one
    )
    assert (half, top) == ((TOP + BOTTOM) / 2, TOP)
    assert left + width < right


def test_every_tick_has_a_mark_but_only_those_with_room_a_text() -> None:
    names = [f"server{number}" for number in range(40)]
    picture = drawn(texts=names)
    assert len(of_class(picture, "tick")) == 40
    shown = {one.text for one in picture.iter(f"{SVG}text")} & set(names)
    assert 2 < len(shown) < 12


def test_title_and_description_are_the_pictures_name() -> None:
    picture = drawn(title="TTFT <b> & more")
    assert picture.findtext(f"{SVG}title") == "TTFT <b> & more"
    assert picture.findtext(f"{SVG}desc") == "words"
    assert picture.attrib["role"] == "img"
    assert picture.attrib["aria-labelledby"] == "k-t k-d"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('<a b="c">&', "&lt;a b=&quot;c&quot;&gt;&amp;"),
        ("\x00\x1b\x7f\x85\ud800\ufffe", "??????"),
        ("\u202e\u2066", "??"),
        ("é 漢 😀\n", "é 漢 😀\n"),
    ],
)
def test_text_from_outside_cannot_be_markup(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_colours_and_markers_repeat_for_many_servers() -> None:
    assert 'class="line c1 solid"' in swatch(9, "solid")
    assert 'class="line any dotted"' in swatch(None, "dotted")
    assert swatch(0, "solid").count("<path") == 2
    assert swatch(None, "solid").count("<path") == 1


def test_long_names_at_an_axis_are_cut() -> None:
    assert Tick(0, "").text == ""
    picture = drawn(texts=["a name that is too long"])
    assert "a name that i…" in {one.text for one in picture.iter(f"{SVG}text")}
