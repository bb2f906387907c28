"""The judge of finished answers: what it refuses, and where it says the blame is."""

import re
import socket
from typing import Any

import msgspec
import pytest

from grammar.answer_places import Problem
from grammar.errors import GrammarError, UnsupportedConstraint
from grammar.validation import AnswerValidator


def problem(schema: Any, text: str) -> Problem | None:
    return AnswerValidator(msgspec.json.encode(schema).decode()).problem(text)


def wrong(schema: Any, text: str) -> Problem:
    found = problem(schema, text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "object"}, "{}", "[]"),
        ({"type": "integer"}, "7", "7.5"),
        ({"const": 1}, "1.0", "true"),
        ({"format": "date"}, '"2024-02-29"', '"2023-02-29"'),
        ({"format": "ipv4"}, '"10.0.0.1"', '"10.0.0.256"'),
        ({"pattern": "^a+$"}, '"aaa"', '"aaab"'),
        ({"patternProperties": {"^a": {"type": "null"}}}, '{"ab":null,"b":1}', '{"ab":1}'),
        (
            {"patternProperties": {"^a": {}}, "additionalProperties": False},
            '{"ab":1}',
            '{"ab":1,"b":1}',
        ),
        (
            {
                "properties": {"b": {}},
                "patternProperties": {"^a": {}},
                "additionalProperties": {"type": "null"},
            },
            '{"ab":1,"b":1,"c":null}',
            '{"ab":1,"b":1,"c":1}',
        ),
        ({"multipleOf": 0.01}, "0.05", "0.055"),
        ({"uniqueItems": True}, "[1,true,[1],[true]]", "[1,2,1.0]"),
        ({"dependentRequired": {"a": ["b"]}}, '{"b":1}', '{"a":1}'),
        # Forms of older drafts, as no $schema says which it is.
        ({"items": [{"type": "null"}], "additionalItems": False}, "[null]", "[null,1]"),
        ({"minimum": 3, "exclusiveMinimum": True}, "4", "3"),
        ({"maximum": 3, "exclusiveMaximum": False}, "3", "4"),
        ({"exclusiveMaximum": 3}, "2", "3"),
        ({"dependencies": {"a": ["b"]}}, '{"a":1,"b":1}', '{"a":1}'),
        # Whatever stands beside a reference has no meaning in draft 7.
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"n": {"type": "number"}},
                "$ref": "#/definitions/n",
                "maximum": 3,
            },
            "4",
            '"x"',
        ),
    ],
)
def test_good_passes_and_bad_does_not(schema: Any, good: str, bad: str) -> None:
    assert problem(schema, good) is None
    assert wrong(schema, bad).message


def test_multiples_are_of_the_decimal_digits_and_of_doubles() -> None:
    # 0.3 is three tenths by its digits, and the usual validators say it is not.
    assert wrong({"multipleOf": 0.1}, "0.3").keyword == "multipleOf"
    assert wrong({"multipleOf": 0.1}, "0.35").keyword == "multipleOf"
    assert problem({"multipleOf": 0.1}, "0.5") is None


@pytest.mark.parametrize("text", ["", "{", "NaN", "[1,]", "1e999", '"\x01"', "9" * 5000])
def test_what_is_no_json_is_refused_and_has_nothing_to_go_back_to(text: str) -> None:
    assert wrong({}, text).anchors == ()


def test_of_a_key_that_comes_twice_the_last_value_counts() -> None:
    schema = {"additionalProperties": {"type": "integer"}, "minProperties": 2}
    assert wrong(schema, '{"a":1,"a":2}').keyword == "minProperties"
    assert wrong(schema, '{"a":1,"b":2,"a":"x"}').path == ("a",)
    assert wrong(schema, '{"a":1,"b":2,"a":"x"}').anchors[0] == 19


def test_evaluated_properties_are_counted_with_patterns_of_all_parts() -> None:
    schema = {
        "$defs": {"more": {"patternProperties": {"^r": {"type": "integer"}}}},
        "$ref": "#/$defs/more",
        "allOf": [{"properties": {"p": {}}}],
        "anyOf": [{"required": ["p"], "patternProperties": {"^q": {}}}, {"required": ["z"]}],
        "if": {"required": ["p"]},
        "then": {"properties": {"t": {}}},
        "unevaluatedProperties": False,
    }
    assert problem(schema, '{"p":1,"q1":1,"r1":1,"t":1}') is None
    assert wrong(schema, '{"p":1,"x":1}').keyword == "unevaluatedProperties"


