"""Instances are written as a mask expects them: compact, keys in the schema's order."""

import json
from typing import Any

import pytest

from grammar.bench_spelling import DeclaredOrder, Untestable, instance_value

XY: dict[str, Any] = {"properties": {"x": {}, "y": {}}}
YX = {"y": 1, "x": 2}


@pytest.mark.parametrize(
    "schema",
    [
        XY,
        {"$ref": "#/$defs/a~1b/0", "$defs": {"a/b": [XY]}},
        {"allOf": [{}, XY]},
        {"anyOf": [True, XY]},
        {"if": {}, "else": XY},
        {"$ref": "#/properties/z", "properties": {"z": {"allOf": [{"$ref": "#"}, XY]}}},
    ],
)
def test_the_order_is_found_wherever_the_schema_declares_it(schema: dict[str, Any]) -> None:
    assert DeclaredOrder(schema).text(YX) == '{"x":2,"y":1}'


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"inner": XY}},
        {"additionalProperties": XY},
    ],
)
def test_the_order_holds_inside_of_members(schema: dict[str, Any]) -> None:
    assert DeclaredOrder(schema).text({"inner": YX}) == '{"inner":{"x":2,"y":1}}'


@pytest.mark.parametrize("keyword", ["items", "additionalItems"])
def test_the_order_holds_inside_of_items(keyword: str) -> None:
    assert DeclaredOrder({keyword: XY}).text([YX]) == '[{"x":2,"y":1}]'


@pytest.mark.parametrize("keyword", ["prefixItems", "items"])
def test_each_place_of_a_tuple_has_its_own_order(keyword: str) -> None:
    text = DeclaredOrder({keyword: [True, XY]}).text([YX, YX])
    assert text == '[{"y":1,"x":2},{"x":2,"y":1}]'


def test_undeclared_keys_come_last_in_their_own_order() -> None:
    assert DeclaredOrder(XY).text({"q": 0, "p": 0, "x": 0}) == '{"x":0,"q":0,"p":0}'


def test_numbers_that_are_whole_have_no_fraction_and_text_stays_literal() -> None:
    assert DeclaredOrder({}).text([1.0, 1.5, "é\n", 2**70]) == f'[1,1.5,"é\\n",{2**70}]'


@pytest.mark.parametrize("schema", [True, 3, [], {"$ref": "#/none"}, {"properties": 1, "anyOf": 2}])
def test_what_is_no_order_is_passed_over(schema: object) -> None:
    assert DeclaredOrder(schema).text(YX) == '{"y":1,"x":2}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('"\\ud800"', "lone surrogate"),
        ('{"\\udc00":1}', "lone surrogate"),
        ("[1e400]", "beyond double precision"),
        ("1" * 10_000, "beyond double precision"),
        ("[" * 200_000, "nested too deeply"),
    ],
)
def test_what_no_model_could_write_is_untestable(text: str, reason: str) -> None:
    with pytest.raises(Untestable, match=reason):
        instance_value(text)


def test_everything_else_keeps_its_value() -> None:
    text = '{"a":[1,-0.5,1e300,null,true,"\\ud83d\\ude00"]}'
    assert instance_value(text) == json.loads(text)
