"""One contract for all engines: what a Matcher does with forced and with free outputs."""

import json
import random
from typing import Any

import numpy as np
import pytest

from grammar.errors import UnsupportedConstraint
from grammar.matcher import GrammarEngine, compile_constraint, mask_words
from grammar.spec import ConstraintKind, ConstraintSpec
from tests.grammar_walk import Texts, compact
from tests.small_vocabulary import END, END_OF_TURN, START_OF_TURN

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 4},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TREE = {
    "type": "object",
    "properties": {
        "v": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["v", "next"],
    "additionalProperties": False,
}
# What cannot be written as one regex.
NOT_REGULAR = [TREE, {"type": "array", "maxItems": 2}, {"type": "integer", "multipleOf": 3}]


def matcher_of(engine: GrammarEngine, kind: ConstraintKind, value: object) -> Any:
    text = value if isinstance(value, str) else json.dumps(value)
    return compile_constraint(engine, ConstraintSpec(kind, text, engine.name))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        "a",
        'quote " backslash \\ newline \n tab \t é 日本 😀 / \u2028',
        "",
        0,
        -17,
        1.5,
        9007199254740992,
        1e22,
        1e-7,
        True,
        None,
        [],
        {},
        {"b": 1, "a": [1, {"c": None}]},
        {'key with " and é': "x"},
        {"DEL \x7f, which JSON does not escape, \\\x7f": "\x7f"},
        {"\x00\x1f\x80\u2028\ufeff\uffff\U0001ffff": "\x00\x1f\x80\u2028\ufeff\uffff\U0001ffff"},
        "a<|im_end|>b",
        {"<|im_start|>": ["<|endoftext|>"]},
    ],
)
def test_a_const_leaves_one_output(engine: GrammarEngine, texts: Texts, value: object) -> None:
    matcher = matcher_of(engine, "json_schema", {"const": value})
    row = texts.walk(matcher, random.Random(0))
    assert json.loads(texts.decode(row)) == value
    assert texts.accepts(matcher, texts.decode(row))


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"enum": ["a", 1, None]}, ["a", 1, None], ["b", 2, False]),
        (PERSON, [{"name": "Ann", "age": 7}], [{"name": "Ann"}, {"name": "", "age": 7}]),
        (PERSON, [{"name": "日本", "age": 120}], [{"name": "Ann", "age": 121}, {}]),
        (TREE, [{"v": 1, "next": {"v": 2, "next": None}}], [{"v": 1, "next": {}}]),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1}, [[True]], [[], [1]]),
        ({"type": "array", "maxItems": 2}, [[], [1, "a"]], [[1, 2, 3]]),
        (
            {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}},
            [["a"], ["a", None]],
            [[1], ["a", 1]],
        ),
        ({"type": "number", "minimum": 0.5, "maximum": 1.5}, [0.5, 1, 1.25], [0.4, 1.51, "1"]),
        ({"type": "integer", "exclusiveMinimum": 3, "maximum": 5}, [4, 5], [3, 6, 4.5]),
        ({"type": "integer", "multipleOf": 3}, [0, 3, 12], [1, 4]),
        ({"type": "string", "pattern": "^[a-c]{2}$"}, ["ab", "cc"], ["a", "abd", "abc"]),
        ({"type": "string", "format": "ipv6"}, ["::1"], ["1.2.3.4", "x"]),
        ({"type": ["string", "null"], "maxLength": 1}, ["a", None], ["ab", 1]),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], [None, []]),
        ({"type": "object", "additionalProperties": {"type": "null"}}, [{"k": None}], [{"k": 1}]),
    ],
)
def test_valid_values_are_accepted_and_invalid_ones_are_not(
    engine: GrammarEngine, texts: Texts, schema: object, valid: list[Any], invalid: list[Any]
) -> None:
    if engine.name == "outlines" and schema in NOT_REGULAR:
        with pytest.raises(UnsupportedConstraint):
            matcher_of(engine, "json_schema", schema)
        return
    matcher = matcher_of(engine, "json_schema", schema)
    assert [value for value in valid if not texts.accepts(matcher, compact(value))] == []
    assert [value for value in invalid if texts.accepts(matcher, compact(value))] == []


