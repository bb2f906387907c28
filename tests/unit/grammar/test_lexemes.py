"""Where a grammar may be cut into lexemes that a greedy lexer reads rightly."""

import re

import pytest

from grammar.gbnf_lark import gbnf_to_lark


def terminals(grammar: str) -> list[str]:
    """The regexes of the lexemes, in the order in which they are needed."""
    return re.findall(r"^T\d+: /(.*)/$", gbnf_to_lark(grammar), re.MULTILINE)


def test_a_grammar_without_recursion_is_one_lexeme() -> None:
    assert terminals('root ::= "a" x | [0-9]+\nx ::= "b"?') == ["ab?|[0-9]+"]


def test_recursion_at_the_end_only_leaves_one_lexeme() -> None:
    assert terminals('root ::= "a" root | "b"') == ["a*b"]


def test_a_string_between_quotes_stays_whole_inside_recursion() -> None:
    grammar = 'root ::= "[" (item ("," item)*)? "]"\nitem ::= root | "<" [a-z]* ">"'
    assert sorted(terminals(grammar)) == [",", "<[a-z]*>", r"\x{5b}", r"\x{5d}"]


def test_a_run_that_its_follower_could_prolong_is_cut() -> None:
    grammar = 'root ::= "(" root ")" | [a-z]+ root? "z"'
    assert sorted(terminals(grammar)) == ["[a-z]", r"\x{28}", r"\x{29}", "z"]


@pytest.mark.parametrize(("follower", "lexeme"), [("b", "é+"), ("è", "é")])
def test_a_run_is_cut_where_the_next_character_begins_with_its_byte(
    follower: str, lexeme: str
) -> None:
    """é and è are C3 A9 and C3 A8: at C3 the lexer would already have gone on."""
    assert lexeme in terminals(f'root ::= "(" root "{follower}" | "é"+')


@pytest.mark.parametrize(("other", "is_cut"), [("", False), ('| "into"', True)])
def test_a_word_is_cut_where_a_longer_one_may_stand_in_its_place(other: str, is_cut: bool) -> None:
    """`to` may follow `in`, which is then not `into`."""
    found = terminals(f'root ::= "(" root ("to" root | ")") | "in" {other}')
    assert ("in" not in found) == is_cut


def test_words_of_different_places_do_not_hinder_each_other() -> None:
    found = terminals('root ::= "(" "in" x "to" root ")" | "."\nx ::= "[" x "into" | "!"')
    assert any("into" in lexeme for lexeme in found)
    assert r"\x{28}in" in found


def test_a_grammar_of_very_many_lexemes_is_cut_into_characters() -> None:
    """Comparing them all would take too long; characters are always right."""
    words = " | ".join(f'"({number}" root "{number})"' for number in range(400))
    assert all(
        len(lexeme) == 1 or lexeme[0] == "\\" for lexeme in terminals(f'root ::= {words} | "."')
    )
