"""Structural tags: free text, triggers, and tags with a schema."""

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


def tagged(*structures: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**LEGACY, **({"structures": structures} if structures else {}), **changes}


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
def test_a_trigger_in_free_text_begins_a_tag(
    llguidance: GrammarEngine, texts: Texts, text: str, *, is_allowed: bool
) -> None:
    assert accepted(llguidance, texts, LEGACY, text) == [is_allowed]


def test_whatever_the_masks_allow_has_no_trigger_but_at_a_tag(
    llguidance: GrammarEngine, texts: Texts
) -> None:
    matcher = built(llguidance, LEGACY)
    tag = re.compile(r'<f=get>\{"x":-?\d+\}</f>|<f=set>-?\d+</f>')
    outputs = [texts.walk(matcher, random.Random(seed)) for seed in range(25)]
    for output in outputs:
        text = b"".join(texts.bytes_of(token_id) for token_id in output).decode(errors="replace")
        assert "<f=" not in tag.sub("", text)


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
        (tagged(GET, {**SET, "begin": "f=s"}, triggers=["<f=", "f="]), "/triggers",
         "the trigger 'f=' is part of another"),
        (tagged(GET, GET), "/structures/1/begin", "two tags begin with '<f=get>'"),
        (tagged(GET, {**GET, "begin": "<f=get>{"}), "/structures/1/begin", "might be the tag"),
        (tagged({**GET, "begin": ""}), "/structures/0/begin", "a tag begins with text"),
        (tagged({**SET, "end": "0"}), "/structures/0/end", "a number may not be told"),
        (tagged({**SET, "end": ""}), "/structures/0/end", "a number may not be told"),
        (tagged(GET, {**SET, "schema": {"enum": []}}), "/structures/1/schema/enum", ""),
        (tagged({**GET, "begin": "\ud800"}), "", "no structural tag: .*surrogate"),
        ({"type": "tool_calls", "calls": []}, "", "no structural tag"),
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
    value = tagged(GET, {**GET, "begin": "<f=all>", "schema": schema})
    spec = ConstraintSpec("structural_tag", json.dumps(value), allows_checked=True)
    (gap,) = llguidance.prepare(spec).gaps
    assert gap.pointer.startswith("/structures/1/schema")
    assert gap.keyword == "uniqueItems"
    with pytest.raises(UnsupportedConstraint) as caught:
        llguidance.prepare(ConstraintSpec("structural_tag", json.dumps(value)))
    assert caught.value.pointer == gap.pointer
