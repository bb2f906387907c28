"""Constraints as data: what tells them apart, and which notation a grammar is in."""

import msgspec
import pytest

from grammar.spec import ConstraintSpec, PreparedConstraint, Reasoning, grammar_kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('root ::= "a"', "gbnf"),
        ('# a comment\n  root-2\n ::= "a"', "gbnf"),
        ('start: "a"', "lark"),
        ('start: name "::=" name\nname: /[a-z]+/', "lark"),
        ("", "lark"),
    ],
)
def test_the_notation_of_a_grammar_is_seen_from_its_rules(text: str, kind: str) -> None:
    assert grammar_kind(text) == kind


@pytest.mark.parametrize(
    "change",
    [
        {"value": "b"},
        {"kind": "gbnf"},
        {"engine": "xgrammar"},
        {"allows_checked": True},
        {"allows_whitespace": True},
    ],
)
def test_constraints_that_differ_have_different_keys(change: dict[str, object]) -> None:
    spec = ConstraintSpec("regex", "a")
    assert msgspec.structs.replace(spec, **change).key() != spec.key()


@pytest.mark.parametrize(
    "change",
    [
        {"grammar": "b"},
        {"form": "lark"},
        {"engine": "outlines"},
        {"reasoning": Reasoning(end_ids=(1,))},
    ],
)
def test_grammars_that_differ_have_different_keys(change: dict[str, object]) -> None:
    prepared = PreparedConstraint("llguidance", "regex", "a")
    assert msgspec.structs.replace(prepared, **change).key() != prepared.key()
