"""Which keywords have a meaning in which draft."""

from typing import Any

import pytest

from grammar.errors import UnsupportedConstraint
from grammar.keywords import CONSTRAINTS
from grammar.schema.dialect import LIFETIMES, Dialect, dialect_of

DRAFT_4 = Dialect(4, is_declared=True)
DRAFT_7 = Dialect(7, is_declared=True)
DRAFT_2019 = Dialect(2019, is_declared=True)
DRAFT_2020 = Dialect(2020, is_declared=True)
UNDECLARED = Dialect(2020, is_declared=False)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("http://json-schema.org/draft-04/schema#", DRAFT_4),
        ("https://json-schema.org/draft-04/schema", DRAFT_4),
        ("http://json-schema.org/draft-07/schema", DRAFT_7),
        ("https://json-schema.org/draft/2019-09/schema#", DRAFT_2019),
        ("https://json-schema.org/draft/2020-12/schema", DRAFT_2020),
        ("http://json-schema.org/schema#", UNDECLARED),
    ],
)
def test_a_schema_is_of_the_draft_that_it_names(uri: str, expected: Dialect) -> None:
    assert dialect_of({"$schema": uri}) == expected


@pytest.mark.parametrize("document", [{}, True, {"properties": {"$schema": 3}}])
def test_a_schema_that_names_none_is_of_the_newest(document: Any) -> None:
    assert dialect_of(document) == UNDECLARED


@pytest.mark.parametrize("uri", [7, None, [], "http://json-schema.org/draft-05/schema", ""])
def test_an_unknown_draft_is_refused(uri: Any) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        dialect_of({"$schema": uri})
    assert caught.value.pointer == "/$schema"


@pytest.mark.parametrize(
    ("keyword", "dialects"),
    [
        ("type", {DRAFT_4, DRAFT_7, DRAFT_2019, DRAFT_2020}),
        ("const", {DRAFT_7, DRAFT_2019, DRAFT_2020}),
        ("if", {DRAFT_7, DRAFT_2019, DRAFT_2020}),
        ("dependencies", {DRAFT_4, DRAFT_7}),
        ("additionalItems", {DRAFT_4, DRAFT_7, DRAFT_2019}),
        ("dependentRequired", {DRAFT_2019, DRAFT_2020}),
        ("unevaluatedItems", {DRAFT_2019, DRAFT_2020}),
        ("prefixItems", {DRAFT_2020}),
        ("$recursiveRef", {DRAFT_2019}),
        ("$dynamicRef", {DRAFT_2020}),
    ],
)
def test_a_keyword_has_a_meaning_in_its_drafts_only(keyword: str, dialects: set[Dialect]) -> None:
    declared = (DRAFT_4, DRAFT_7, DRAFT_2019, DRAFT_2020)
    assert {dialect for dialect in declared if dialect.knows(keyword)} == dialects


def test_an_undeclared_schema_may_use_every_keyword() -> None:
    assert all(UNDECLARED.knows(keyword) for keyword in LIFETIMES)
    assert set(LIFETIMES) <= CONSTRAINTS


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (DRAFT_4, ["$ref"]),
        (DRAFT_7, ["$ref"]),
        (DRAFT_2019, ["$id", "type", "$ref", "unevaluatedItems"]),
        (UNDECLARED, ["$id", "type", "$ref", "prefixItems", "unevaluatedItems"]),
    ],
)
def test_up_to_draft_7_nothing_counts_beside_a_reference(
    dialect: Dialect, expected: list[str]
) -> None:
    names = ["id", "$id", "type", "$ref", "prefixItems", "unevaluatedItems"]
    assert list(dialect.keywords_of(dict.fromkeys(names))) == expected


def test_draft_4_has_identifiers_without_a_dollar_sign() -> None:
    schema = {"$id": "a", "id": "b", "const": 1, "enum": [1]}
    assert list(DRAFT_4.keywords_of(schema)) == ["id", "enum"]
    assert (DRAFT_4.id_keyword, DRAFT_7.id_keyword) == ("id", "$id")
