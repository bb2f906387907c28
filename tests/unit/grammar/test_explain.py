"""What is said of a schema, from a real child, and how it looks."""

import json
from typing import Any

import pytest

from grammar import explain as explain_module
from grammar.bench import BenchOptions
from grammar.bench_child import ChildDied, DeadlinePassed
from grammar.bench_frames import KeywordNote
from grammar.explain import Explanation, explain, explanation_table
from tests.small_vocabulary import small_vocabulary


def explained(schema: object, options: BenchOptions = BenchOptions()) -> Explanation:  # noqa: B008
    return explain(json.dumps(schema), small_vocabulary(), options)


def test_an_enforced_schema_names_its_engine_and_all_its_keywords() -> None:
    explanation = explained({"type": "string", "maxLength": 3, "title": "t"})
    assert (explanation.treatment, explanation.engine) == ("enforced", "llguidance")
    assert {note.keyword: note.treatment for note in explanation.notes} == {
        "type": "enforced",
        "maxLength": "enforced",
        "title": "annotation",
    }


def test_a_refused_schema_names_the_place_and_the_reason() -> None:
    explanation = explained({"properties": {"a": {"minimum": "x"}}})
    assert (explanation.treatment, explanation.engine) == ("refused", "")
    (note,) = explanation.notes
    assert (note.pointer, note.treatment) == ("/properties/a/minimum", "refused")
    assert "number" in note.reason


def test_text_that_is_no_json_is_refused() -> None:
    explanation = explain("{", small_vocabulary(), BenchOptions())
    assert explanation.treatment == "refused"
    assert "not valid JSON" in explanation.notes[0].reason


class LostChild:
    """A child that never answers a job."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def compile(self, *_: object, **__: Any) -> None:
        raise self._error

    def kill(self) -> None: ...


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DeadlinePassed("more than 2 s"), "too complex: it takes more than 2 s to compile"),
        (ChildDied("killed by signal 11"), "the engine crashed: killed by signal 11"),
    ],
)
def test_a_lost_child_is_a_refusal(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain_module, "BenchChild", lambda *_, **__: LostChild(error))
    explanation = explained({})
    assert (explanation.treatment, explanation.notes[0].reason) == ("refused", reason)


def test_the_table_is_aligned_and_has_a_line_a_keyword() -> None:
    notes = (
        KeywordNote("/type", "type", "enforced"),
        KeywordNote("", "", "refused", "why"),
    )
    assert explanation_table(Explanation("refused", "", notes)).splitlines() == [
        "class: refused",
        "pointer  keyword  treatment  reason",
        "/type    type     enforced",
        '""                refused    why',
    ]
