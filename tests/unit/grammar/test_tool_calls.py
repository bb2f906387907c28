"""What a model with tools may write: text, a block of calls, or an answer of a schema."""

import json
import random
import re
from typing import Any

import pytest

from grammar.errors import UnsupportedConstraint
from grammar.matcher import GrammarEngine, Matcher, compile_constraint
from grammar.spec import ConstraintSpec
from tests.grammar_walk import Texts
from tests.small_vocabulary import SPECIAL_TOKENS, START_OF_TURN

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
NONE = {"type": "object", "additionalProperties": False}
TRIGGER = SPECIAL_TOKENS[START_OF_TURN]
WEATHER = {"begin": '{"name": "weather", "arguments": ', "schema": CITY, "end": "}"}
NOW = {"begin": '{"name": "now", "arguments": ', "schema": NONE, "end": "}"}
IN_TAGS = {
    "calls": [WEATHER, NOW],
    "opening": "<tool>\n",
    "separator": "\n</tool>\n<tool>\n",
    "closing": "\n</tool>",
    "triggers": ["<tool>"],
}
IN_LIST = {
    "calls": [WEATHER, NOW],
    "opening": f"{TRIGGER}[",
    "separator": ", ",
    "closing": "]",
    "triggers": [TRIGGER],
    "tokens": {TRIGGER: START_OF_TURN},
}
AT_START = {
    "calls": [WEATHER, NOW],
    "separator": "; ",
    "triggers": ['{"name": "'],
    "is_leading": True,
}
KEYWORDS = {
    "calls": [
        {"begin": "weather(", "schema": CITY, "end": ")", "style": "keywords"},
        {"begin": "now(", "schema": NONE, "end": ")", "style": "keywords"},
    ],
    "opening": "[",
    "separator": ", ",
    "closing": "]",
    "triggers": ["[weather(", "[now("],
    "is_leading": True,
}
PARIS = '{"name": "weather", "arguments": {"city":"Paris"}}'
CLOCK = '{"name": "now", "arguments": {}}'


def spec(value: object, *, whitespace: bool = True, checked: bool = True) -> ConstraintSpec:
    return ConstraintSpec(
        "tool_calls", json.dumps(value), allows_checked=checked, allows_whitespace=whitespace
    )


def built(engine: GrammarEngine, value: object, *, whitespace: bool = True) -> Matcher:
    return compile_constraint(engine, spec(value, whitespace=whitespace))


def ids_of(texts: Texts, output: str) -> list[int]:
    """Text, with the trigger as its token."""
    before, *others = output.split(TRIGGER)
    ids = texts.encode(before)
    for part in others:
        ids += [START_OF_TURN, *texts.encode(part)]
    return ids


def accepts(texts: Texts, matcher: Matcher, output: str) -> bool:
    fork, ids = matcher.fork(), ids_of(texts, output)
    return fork.accept(ids) == len(ids) and fork.is_accepting()


def tags(*calls: str) -> str:
    return "\n".join(f"<tool>\n{call}\n</tool>" for call in calls)


