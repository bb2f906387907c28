"""Structural tags: free text, triggers, tags with a schema, and answers instead of them."""

import json
import random
import re
from typing import Any

import pytest

from grammar.errors import UnsupportedConstraint
from grammar.matcher import GrammarEngine, Matcher, compile_constraint
from grammar.spec import ConstraintSpec
from tests.grammar_walk import Texts

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
GET = {"begin": "<f=get>", "schema": POINT, "end": "</f>"}
SET = {"begin": "<f=set>", "schema": {"type": "integer", "maximum": 3}, "end": "</f>"}
LEGACY = {"structures": [GET, SET], "triggers": ["<f="]}


def union(**changes: Any) -> dict[str, Any]:
    return {"type": "tool_union", "tags": [GET, SET], "triggers": ["<f="], **changes}


def built(engine: GrammarEngine, value: object) -> Matcher:
    spec = ConstraintSpec("structural_tag", json.dumps(value), "llguidance", allows_checked=True)
    return compile_constraint(engine, spec)


def accepted(engine: GrammarEngine, texts: Texts, value: object, *outputs: str) -> list[bool]:
    matcher = built(engine, value)
    return [texts.accepts(matcher, text) for text in outputs]


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("", True),
        ("just <f text, <b>bold</b> é 日本 <f", True),
        ('<f=get>{"x":1}</f>', True),
        ('a<<f=get>{"x":1}</f> b <f=set>3</f>', True),
        ('<f=set>1</f><f=set>2</f>', True),
        ("<f=", False),
        ("<f=put>1</f>", False),
        ("<f=set>4</f>", False),
        ("<f=set>1</f", False),
        ('<f=get>{"x":1}', False),
        ('<f=get>{"x": 1}</f>', False),
        ("<f=set>1</f> <f=", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [LEGACY, union()])
def test_a_trigger_in_free_text_begins_a_tag(
    llguidance: GrammarEngine, texts: Texts, value: object, text: str, *, is_allowed: bool
) -> None:
    assert accepted(llguidance, texts, value, text) == [is_allowed]


def test_whatever_the_masks_allow_has_no_trigger_but_at_a_tag(
    llguidance: GrammarEngine, texts: Texts
) -> None:
    matcher = built(llguidance, LEGACY)
    tag = re.compile(r'<f=get>\{"x":-?\d+\}</f>|<f=set>-?\d+</f>')
    outputs = [texts.walk(matcher, random.Random(seed)) for seed in range(25)]
    for output in outputs:
        text = b"".join(texts.bytes_of(token_id) for token_id in output).decode(errors="replace")
        assert "<f=" not in tag.sub("", text)


def test_the_number_of_calls_is_bounded(llguidance: GrammarEngine, texts: Texts) -> None:
    call = "<f=set>1</f>"
    value = union(min_calls=1, max_calls=2)
    outputs = ("text", f"a {call} b", call * 2, call * 3)
    assert accepted(llguidance, texts, value, *outputs) == [False, True, True, False]


def test_without_text_there_are_calls_only(llguidance: GrammarEngine, texts: Texts) -> None:
    call = "<f=set>1</f>"
    outputs = ("", "text", f"{call} ", call, call * 2)
    value = union(content="none", triggers=[])
    assert accepted(llguidance, texts, value, *outputs) == [False, False, False, True, True]


def test_an_answer_of_its_schema_may_stand_instead_of_calls(
    llguidance: GrammarEngine, texts: Texts
) -> None:
    value = union(content={"schema": {"type": "object", "maxProperties": 0}}, max_calls=1)
    call = "<f=set>1</f>"
    outputs = ("{}", call, "{}" + call, call + "{}", call * 2, '{"a":1}', "text")
    found = accepted(llguidance, texts, value, *outputs)
    assert found == [True, True, False, False, False, False, False]


def test_one_begin_may_begin_another(llguidance: GrammarEngine, texts: Texts) -> None:
    tags = [
        {"begin": "<f", "schema": {"const": True}, "end": ""},
        {"begin": "<f>", "schema": {"const": False}, "end": ""},
    ]
    outputs = ("<ftrue", "a<f>false.", "<ffalse", "<f>true")
    value = {"structures": tags, "triggers": ["<f", "<f>"]}
    assert accepted(llguidance, texts, value, *outputs) == [True, True, False, False]


