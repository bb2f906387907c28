"""StopStrings: what goes out, what is held back, and which stop wins."""

import pytest

from gateway.stop_strings import Scan, StopScanner, StopStrings


def scanner(*stops: str) -> StopScanner:
    return StopStrings(stops).scanner()


def test_without_stops_all_text_goes_out_at_once() -> None:
    assert scanner().feed("abc") == Scan("abc")


def test_only_a_possible_beginning_is_held_back() -> None:
    scan = scanner("own fox")
    assert scan.feed("brown") == Scan("br")
    assert scan.feed(" f") == Scan("")
    assert scan.feed("ish") == Scan("own fish")


def test_nothing_of_the_stop_or_after_it_goes_out() -> None:
    scan = scanner("own fox")
    assert scan.feed("the brown fox jumps") == Scan("the br", is_stopped=True)
    assert scan.num_settled_chars == len("the br")


@pytest.mark.parametrize("split", range(len("own fox") + 1))
def test_a_stop_is_found_across_every_split(split: int) -> None:
    scan = scanner("own fox")
    first, second = scan.feed("br" + "own fox"[:split]), None
    if not first.is_stopped:
        second = scan.feed("own fox"[split:] + "!")
        assert second.is_stopped
    assert first.text + (second.text if second else "") == "br"


def test_what_was_held_back_goes_out_at_the_end() -> None:
    scan = scanner("###")
    assert scan.feed("a##") == Scan("a")
    assert scan.flush() == "##"


def test_a_failed_beginning_may_contain_the_next_beginning() -> None:
    scan = scanner("aab")
    assert scan.feed("aaa") == Scan("a")
    assert scan.feed("b") == Scan("", is_stopped=True)


def test_the_stop_that_ends_first_wins_over_one_that_began_before() -> None:
    assert scanner("abcd", "bc").feed("abcd") == Scan("a", is_stopped=True)


def test_of_two_stops_that_end_together_the_longer_wins() -> None:
    assert scanner("c", "abc").feed("xabc") == Scan("x", is_stopped=True)


def test_an_unarmed_stop_goes_out_as_text() -> None:
    scan = scanner("ab")
    assert scan.feed("xab", is_armed=False) == Scan("xab")
    assert scan.feed("ab") == Scan("", is_stopped=True)


def test_a_stop_that_begins_unarmed_and_ends_armed_fires() -> None:
    scan = scanner("ab")
    assert scan.feed("xa", is_armed=False) == Scan("x")
    assert scan.feed("b") == Scan("", is_stopped=True)


def test_scanners_of_the_same_stops_do_not_share_their_place() -> None:
    stops = StopStrings(["ab"])
    first, second = stops.scanner(), stops.scanner()
    first.feed("a")
    assert second.feed("b") == Scan("b")