@pytest.mark.parametrize(
    ("value", "output", "is_allowed"),
    [
        (IN_TAGS, "", True),
        (IN_TAGS, "Sunny, 3 < 4 <tool or <b> é", True),
        (IN_TAGS, tags(PARIS), True),
        (IN_TAGS, f"Let me look.\n{tags(PARIS, CLOCK, CLOCK)}", True),
        (IN_TAGS, f"<<tool{tags(CLOCK)}", True),
        (IN_TAGS, f"{tags(PARIS)}\n", False),
        (IN_TAGS, f"{tags(PARIS)} and so on", False),
        (IN_TAGS, f"<tool>\n{PARIS}\n", False),
        (IN_TAGS, "a <tool> is a thing", False),
        (IN_TAGS, tags('{"name": "other", "arguments": {}}'), False),
        (IN_TAGS, tags('{"name": "now", "arguments": {"city":"x"}}'), False),
        (IN_TAGS, tags('{"name": "weather", "arguments": {"days":1}}'), False),
        (IN_TAGS, tags('{"name": "weather", "arguments": {"city": "x",\n "days": 2 } }'), False),
        (IN_TAGS, tags('{"name": "weather", "arguments": {"city": "x",\n "days": 2 }}'), True),
        (IN_LIST, f"Sure {TRIGGER}[{PARIS}, {CLOCK}]", True),
        (IN_LIST, f"[{PARIS}]", True),
        (IN_LIST, f"{TRIGGER}[{PARIS}", False),
        (IN_LIST, f"{TRIGGER}[{PARIS}][", False),
        (IN_LIST, f"{TRIGGER}[]", False),
        (IN_LIST, f"{TRIGGER} is a token", False),
        (AT_START, f"{PARIS}; {CLOCK}", True),
        (AT_START, '{"name"', True),
        (AT_START, f" {PARIS} is how it is done", True),
        (AT_START, '{"a": {"name": "x"}}', True),
        (AT_START, '{"name": "x"}', False),
        (AT_START, f"{PARIS}, so", False),
        (KEYWORDS, '[weather(city="Paris", days=3), now()]', True),
        (KEYWORDS, '[weather(city="Paris",days=-3)]', True),
        (KEYWORDS, "[now()]", True),
        (KEYWORDS, "[now]", True),
        (KEYWORDS, "[1] says so", True),
        (KEYWORDS, "[weather(days=3)]", False),
        (KEYWORDS, '[weather(days=3, city="Paris")]', False),
        (KEYWORDS, '[weather("Paris")]', False),
        (KEYWORDS, "[weather(city='Paris')]", False),
        (KEYWORDS, '[weather(city="Paris", days=x)]', False),
        (KEYWORDS, "[now()", False),
    ],
)  # fmt: skip
def test_an_output_is_text_or_ends_with_whole_calls(
    llguidance: GrammarEngine, texts: Texts, value: object, output: str, *, is_allowed: bool
) -> None:
    assert accepts(texts, built(llguidance, value), output) is is_allowed


WRAPPING = {
    "openings": [[], ["```json"], ["```json", "["], ["["]],
    "closings": [["```"], ["]"], ["]", "```"]],
}


def wrapped(value: dict[str, Any]) -> dict[str, Any]:
    calls = [{**call, "name": json.loads(call["begin"] + "{}}")["name"]} for call in value["calls"]]
    return {**value, "calls": calls, "wrapping": WRAPPING}


@pytest.mark.parametrize("value", [IN_TAGS, IN_LIST])
@pytest.mark.parametrize(
    ("output", "is_allowed"),
    [
        (f"```json\n{PARIS}\n```", True),
        ('```json\n{\n  "name":"now" ,\n  "arguments": {}\n}\n```', True),
        (f"```json\n[\n{PARIS},\n{CLOCK}\n]\n```", True),
        (f"{PARIS}\n{CLOCK}", True),
        (f"[{CLOCK}]", True),
        ('```json\n{"name": "Ann"}\n```', True),
        ('{"name": "nowhere"}', True),
        (f"So:\n```json\n{CLOCK}\n``` or not", True),
        ("", True),
        (f"{CLOCK} is how", False),
        (f"```json\n{CLOCK}\n``` is how", False),
        ('{"name": "now"}', False),
        ('{"name": "now", "arguments": {"city":"x"}}', False),
        (f"{CLOCK}{CLOCK}{CLOCK}{CLOCK}", False),
    ],
)
def test_calls_may_be_wrapped_in_something_else(
    llguidance: GrammarEngine, texts: Texts, value: dict[str, Any], output: str, *, is_allowed: bool
) -> None:
    matcher = built(llguidance, {**wrapped(value), "max_calls": 3})
    assert accepts(texts, matcher, output) is is_allowed