def test_triggers_that_overlap_are_told_apart(llguidance: GrammarEngine, texts: Texts) -> None:
    tags = [
        {"begin": "aab", "schema": {"const": None}, "end": ""},
        {"begin": "ac", "schema": {"const": None}, "end": ""},
    ]
    outputs = ("aaabnull", "aacnull", "aaa", "aab", "xacnullaabnull", "acaabnull")
    value = {"structures": tags, "triggers": ["aab", "ac"]}
    assert accepted(llguidance, texts, value, *outputs) == [True, True, True, False, True, False]


def test_schemas_may_be_sent_as_text_and_keep_their_order(
    llguidance: GrammarEngine, texts: Texts
) -> None:
    schema = '{"type":"object","properties":{"b":{"const":1},"a":{"const":2}},"required":["a","b"],"additionalProperties":false}'  # noqa: E501
    value = {"structures": [{"begin": "!", "schema": schema, "end": "."}], "triggers": ["!"]}
    assert accepted(llguidance, texts, value, '!{"b":1,"a":2}.', '!{"a":2,"b":1}.') == [True, False]


@pytest.mark.parametrize(
    ("value", "pointer", "reason"),
    [
        ({"structures": [], "triggers": []}, "", "1 to 1024 tags are expected, not 0"),
        ({"structures": [GET]}, "", "no structural tag: .*triggers"),
        ({**LEGACY, "x": 1}, "", "no structural tag: .*`x`"),
        ({**LEGACY, "triggers": ["<g"]}, "/triggers", "no tag begins with the trigger '<g'"),
        ({**LEGACY, "triggers": []}, "/structures/0/begin", "begins with none of the triggers"),
        (union(triggers=["<f=", "f="], tags=[GET, {**SET, "begin": "f=s"}]), "/triggers",
         "the trigger 'f=' is part of another"),
        (union(tags=[GET, GET]), "/tags/1/begin", "two tags begin with '<f=get>'"),
        (union(tags=[GET, {**GET, "begin": "<f=get>{"}]), "/tags/1/begin", "might be the tag"),
        (union(tags=[{**GET, "begin": ""}]), "/tags/0/begin", "a tag begins with text"),
        (union(tags=[{**SET, "end": "0"}]), "/tags/0/end", "a number may not be told"),
        (union(tags=[{**SET, "end": ""}]), "/tags/0/end", "a number may not be told"),
        (union(content={"schema": {}}, tags=[{**GET, "begin": "{"}]), "/tags/0/begin",
         "begins as an answer in JSON may"),
        (union(content={"schema": {"type": "banana"}}), "/content/schema/type", ""),
        (union(tags=[GET, {**SET, "schema": {"enum": []}}]), "/tags/1/schema/enum", ""),
        (union(max_calls=0), "/max_calls", "max_calls must be at least 1"),
        (union(min_calls=2), "", "no structural tag"),
        (union(tags=[{**GET, "begin": "\ud800"}]), "", "no structural tag: .*surrogate"),
    ],
)  # fmt: skip
def test_what_could_not_be_kept_is_refused_with_its_place(
    llguidance: GrammarEngine, value: object, pointer: str, reason: str
) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        built(llguidance, value)
    assert caught.value.pointer == pointer
    assert re.search(reason, caught.value.reason)


def test_gaps_of_a_schema_name_its_place_in_the_tag(llguidance: GrammarEngine) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    value = union(tags=[GET, {**GET, "begin": "<f=all>", "schema": schema}])
    spec = ConstraintSpec("structural_tag", json.dumps(value), allows_checked=True)
    (gap,) = llguidance.prepare(spec).gaps
    assert gap.pointer.startswith("/tags/1/schema")
    assert gap.keyword == "uniqueItems"
    with pytest.raises(UnsupportedConstraint) as caught:
        llguidance.prepare(ConstraintSpec("structural_tag", json.dumps(value)))
    assert caught.value.pointer == gap.pointer
