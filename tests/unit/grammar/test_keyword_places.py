"""Places in a schema: keywords are named, what a client named is not."""

import pytest

from grammar.keyword_places import MAX_STEPS, known_keyword, nameless_pointer


@pytest.mark.parametrize(
    ("steps", "pointer"),
    [
        ((), ""),
        (("properties", "salary", "minimum"), "/properties/*/minimum"),
        (("properties", "properties", "minimum"), "/properties/*/minimum"),
        (
            ("properties", "properties", "properties", "a", "type"),
            "/properties/*/properties/*/type",
        ),
        (("allOf", 0, "items", "enum"), "/allOf/0/items/enum"),
        (("$defs", "person", "$ref"), "/$defs/*/$ref"),
        (("calls", "2", "schema", "required"), "/calls/2/schema/required"),
        (("made up", "type"), "/*/type"),
        (("items", "²"), "/items/*"),
    ],
)
def test_names_are_left_out_and_keywords_kept(steps: tuple[str | int, ...], pointer: str) -> None:
    assert nameless_pointer(steps) == pointer


def test_of_a_long_pointer_the_last_steps_are_told() -> None:
    pointer = nameless_pointer(["items"] * MAX_STEPS + ["minimum"])
    assert pointer.count("/") == MAX_STEPS
    assert pointer.endswith("/items/minimum")


def test_a_word_that_is_no_keyword_is_not_repeated() -> None:
    assert (known_keyword("minimum"), known_keyword("my salary")) == ("minimum", "*")
