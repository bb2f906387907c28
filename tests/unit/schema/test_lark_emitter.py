"""The grammar's text: what is emitted, shared, left out."""

import json
import re
from typing import Any

import pytest

from grammar.schema.compiler import compile_schema


def grammar(schema: Any) -> dict[str, str]:
    """Rule by rule."""
    lines = compile_schema(json.dumps(schema)).lark.splitlines()
    return dict(line.split(": ", 1) for line in lines)


def reached(rules: dict[str, str]) -> set[str]:
    found: set[str] = set()
    waiting = ["start"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            body = re.sub(r'"(?:[^"\\]|\\.)*"|/(?:[^/\\]|\\.)*/|%json .*', "", rules[name])
            waiting += re.findall(r"[A-Za-z_][A-Za-z_0-9]*", body)
    return found


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"enum": ["x", 1]}}},
        {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 4},
        {"properties": {"a": False, "b": {"not": {}}, "c": {"type": "null"}}, "required": ["c"]},
        {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]},
        {"contains": {"const": 1}, "maxContains": 2, "type": "array"},
        {"type": "number", "multipleOf": 0.5, "minimum": 0},
    ],
)
def test_every_rule_is_defined_once_and_reached(schema: Any) -> None:
    names = [line.split(": ")[0] for line in compile_schema(json.dumps(schema)).lark.splitlines()]
    assert len(names) == len(set(names))
    assert reached(grammar(schema)) == set(names)


def test_what_has_no_finite_value_is_left_out() -> None:
    endless = {"type": "object", "properties": {"e": {"$ref": "#/$defs/e"}}, "required": ["e"]}
    schema = {
        "anyOf": [{"type": "null"}, endless, {"type": "array", "items": endless}],
        "$defs": {"e": endless},
    }
    text = compile_schema(json.dumps(schema)).lark
    assert '"null"' in text
    assert '"{"' not in text
    assert '"[" "]"' in re.sub(" +", " ", text)
    assert '\\"e\\"' not in text


def test_equal_terminals_have_one_name_and_equal_literals_one_rule() -> None:
    pattern = {"type": "string", "pattern": "^[ab]+$"}
    rules = grammar({"type": "array", "prefixItems": [pattern, {**pattern, "title": "x"}]})
    assert list(rules.values()).count('/"[a-b]+"/') == 1
    same = grammar({"enum": [[1, 1, 2]]})
    (whole,) = (body for body in same.values() if body.count('","') == 2)
    first, second, third = re.findall(r"n\d+", whole)
    assert first == second != third


def test_recursion_is_a_rule_that_names_itself() -> None:
    rules = grammar({"type": "array", "items": {"$ref": "#"}})
    (item,) = set(re.findall(r"n\d+", rules[rules[rules["start"]]]))
    (inner,) = set(re.findall(r"n\d+", rules[rules[item]]))
    assert inner == item


def test_types_are_alternatives_of_one_rule() -> None:
    rules = grammar({"type": ["null", "boolean"], "description": "x"})
    assert rules[rules["start"]] == '"null" | "false" | "true"'
    assert grammar({"const": "a"})[grammar({"const": "a"})["start"]].startswith("T")


def test_gaps_are_those_of_what_is_emitted() -> None:
    unique = {"type": "array", "uniqueItems": True}
    assert len(compile_schema(json.dumps({"properties": {"a": unique}})).gaps) == 1
    assert compile_schema(json.dumps({"type": "null", "properties": {"a": unique}})).gaps == ()
    assert compile_schema(
        json.dumps({"not": {"properties": {"a": unique}}, "const": {"a": [1, 1]}})
    )
