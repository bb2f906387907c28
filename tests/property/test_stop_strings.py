"""Stop strings against a naive search of the whole text, whatever the pieces it arrives in."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.stop_strings import StopStrings

# Few letters, so that stops overlap, repeat and contain one another.
letters = st.text(alphabet="abé", max_size=16)
stop_lists = st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=4)
pieces_of_text = st.lists(st.text(alphabet="abé", max_size=4), max_size=12)


def naive(text: str, stops: list[str]) -> tuple[str, bool]:
    """What must go out: reads one character after the other, compares every stop each time."""
    for end in range(1, len(text) + 1):
        ending_here = [stop for stop in stops if text[:end].endswith(stop)]
        if ending_here:
            return text[: end - max(map(len, ending_here))], True
    return text, False


def naive_held(text: str, stops: list[str]) -> str:
    """The longest suffix that is a proper prefix of some stop."""
    for start in range(len(text)):
        if any(len(stop) > len(text) - start and stop.startswith(text[start:]) for stop in stops):
            return text[start:]
    return ""


def run(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    scanner = StopStrings(stops).scanner()
    sent = ""
    for piece in pieces:
        scan = scanner.feed(piece)
        sent += scan.text
        if scan.is_stopped:
            return sent, True
    return sent + scanner.flush(), False


@given(pieces_of_text, stop_lists)
def test_any_pieces_give_what_a_search_of_the_whole_gives(
    pieces: list[str], stops: list[str]
) -> None:
    assert run(pieces, stops) == naive("".join(pieces), stops)


@given(letters, stop_lists)
def test_every_split_in_two_gives_the_same(text: str, stops: list[str]) -> None:
    results = {run([text[:split], text[split:]], stops) for split in range(len(text) + 1)}
    assert results == {naive(text, stops)}


@given(pieces_of_text, stop_lists)
def test_exactly_the_longest_possible_beginning_is_held_back(
    pieces: list[str], stops: list[str]
) -> None:
    scanner = StopStrings(stops).scanner()
    taken = sent = ""
    for piece in pieces:
        taken += piece
        scan = scanner.feed(piece)
        sent += scan.text
        if scan.is_stopped:
            return
        assert taken == sent + naive_held(taken, stops)


@given(pieces_of_text, pieces_of_text, stop_lists)
def test_no_stop_fires_before_it_is_armed(
    early: list[str], late: list[str], stops: list[str]
) -> None:
    scanner = StopStrings(stops).scanner()
    sent = ""
    for piece in early:
        scan = scanner.feed(piece, is_armed=False)
        assert not scan.is_stopped
        sent += scan.text
    text = "".join(early)
    assert text == sent + naive_held(text, stops)
    for piece in late:
        scan = scanner.feed(piece)
        sent += scan.text
        if scan.is_stopped:
            break
    assert ("".join([*early, *late])).startswith(sent)