def test_no_clients_pattern_is_run_by_a_backtracking_matcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"again": {"$ref": "#"}},
        "pattern": "^(a+)+$",
        "patternProperties": {"^(b+)+$": {"pattern": "^(a|a)*$"}},
        "additionalProperties": {"pattern": "^(a|aa)+$"},
        "unevaluatedProperties": False,
    }
    validator = AnswerValidator(msgspec.json.encode(schema).decode())
    a, b = "a" * 40, "b" * 40
    text = f'{{"{b}":"{a}","again":{{"{b}":"{a}!"}}}}'
    validator.problem("{}")  # the libraries compile patterns of their own when they are loaded
    ran: list[object] = []
    search = re.search

    def watched(*args: Any) -> Any:
        ran.append(args)
        return search(*args)

    monkeypatch.setattr(re, "search", watched)
    assert validator.problem(text) is not None
    assert ran == []


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(GrammarError, match="cannot be validated"):
        problem({"$ref": "http://127.0.0.1:9/schema.json"}, "1")


def test_a_text_nested_too_deeply_is_no_crash() -> None:
    with pytest.raises(GrammarError, match="nested"):
        problem({"items": {"$ref": "#"}}, "[" * 900 + "]" * 900)


def test_a_schema_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(UnsupportedConstraint):
        AnswerValidator("[1]")


def test_the_first_wrong_value_of_the_text_is_told() -> None:
    schema = {"items": {"type": "integer"}}
    found = wrong(schema, '[1,"x",2,"y"]')
    assert (found.path, found.keyword) == ((1,), "type")


def blamed(schema: Any, text: str) -> list[str]:
    """The characters to go back to, each with what comes after it."""
    return [text[position : position + 3] for position in wrong(schema, text).anchors]


def test_the_end_of_a_wrong_value_is_blamed_first_then_its_start_then_what_came_before() -> None:
    text = '{"a":15,"b":"two"}'
    schema = {"properties": {"b": {"pattern": "^x"}}}
    value, key = ['"}', "two", '"tw'], ['":"', 'b":', '"b"']
    assert blamed(schema, text) == [*value, *key, ',"b', '5,"', "15,", '":1', 'a":', '"a"']


def test_a_container_that_ended_too_early_shall_go_on() -> None:
    text = "[1,2]"
    assert wrong({"contains": {"const": 5}}, text).anchors[0] == text.index("]")
    assert wrong({"required": ["a"]}, '{"b":1}').anchors[0] == 6


def test_of_repeated_items_the_second_is_blamed() -> None:
    text = '[[1,2],{"a":1},[1,2],{"a":1}]'
    found = wrong({"uniqueItems": True}, text)
    assert found.path == (2,)
    assert found.anchors[0] == text.rindex("2")


def test_a_wrong_name_is_blamed_itself() -> None:
    text = '{"ok":1,"Not":2,"ok2":3}'
    found = wrong({"propertyNames": {"pattern": "^[a-z]"}}, text)
    assert found.anchors[0] == text.index('":2')


def test_anchors_lie_within_the_text_whatever_is_wrong() -> None:
    for text in ("1", '""', "[]", "{}", ' [ 1 , { "a" : [ ] } ] ', '"\\u00e9\\n"'):
        found = wrong({"not": {}}, text)
        assert found.anchors
        assert all(0 <= position < len(text) for position in found.anchors)


def validator_of(schema: dict[str, Any]) -> AnswerValidator:
    return AnswerValidator(msgspec.json.encode(schema).decode())


def test_references_that_multiply_are_followed_so_far_and_no_further() -> None:
    parts: dict[str, Any] = {"a0": {"type": "string"}}
    for number in range(1, 25):
        parts[f"a{number}"] = {"allOf": [{"$ref": f"#/$defs/a{number - 1}"}] * 2}
    with pytest.raises(GrammarError, match="references"):
        validator_of({"$defs": parts, "$ref": "#/$defs/a24"}).problem('"x"')
    assert validator_of({"$defs": parts, "$ref": "#/$defs/a4"}).problem('"x"') is None
