"""The cases mean what they say, by a validator that is not ours."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for

from grammar.keyword_cases import CASES, KeywordCase
from grammar.keywords import CONSTRAINTS

# Keywords of drafts before the ones that are understood.
OLD = {"disallow", "divisibleBy", "extends"}
# What validators in Python read otherwise: re has no \\p, and everything with an @ is an address.
DISPUTED = {"pattern of Unicode letters", "format email"}


def is_valid(case: KeywordCase, value: Any) -> bool:
    kind = validator_for(case.schema, Draft202012Validator)
    validator = kind(case.schema, format_checker=kind.FORMAT_CHECKER)
    try:
        validator.validate(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_instances_are_what_they_are_said_to_be(case: KeywordCase) -> None:
    if case.name in DISPUTED:
        pytest.skip("validators disagree")
    assert [value for value in case.valid if not is_valid(case, value)] == []
    assert [value for value in case.invalid if is_valid(case, value)] == []


def test_every_keyword_has_a_case() -> None:
    named = {case.keyword for case in CASES} | {"then", "else"}
    assert CONSTRAINTS - named == OLD


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) > 80