@pytest.mark.parametrize("value", [IN_TAGS, IN_LIST])
def test_wrapped_calls_stand_beside_those_with_a_trigger(
    llguidance: GrammarEngine, texts: Texts, value: dict[str, Any]
) -> None:
    matcher = built(llguidance, {**wrapped(value), "max_calls": 1})
    block = f"{value['opening']}{CLOCK}{value['closing']}"
    assert accepts(texts, matcher, block)
    assert accepts(texts, matcher, f"```json\n[]\n{block}")
    assert not accepts(texts, matcher, f"{CLOCK}{block}")
    assert not accepts(texts, matcher, f"{CLOCK}, {CLOCK}")


@pytest.mark.parametrize("value", [IN_TAGS, IN_LIST, AT_START, KEYWORDS])
def test_the_number_of_calls_is_bounded(
    llguidance: GrammarEngine, texts: Texts, value: dict[str, Any]
) -> None:
    call = "now()" if value is KEYWORDS else CLOCK
    for most in (1, 2):
        matcher = built(llguidance, {**value, "max_calls": most})
        for num_calls in range(1, 4):
            block = value.get("separator", "").join([call] * num_calls)
            output = f"{value.get('opening', '')}{block}{value.get('closing', '')}"
            assert accepts(texts, matcher, output) is (num_calls <= most)


@pytest.mark.parametrize("value", [IN_TAGS, IN_LIST, AT_START, KEYWORDS])
def test_where_a_call_is_demanded_nothing_stands_before_it(
    llguidance: GrammarEngine, texts: Texts, value: dict[str, Any]
) -> None:
    matcher = built(llguidance, {**value, "content": "none", "calls": value["calls"][1:]})
    opening = f"{value.get('opening', '')}{value['calls'][1]['begin']}"
    forced = matcher.forced_tokens()
    written = b"".join(
        TRIGGER.encode() if one == START_OF_TURN else texts.bytes_of(one) for one in forced
    )
    assert written.decode().startswith(opening)
    assert not accepts(texts, matcher, "")
    assert not accepts(texts, matcher, f" {opening}")


def test_an_answer_of_its_schema_may_stand_instead_of_calls(
    llguidance: GrammarEngine, texts: Texts
) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    matcher = built(llguidance, {**IN_LIST, "content": {"schema": schema}})
    assert accepts(texts, matcher, '{"name": "now", "arguments": {}}')
    assert accepts(texts, matcher, f"{TRIGGER}[{CLOCK}]")
    for output in ("", "text", "{}", f'{{"name":"x"}}{TRIGGER}[{CLOCK}]'):
        assert not accepts(texts, matcher, output)


def test_the_token_of_a_trigger_is_no_other_text(llguidance: GrammarEngine, texts: Texts) -> None:
    matcher = built(llguidance, IN_LIST)
    assert START_OF_TURN in texts.allowed(matcher)
    assert START_OF_TURN not in texts.allowed(built(llguidance, IN_TAGS))
    assert matcher.accept([START_OF_TURN]) == 1
    assert texts.allowed(matcher) == {texts.encode("[")[0]}
    matcher.rollback(1)
    pieces = texts.encode("<|im_start|>")
    assert START_OF_TURN not in pieces
    assert matcher.accept([*pieces, *texts.encode(" is how a turn begins")]) > len(pieces)


def test_any_keywords_stand_for_a_schema_that_names_none(
    llguidance: GrammarEngine, texts: Texts
) -> None:
    call = {"begin": "f(", "schema": {"type": "object"}, "end": ")", "style": "keywords"}
    matcher = built(llguidance, {**KEYWORDS, "calls": [call], "content": "none"})
    assert accepts(texts, matcher, '[f(a=1, _b2={"x": [null]}, c="é")]')
    assert accepts(texts, matcher, "[f()]")
    for output in ("[f(1)]", "[f(2a=1)]", "[f(a)]", "[f(a=1,)]", "[f(a=b)]"):
        assert not accepts(texts, matcher, output)


