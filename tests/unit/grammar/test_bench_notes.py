"""Which keywords a schema has, and what becomes of each."""

import json

from grammar.bench_frames import Compiled
from grammar.bench_notes import keyword_notes, keywords_of
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
