"""Regexes piece by piece: their size with counts written out, and without the last plane."""

import pytest

from grammar.rust_regex import without_last_plane, written_out


@pytest.mark.parametrize(
    ("regex", "positions"),
    [
        ("", 0),
        ("abc", 3),
        ("a{3}b", 4),
        ("a{2,5}|b*", 6),
        ("a{4,}", 4),
        ("(?:ab{2}){3}", 9),
        ("(a(?P<n>b{2}c){2}){10}", 70),
        (r"[a-z\]]{8}\{3}", 11),
        (r"\x{7b}\x41\d", 3),
        ("[^a]{5}é.", 70),
        (r"\x{e9}\p{L}", 20),
        ("(?:(?:a{1000}){1000}){1000}", 10**9),
    ],
)
def test_counts_are_written_out(regex: str, positions: int) -> None:
    assert written_out(regex) == positions


def test_classes_lose_the_last_plane_and_nothing_else_changes() -> None:
    narrowed = without_last_plane(r"a[^b\]]{2}(?:\D|\x{5b}.)+")
    kept = r"&&[\x{0}-\x{fffff}]]"
    assert narrowed == rf"a[[^b\]]{kept}{{2}}(?:[\D{kept}|\x{{5b}}[[^\n]{kept})+"