def test_keywords_keep_what_their_schemas_refer_to(llguidance: GrammarEngine, texts: Texts) -> None:
    schema = {
        "properties": {"at": {"$ref": "#/$defs/point"}, "to": {"items": {"$ref": "#/$defs/point"}}},
        "$defs": {"point": {"enum": [[0, 0], [1, 1]]}},
        "additionalProperties": {"type": "null"},
    }
    call = {"begin": "f(", "schema": schema, "end": ")", "style": "keywords"}
    matcher = built(llguidance, {**KEYWORDS, "calls": [call], "content": "none"}, whitespace=False)
    assert accepts(texts, matcher, "[f(at=[1,1], to=[[0,0]])]")
    assert accepts(texts, matcher, "[f(to=[])]")
    assert not accepts(texts, matcher, "[f(at=[1,2])]")
    assert not accepts(texts, matcher, "[f(x=null)]")


def test_many_optional_keywords_are_any_of_them_in_order(
    llguidance: GrammarEngine, texts: Texts
) -> None:
    names = [f"p{number}" for number in range(200)]
    schema = {"properties": {name: {"const": 1} for name in names}, "required": ["p7", "p9"]}
    call = {"begin": "f(", "schema": schema, "end": ")", "style": "keywords"}
    matcher = built(llguidance, {**KEYWORDS, "calls": [call], "content": "none"})
    some = random.Random(1).sample(names, 20)
    chosen = [name for name in names if name in {*some, "p7", "p9"}]
    assert accepts(texts, matcher, f"[f({', '.join(f'{name}=1' for name in chosen)})]")
    assert not accepts(texts, matcher, "[f(p7=1)]")
    assert not accepts(texts, matcher, "[f(p9=1, p7=1)]")


@pytest.mark.parametrize("value", [IN_TAGS, IN_LIST, AT_START, KEYWORDS])
def test_whatever_the_masks_allow_has_no_trigger_but_before_calls(
    llguidance: GrammarEngine, texts: Texts, value: dict[str, Any]
) -> None:
    argument = r'\s*\{\s*("city"\s*:\s*"([^"\\]|\\.)*"(\s*,\s*"days"\s*:\s*-?\d+)?)?\s*\}'
    call = r'\{"name": "(weather|now)", "arguments": ARG\}'.replace("ARG", argument)
    if value is KEYWORDS:
        call = r'(now\(\)|weather\(city="([^"\\]|\\.)*"(, ?days=-?\d+)?\))'
    separator, closing = (re.escape(value.get(key, "")) for key in ("separator", "closing"))
    block = re.compile(f"{call}({separator}{call})*{closing}", re.DOTALL)
    num_blocks = 0
    for seed in range(12):
        matcher = built(llguidance, {**value, "content": "none" if seed < 6 else "text"})
        output = texts.walk(matcher, random.Random(seed))
        text = b"".join(
            TRIGGER.encode() if one == START_OF_TURN else texts.bytes_of(one) for one in output
        ).decode(errors="replace")
        opening = value.get("opening", "")
        starts = [trigger for trigger in value["triggers"] if trigger in text]
        if starts and (not value.get("is_leading") or text.startswith(tuple(starts))):
            assert block.fullmatch(text[text.index(opening) + len(opening) :]), text
            num_blocks += 1
    assert num_blocks >= 3