def test_json_object_is_any_object_and_nothing_else(
    recursive_engine: GrammarEngine, texts: Texts
) -> None:
    matcher = matcher_of(recursive_engine, "json_object", "")
    assert texts.accepts(matcher, '{"a":[1,{"b":null}],"c":"d"}')
    assert [text for text in ("[]", "1", '"a"', "", "{") if texts.accepts(matcher, text)] == []


@pytest.mark.parametrize("text", ['{"a": 1}', '{ "a":1}', '{"a":1 }', '{"a":1}\n', ' {"a":1}'])
def test_no_whitespace_stands_between_tokens_of_json(
    recursive_engine: GrammarEngine, texts: Texts, text: str
) -> None:
    assert not texts.accepts(matcher_of(recursive_engine, "json_object", ""), text)


def test_whitespace_between_tokens_of_json_is_bounded_where_it_is_allowed(
    engine: GrammarEngine, texts: Texts
) -> None:
    schema = '{"type":"array","items":{"const":1},"minItems":1,"maxItems":2}'
    spec = ConstraintSpec("json_schema", schema, engine.name, allows_whitespace=True)  # type: ignore[arg-type]
    matcher = compile_constraint(engine, spec)
    assert [t for t in ("[1,1]", "[ 1 , 1 ]", "[1  ]") if not texts.accepts(matcher, t)] == []
    assert [t for t in (f"[{' ' * 40}1]", " [1]", "[1] ") if texts.accepts(matcher, t)] == []


