"""Lark grammars from clients: what passes, what is refused, what becomes of inline schemas."""

import json
import re

import pytest

from grammar.errors import UnsupportedConstraint
from grammar.matcher import GrammarEngine, compile_constraint
from grammar.spec import ConstraintSpec
from tests.grammar_walk import Texts

CALC = """
// a calculator
%llguidance {}
%import common.INT
start: (expr "=" \\n
  | note)+
?expr: term (("+" | "-") term)*   # left to right
term: NUMBER -> number
    | "(" expr ")"
NUMBER: INT ["." INT]
note[capture, suffix="!"]: /[a-z \\/]+/
""".replace(" \\n", "")


def accepted(engine: GrammarEngine, texts: Texts, grammar: str, *outputs: str) -> list[bool]:
    spec = ConstraintSpec("lark", grammar, "llguidance")
    matcher = compile_constraint(engine, spec)
    return [texts.accepts(matcher, text) for text in outputs]


def test_a_grammar_is_enforced_as_it_is(llguidance: GrammarEngine, texts: Texts) -> None:
    outputs = ("1+(2.5-3)=", "7=to a/b!", "1+=", "7", "")
    assert accepted(llguidance, texts, CALC, *outputs) == [True, True, False, False, False]


def test_inline_schemas_are_enforced_like_any_other(
    llguidance: GrammarEngine, texts: Texts
) -> None:
    schema = json.dumps({"type": "integer", "minimum": 1, "maximum": 31}, indent=1)
    grammar = f'start: "d" %json {schema} other?\nother: "s" %json {{"enum": ["a b", 7]}}'
    outputs = ("d31", 'd1s"a b"', "d1s7", "d32", "d1sx")
    assert accepted(llguidance, texts, grammar, *outputs) == [True, True, True, False, False]


def test_names_of_a_grammar_do_not_meet_those_of_its_schemas(
    llguidance: GrammarEngine, texts: Texts
) -> None:
    grammar = 'start: schema0 %json {"const": 1}\nschema0: SCHEMAX0_T0\nSCHEMAX0_T0: "x"'
    assert accepted(llguidance, texts, grammar, "x1", "11") == [True, False]


def test_whitespace_is_allowed_inside_of_schemas_where_asked_for(
    llguidance: GrammarEngine, texts: Texts
) -> None:
    grammar = 'start: "a" %json {"type": "array", "items": {"const": 1}, "minItems": 1}'
    for allows in (False, True):
        spec = ConstraintSpec("lark", grammar, allows_whitespace=allows)
        assert texts.accepts(compile_constraint(llguidance, spec), "a[ 1 ]") == allows


def test_gaps_of_inline_schemas_are_the_grammars(llguidance: GrammarEngine) -> None:
    schema = '{"type": "array", "items": {"type": "integer"}, "uniqueItems": true}'
    spec = ConstraintSpec("lark", f"start: %json {schema}", allows_checked=True)
    assert [gap.keyword for gap in llguidance.prepare(spec).gaps] == ["uniqueItems"]


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('start: "a"\n%llguidance { "no_forcing": true }', "line 2: %llguidance is not supported"),
        ("start: a\n\na: <|im_end|>", "line 3: tokens are not supported, only text: <|im_end|>"),
        ("start: <[1-5]>", "line 1: tokens are not supported"),
        ("start[temperature=0.5]: /a/", "line 1: the attribute 'temperature' is not supported"),
        ("start[max_tokens=5]: /a/", "line 1: the attribute 'max_tokens' is not supported"),
        ('start: a\na[stop=""]: /a/', "line 2: the attribute 'stop' is not supported"),
        ("start: @other", "line 1: '@' is not supported here"),
        ("%import .files.X\nstart: X", "line 1: only 'common' can be imported from"),
        ("%import python.NAME\nstart: NAME", "line 1: only 'common' can be imported from"),
        ("%declare X\nstart: X", "line 1: %declare is not supported"),
        ("start: p::0x1\np: /a/", "line 1: '::' is not supported here"),
        ('start: t{"a"}\nt{x}: x', "line 1: a repetition has 0 to 65536 times, not '\"a\"'"),
        ('start: "a"~1..99999999', "line 1: a repetition has 0 to 65536 times"),
        ("start: A\nA.2: /a/", "line 2: ':' was expected, not '.'"),
        ("start: b", "line 1: the rule 'b' is not defined"),
        ("root: /a/", "line 1: the grammar has no rule 'start'"),
        ('start: "a"\nstart: "b"', "line 2: the rule 'start' is defined twice"),
        ('start: "a" start', "the rule 'start' has no finite text"),
        ('start: "b" | a\na: b\nb: "x" a', "the rule 'a' has no finite text"),
        ('start: ("a"', "line 1: ')' was expected, not ''"),
        ('start: "a', "line 1: '\"' is not expected here"),
        ("start: " + "(" * 40, "line 1: groups are nested at most 32 deep"),
        ("", "line 1: the grammar has no rule 'start'"),
        ('root ::= "a"', "line 1: rules with parameters are not supported"),
        ('start: %json {"type":', "line 1: no JSON"),
        ('start: "x"\n | %json {"type":"banana"}', "line 2: "),
        ('start: %json {"type":"null"}\n%ignore " "', "%ignore would also hold inside of %json"),
        ('start: "\ud800"', "the grammar has a lone surrogate"),
        ("start: /(?=a)b/", ""),
    ],
)
def test_what_would_break_a_promise_is_refused(
    llguidance: GrammarEngine, grammar: str, reason: str
) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        compile_constraint(llguidance, ConstraintSpec("lark", grammar))
    assert re.match(re.escape(reason), caught.value.reason)


def test_a_schema_that_is_refused_says_where(llguidance: GrammarEngine) -> None:
    spec = ConstraintSpec("lark", 'start: %json {"properties":{"a":{"enum":[]}}}')
    with pytest.raises(UnsupportedConstraint) as caught:
        llguidance.prepare(spec)
    assert caught.value.pointer == "/properties/a/enum"