@pytest.mark.parametrize(
    ("value", "pointer", "reason"),
    [
        ({"calls": []}, "/calls", "1 to 1024 calls"),
        ({**IN_TAGS, "max_calls": 0}, "/max_calls", "at least 1"),
        ({**IN_TAGS, "x": 1}, "", "no tool calls: .*`x`"),
        ({**IN_TAGS, "structures": []}, "", "no tool calls"),
        ({**IN_TAGS, "triggers": []}, "/triggers", "text needs triggers"),
        ({**IN_TAGS, "triggers": [""]}, "/triggers", "text needs triggers"),
        ({**IN_TAGS, "triggers": ["<f>"]}, "/triggers", "the opening begins with the trigger"),
        ({**IN_TAGS, "triggers": ["<t", "<to"]}, "/triggers", "begins another"),
        ({**IN_TAGS, "tokens": {"": 1}}, "/tokens", "a token has a text"),
        ({**IN_TAGS, "tokens": {"<tool": 1}}, "/triggers", "is a token and more"),
        ({**IN_TAGS, "closing": "x" * 5000}, "/closing", "a marker has at most"),
        ({**IN_TAGS, "calls": [NOW, NOW]}, "/calls/1/begin", "two tags begin with"),
        ({**IN_TAGS, "calls": [{**NOW, "end": "1"}]}, "/calls/0/end", "a number may not be told"),
        ({**IN_TAGS, "calls": [{**NOW, "schema": {}, "end": ""}]}, "/calls/0/end", "a number has"),
        ({**IN_TAGS, "separator": "\n", "closing": "\n</tool>"}, "/separator", "the beginning of"),
        ({**AT_START, "triggers": ['{"name": "now']}, "/calls/0/begin", "none of the triggers"),
        ({**AT_START, "content": {"schema": CITY}}, "/calls/0/begin", "begins as an answer"),
        ({**KEYWORDS, "content": {"schema": {}}}, "/calls/0/begin", "begins as an answer"),
        ({**IN_TAGS, "wrapping": WRAPPING}, "/wrapping", "each with a name of its own"),
        ({**wrapped(AT_START)}, "/wrapping", "stand instead of text"),
        ({**wrapped(IN_TAGS), "content": "none"}, "/wrapping", "stand instead of text"),
        ({**IN_TAGS, "calls": [NOW, {**WEATHER, "schema": {"type": "banana"}}]},
         "/calls/1/schema/type", "unknown type"),
        ({**IN_TAGS, "content": {"schema": {"type": "banana"}}}, "/content/schema/type", ""),
    ],
)  # fmt: skip
def test_what_could_not_be_told_apart_is_refused_with_its_place(
    llguidance: GrammarEngine, value: object, pointer: str, reason: str
) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        built(llguidance, value)
    assert caught.value.pointer == pointer
    assert re.search(reason, caught.value.reason)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (True, ""),
        ({"type": "array"}, "/type"),
        ({"minProperties": 1}, "/minProperties"),
        ({"properties": {"a-b": {}}}, "/properties"),
        ({"properties": []}, "/properties"),
        ({"required": [1]}, "/required"),
        ({"required": ["a"], "properties": {"b": {}}}, "/required"),
        ({"properties": {"a": {"$ref": "#/properties/b"}}}, "/properties"),
        ({"properties": {"a": {"$anchor": "x"}}}, "/properties"),
        ({"properties": {"a": {"type": "banana"}}}, "/properties/a/type"),
        ({"$defs": {"x": {}}, "properties": {"a": {"$defs": {}, "$ref": "#/$defs/x"}}},
         "/properties"),
    ],
)  # fmt: skip
def test_keywords_are_refused_where_they_could_not_keep_the_schema(
    llguidance: GrammarEngine, schema: object, pointer: str
) -> None:
    call = {"begin": "f(", "schema": schema, "end": ")", "style": "keywords"}
    with pytest.raises(UnsupportedConstraint) as caught:
        built(llguidance, {**KEYWORDS, "calls": [call], "content": "none"})
    assert caught.value.pointer == f"/calls/0/schema{pointer}"


def test_gaps_name_the_call_that_they_are_in(llguidance: GrammarEngine) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    value = {**IN_TAGS, "calls": [NOW, {**WEATHER, "schema": schema}]}
    (gap,) = llguidance.prepare(spec(value)).gaps
    assert (gap.pointer, gap.keyword) == (
        "/calls/1/schema/properties/a/uniqueItems",
        "uniqueItems",
    )
    with pytest.raises(UnsupportedConstraint) as caught:
        llguidance.prepare(spec(value, checked=False))
    assert caught.value.pointer == gap.pointer