def test_keys_keep_the_order_of_the_schema(engine: GrammarEngine, texts: Texts) -> None:
    schema = {
        "type": "object",
        "properties": {"b": {"const": 1}, "a": {"const": 2}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    matcher = matcher_of(engine, "json_schema", schema)
    assert texts.accepts(matcher, '{"b":1,"a":2}')
    assert not texts.accepts(matcher, '{"a":2,"b":1}')


def test_a_grammar_is_enforced_whatever_its_engine(engine: GrammarEngine, texts: Texts) -> None:
    matcher = matcher_of(engine, "gbnf", 'root ::= "a" item{1,2} | [é-ü]?\nitem ::= "b" | "bc"')
    assert [t for t in ("ab", "abbc", "abcbc", "ö", "") if not texts.accepts(matcher, t)] == []
    assert [t for t in ("a", "abbb", "öö", "b", "abcc") if texts.accepts(matcher, t)] == []


def test_recursion_of_a_grammar_is_enforced_or_refused(engine: GrammarEngine, texts: Texts) -> None:
    grammar = 'root ::= "(" root ")" | "x"'
    if engine.name == "outlines":
        with pytest.raises(UnsupportedConstraint, match="recursion"):
            matcher_of(engine, "gbnf", grammar)
        return
    matcher = matcher_of(engine, "gbnf", grammar)
    assert texts.accepts(matcher, "(((x)))")
    assert not texts.accepts(matcher, "(((x))")


def test_alternatives_are_all_allowed_whichever_comes_first(
    engine: GrammarEngine, texts: Texts
) -> None:
    matcher = matcher_of(engine, "regex", "(?:a|ab)(?:c|bcd)?")
    outputs = ("a", "ab", "ac", "abc", "abcd", "abbcd")
    assert [text for text in outputs if not texts.accepts(matcher, text)] == []
    assert not texts.accepts(matcher, "abb")


def test_an_unbounded_integer_ends(engine: GrammarEngine, texts: Texts) -> None:
    matcher = matcher_of(engine, "json_schema", {"type": "integer"})
    assert texts.accepts(matcher, "9" * 18)
    assert not texts.accepts(matcher, "9" * 65)


def test_class_escapes_of_a_regex_mean_what_pythons_re_and_ecmascript_agree_on(
    engine: GrammarEngine, texts: Texts
) -> None:
    matcher = matcher_of(engine, "regex", r"\d{1,3}")
    assert texts.accepts(matcher.fork(), "42")
    assert not texts.accepts(matcher.fork(), "\u0664\u0662")


def test_a_regex_binds_the_whole_output(engine: GrammarEngine, texts: Texts) -> None:
    matcher = matcher_of(engine, "regex", r"(yes|no)[0-9]{2}")
    assert texts.accepts(matcher, "yes12")
    assert [t for t in ("yes1", "yes123", "xyes12", "") if texts.accepts(matcher, t)] == []


def test_a_choice_is_literal_whatever_its_characters(engine: GrammarEngine, texts: Texts) -> None:
    strings = [
        "a.b",
        'say "hi"',
        "back\\slash",
        "two\nlines",
        "日本 😀",
        "[x]*",
        "\x00\x7f",
        "|",
        " ",
    ]
    matcher = matcher_of(engine, "choice", strings)
    assert [text for text in strings if not texts.accepts(matcher, text)] == []
    assert [t for t in ("axb", "a", "", "日", "xx") if texts.accepts(matcher, t)] == []


def test_a_choice_may_have_thousands_of_strings(engine: GrammarEngine, texts: Texts) -> None:
    matcher = matcher_of(engine, "choice", [f"s{number:05}" for number in range(3000)])
    assert texts.accepts(matcher, "s02999")
    assert not texts.accepts(matcher, "s03000")


def test_one_string_that_begins_another_can_end_or_go_on(
    engine: GrammarEngine, texts: Texts
) -> None:
    matcher = matcher_of(engine, "choice", ["ab", "abc"])
    assert matcher.accept(texts.encode("ab")) == 1
    assert matcher.is_accepting()
    assert not matcher.is_terminated()
    assert texts.allowed(matcher) == {END, END_OF_TURN, *texts.encode("c")}


def test_the_end_is_allowed_only_where_the_output_is_complete(
    engine: GrammarEngine, texts: Texts
) -> None:
    matcher = matcher_of(engine, "json_schema", PERSON)
    for token_id in texts.encode('{"name":"Ann","age":7}'):
        assert not texts.allowed(matcher) & {END, END_OF_TURN}
        assert matcher.accept([END]) == 0
        assert matcher.accept([token_id]) == 1
    assert texts.allowed(matcher) == {END, END_OF_TURN}


@pytest.mark.parametrize("end", [END, END_OF_TURN])
def test_every_end_token_ends_and_nothing_follows(
    engine: GrammarEngine, texts: Texts, end: int
) -> None:
    matcher = matcher_of(engine, "regex", "a+")
    token = texts.encode("a")
    assert matcher.accept([*token, end, *token]) == 2
    assert matcher.is_terminated()
    assert texts.allowed(matcher) == {END, END_OF_TURN}
    assert matcher.forced_tokens() == []


def test_an_output_that_cannot_go_on_is_terminated_before_its_end_token(
    engine: GrammarEngine, texts: Texts
) -> None:
    matcher = matcher_of(engine, "choice", ["abc"])
    assert not matcher.is_terminated()
    matcher.accept(texts.encode("abc"))
    assert matcher.is_terminated()
    assert matcher.accept([END_OF_TURN]) == 1


def test_accept_stops_before_the_first_token_that_does_not_fit(
    engine: GrammarEngine, texts: Texts
) -> None:
    matcher = matcher_of(engine, "regex", "12a")
    token_ids = texts.encode("12") + texts.encode("x") + texts.encode("a")
    assert matcher.accept(token_ids) == 1
    assert texts.allowed(matcher) == set(texts.encode("a"))
    assert matcher.accept([]) == 0
    assert matcher.accept(texts.encode("a")) == 1


def test_rollback_over_the_end_restores_each_mask(engine: GrammarEngine, texts: Texts) -> None:
    matcher = matcher_of(engine, "json_schema", PERSON)
    token_ids = [*texts.encode('{"name":"Ann","age":7}'), END]
    rows = []
    for token_id in token_ids:
        rows.append(texts.row(matcher))
        matcher.accept([token_id])
    for row in reversed(rows):
        matcher.rollback(1)
        np.testing.assert_array_equal(texts.row(matcher), row)
    assert matcher.accept(token_ids) == len(token_ids)
    matcher.rollback(len(token_ids))
    np.testing.assert_array_equal(texts.row(matcher), rows[0])


@pytest.mark.parametrize("num_tokens", [-1, 2, 1000])
def test_rollback_beyond_the_start_is_an_error_and_changes_nothing(
    engine: GrammarEngine, texts: Texts, num_tokens: int
) -> None:
    matcher = matcher_of(engine, "regex", "ab+")
    matcher.accept(texts.encode("a"))
    before = texts.row(matcher)
    with pytest.raises(ValueError, match="cannot roll back"):
        matcher.rollback(num_tokens)
    np.testing.assert_array_equal(texts.row(matcher), before)


def test_forks_go_their_own_ways(engine: GrammarEngine, texts: Texts) -> None:
    pristine = matcher_of(engine, "choice", ["ax", "by"])
    one, other = pristine.fork(), pristine.fork()
    assert one.accept(texts.encode("a")) == 1
    assert other.accept(texts.encode("by")) == 2
    assert texts.allowed(one) == set(texts.encode("x"))
    assert other.is_terminated()
    assert texts.allowed(pristine) == set(texts.encode("a") + texts.encode("b"))


def test_asking_for_forced_tokens_changes_nothing(engine: GrammarEngine, texts: Texts) -> None:
    matcher = matcher_of(engine, "json_schema", PERSON)
    before = texts.row(matcher)
    forced = matcher.forced_tokens()
    assert texts.decode(forced) == '{"name":"'[: len(texts.decode(forced))]
    assert forced == matcher.forced_tokens()
    np.testing.assert_array_equal(texts.row(matcher), before)


def test_a_free_position_forces_nothing(engine: GrammarEngine) -> None:
    assert matcher_of(engine, "regex", "[a-z]+").forced_tokens() == []


def test_ids_beyond_the_tokenizer_and_special_tokens_are_never_allowed(
    engine: GrammarEngine, texts: Texts
) -> None:
    matcher = matcher_of(engine, "regex", "[^a]*")
    num_tokens = texts.vocabulary.vocab_size - 40
    allowed = texts.allowed(matcher)
    assert max(allowed) < num_tokens
    assert START_OF_TURN not in allowed
    assert matcher.accept([START_OF_TURN]) == 0
    assert matcher.accept([num_tokens + 3]) == 0


def test_fill_refuses_rows_of_another_shape_or_type(engine: GrammarEngine, texts: Texts) -> None:
    matcher = matcher_of(engine, "regex", "a")
    num_words = mask_words(texts.vocabulary.vocab_size)
    for row in (
        np.zeros(num_words + 1, dtype=np.int32),
        np.zeros(num_words, dtype=np.int64),
        np.zeros(num_words * 2, dtype=np.int32)[::2],
    ):
        with pytest.raises(ValueError, match="mask row"):
            matcher.fill(row)


def test_fill_writes_one_row_of_a_batch(engine: GrammarEngine, texts: Texts) -> None:
    num_words = mask_words(texts.vocabulary.vocab_size)
    batch = np.full((3, num_words), -1, dtype=np.int32)
    matcher = matcher_of(engine, "regex", "a")
    matcher.fill(batch[1])
    assert (batch[[0, 2]] == -1).all()
    np.testing.assert_array_equal(batch[1], texts.row(matcher))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("json_schema", '{"type":"banana"}'),
        ("json_schema", '{"$ref":"#/nope"}'),
        ("json_schema", "{"),
        ("json_schema", "[]"),
        ("json_schema", "false"),
        ("json_schema", '{"type":"string","minLength":3,"maxLength":2}'),
        ("regex", "(a"),
        ("regex", ""),
        ("regex", "a(?=b)"),
        ("regex", r"(a)\1"),
        ("regex", "a{3,1}"),
        ("choice", "[]"),
        ("choice", '["a","a"]'),
        ("choice", '["a",""]'),
        ("choice", '["a",1]'),
        ("choice", '"a"'),
        ("gbnf", 'root ::= "a" root'),
        ("gbnf", "root ::= x"),
        ("lark", "start: x"),
        ("structural_tag", "{}"),
    ],
)
def test_what_is_no_constraint_is_refused_and_the_next_one_works(
    engine: GrammarEngine, texts: Texts, kind: ConstraintKind, value: str
) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        matcher_of(engine, kind, value)
    assert caught.value.reason
    assert texts.accepts(matcher_of(engine, "regex", "a"), "a")


def test_refusals_name_the_place(engine: GrammarEngine) -> None:
    schema = {"type": "object", "properties": {"a/b": {"type": "string", "contentEncoding": 1}}}
    schema["properties"]["a/b"]["minLength"] = -1  # type: ignore[index]
    with pytest.raises(UnsupportedConstraint) as caught:
        matcher_of(engine, "json_schema", schema)
    assert caught.value.pointer == "/properties/a~1b/minLength"
    assert caught.value.keyword == "minLength"
