"""The reader of GBNF: its notation, and what it refuses with line and column."""

import pytest

from grammar.errors import UnsupportedConstraint
from grammar.gbnf import parse_gbnf
from grammar.gbnf_checks import checked
from grammar.gbnf_nodes import Chars, Choice, Name, Node, Repeat, Sequence, Text
from grammar.schema import characters

CLASS = "line 1, column 10: a character class"


def root(body: str) -> Node:
    return parse_gbnf(f"root ::= {body}\nx ::= [x]").rules["root"]


def chars(*pairs: tuple[int, int]) -> Chars:
    return Chars(characters.ranges(pairs))


@pytest.mark.parametrize(
    ("body", "node"),
    [
        ('"a\\n\\"\\x41\\u00e9\\U0001F600"', Text('a\n"Aé😀')),
        ("'it\"s'", Text('it"s')),
        ("[a-c_]", chars((97, 99), (95, 95))),
        ("[^\\x00-`d-\\U0010FFFF]", chars((97, 99))),
        ("[-+*/]", chars((45, 45), (43, 43), (42, 42), (47, 47))),
        ("[a-]", chars((97, 97), (45, 45))),
        ("[\\]\\^\\-]", chars((93, 93), (94, 94), (45, 45))),
        (".", Chars(characters.EVERY)),
        ('x "b" | # a comment "|"\n "c"', Choice((Sequence((Name("x"), Text("b"))), Text("c")))),
        ('| "a"', Choice((Text(""), Text("a")))),
        ('"ab"*', Repeat(Text("ab"), 0, None)),
        ("x{3} x{2,} x{1,4}", Sequence((
            Repeat(Name("x"), 3, 3), Repeat(Name("x"), 2, None), Repeat(Name("x"), 1, 4),
        ))),
        ('"a" "b" ("c" "d")', Text("abcd")),
        ("x?+", Repeat(Repeat(Name("x"), 0, 1), 1, None)),
        ("(\n x\n)\n | x x", Choice((Name("x"), Sequence((Name("x"), Name("x")))))),
    ],
)  # fmt: skip
def test_notation_is_read(body: str, node: Node) -> None:
    assert root(body) == node


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('root ::= "a', "line 1, column 10: a string has no end"),
        ('root ::= x\nx ::= "a" )', "line 2, column 11: a ')' without its '('"),
        ('root ::= ("a"', "line 1, column 10: a group has no ')'"),
        ("root ::= [a", "line 1, column 10: a character class has no ']'"),
        ("root ::= []", f"{CLASS} is empty"),
        ("root ::= [b-a]", "line 1, column 11: a range of characters ends before it begins"),
        (
            "root ::= [^\\x00-\\U0010FFFF]",
            f"{CLASS} allows no character",
        ),
        ('root ::= "\\q"', "line 1, column 11: unknown escape \\q"),
        ('root ::= "\\ud83d"', "line 1, column 11: \\ud83d is no character"),
        ('root ::= "a"{3,2}', "line 1, column 13: the repetition {3,2} ends before it begins"),
        ('root ::= "a"{,}', "line 1, column 13: a repetition is {m}, {m,} or {m,n}"),
        ('root ::= "a"{99999999}', "line 1, column 13: a repetition has at most 65536 times"),
        ("root ::= * x", "line 1, column 10: '*' has nothing to repeat"),
        ("root ::= <think>", "line 1, column 10: tokens are not supported, only text"),
        ('root ::= "a" (= "b")', "line 1, column 15: look-ahead is not supported"),
        ("root ::= a\n\nb ::= c", "line 1, column 10: the rule 'a' is not defined"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: the rule 'root' is defined twice"),
        ('a ::= "a"', "the grammar has no rule 'root'"),
        ("", "the grammar has no rule 'root'"),
        ("start: foo", "line 1, column 1: a rule was expected: name ::= ..."),
        ("root ::= " + "(" * 40, "line 1, column 43: groups are nested at most 32 deep"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        parse_gbnf(text)
    assert caught.value.reason == complaint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('root ::= "a" root', "the rule 'root' has no finite text"),
        ('root ::= "a" | x\nx ::= x "b" | "c" y\ny ::= x', "the rule 'x' has no finite text"),
        ('root ::= ""', "the grammar allows only the empty text"),
        ("root ::= x*\nx ::= |", "the grammar allows only the empty text"),
    ],
)
def test_grammars_without_a_finite_text_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        checked(parse_gbnf(text))
    assert caught.value.reason.startswith(complaint)


def test_an_unused_rule_may_be_endless() -> None:
    assert list(checked(parse_gbnf('root ::= "a"\nx ::= x'))) == ["root"]


@pytest.mark.parametrize(
    ("body", "rewritten"),
    [
        ('"a" root | "b"', '"a"* "b"'),
        ('root "a" | "b"', '"b" "a"*'),
        ('"a" root "c" | "b" root | root | "d"', '"b"* ("a" root "c" | "d")'),
    ],
)
def test_recursion_at_an_end_becomes_a_repetition(body: str, rewritten: str) -> None:
    assert checked(parse_gbnf(f"root ::= {body}"))["root"] == root(rewritten)


def test_a_long_chain_of_rules_is_no_deep_recursion() -> None:
    rules = "\n".join(f'r{i} ::= "a" r{i + 1} | "b"' for i in range(5000))
    parsed = checked(parse_gbnf(f'root ::= r0\n{rules}\nr5000 ::= "c"'))
    assert len(parsed) == 5002
