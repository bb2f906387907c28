"""Which keywords a schema has, and what becomes of each."""

import json
from typing import Any

import pytest

from grammar.bench_frames import Compiled
from grammar.bench_notes import keyword_notes, keywords_of
from grammar.keyword_cases import DRAFT_7
from grammar.spec import Gap

SCHEMA = {
    "title": "t",
    "type": "array",
    "items": [{"format": "color"}, True],
    "contains": {"minimum": 3},
    "x-order": 1,
    "$defs": {"a/b": {"anyOf": [{"const": {"type": 1}}]}},
}


def test_keywords_are_found_in_every_subschema_and_in_no_literal() -> None:
    assert [pointer for pointer, _, _ in keywords_of(SCHEMA)] == [
        "/title",
        "/type",
        "/items",
        "/contains",
        "/x-order",
        "/$defs",
        "/items/0/format",
        "/contains/minimum",
        "/$defs/a~1b/anyOf",
        "/$defs/a~1b/anyOf/0/const",
    ]


def test_each_keyword_is_enforced_checked_or_an_annotation() -> None:
    compiled = Compiled("checked", 1.0, gaps=(Gap("/contains", "contains", "too wide"),))
    notes = keyword_notes(json.dumps(SCHEMA), compiled)
    treatments = {note.pointer: note.treatment for note in notes}
    assert treatments["/contains"] == "checked"
    annotations = {place for place, treatment in treatments.items() if treatment == "annotation"}
    assert annotations == {"/title", "/x-order", "/$defs", "/items/0/format"}
    assert treatments["/contains/minimum"] == "enforced"


@pytest.mark.parametrize(
    ("schema", "pointer", "reason"),
    [
        ({"$schema": DRAFT_7, "$ref": "#/definitions/a", "minLength": 2}, "/minLength", "beside"),
        ({"$schema": DRAFT_7, "dependentRequired": {}}, "/dependentRequired", "draft 7 has no"),
        ({"$schema": DRAFT_7, "properties": {"$ref": {"minLength": 1}}}, None, ""),
        ({"then": {"minLength": 2}}, "/then", "without 'if'"),
        ({"if": {}, "then": {"minLength": 2}}, None, ""),
        ({"format": "color"}, "/format", "not asserted"),
        ({"format": "uuid"}, None, ""),
    ],
)
def test_a_keyword_without_meaning_here_is_an_annotation(
    schema: dict[str, Any], pointer: str | None, reason: str
) -> None:
    notes = keyword_notes(json.dumps(schema), Compiled("enforced", 1.0))
    silent = {n.pointer: n.reason for n in notes if n.treatment == "annotation"}
    silent.pop("/$schema", None)
    assert list(silent) == ([pointer] if pointer else [])
    assert all(reason in text for text in silent.values())


def test_a_gap_that_is_at_no_keyword_is_shown_as_well() -> None:
    gap = Gap("/allOf/0", "allOf", "too many combinations")
    notes = keyword_notes('{"type":"null"}', Compiled("checked", 1.0, gaps=(gap,)))
    assert [(note.pointer, note.treatment) for note in notes] == [
        ("/type", "enforced"),
        ("/allOf/0", "checked"),
    ]


def test_a_refusal_names_only_the_keyword_to_blame() -> None:
    compiled = Compiled("refused", 1.0, reason="no", pointer="/a/not", keyword="not")
    (note,) = keyword_notes("{}", compiled)
    assert (note.pointer, note.keyword, note.treatment, note.reason) == (
        "/a/not",
        "not",
        "refused",
        "no",
    )


def test_the_schemas_true_and_false_have_no_keywords() -> None:
    assert keyword_notes("true", Compiled("enforced", 1.0)) == ()
