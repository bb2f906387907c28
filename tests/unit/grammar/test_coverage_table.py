"""The table of what engines enforce is what they do today, and no cell of it says "unsound"."""

import pytest

from grammar import coverage_table
from grammar.coverage_table import CoverageTable, byte_vocabulary, document_with, measured, stored
from grammar.keyword_cases import CASES, KeywordCase
from grammar.token_bytes import token_bytes


@pytest.mark.timeout(60)  # 3 s where nothing else runs, much of it the import of xgrammar
def test_the_stored_table_is_what_a_run_finds() -> None:
    found = measured()
    assert found.versions == stored().versions, "run: python -m grammar.coverage_table"
    differences = {
        name: (row, stored().rows.get(name))
        for name, row in found.rows.items()
        if row != stored().rows.get(name)
    }
    assert differences == {}, "run: python -m grammar.coverage_table"
    assert list(found.rows) == list(stored().rows)


def test_the_document_shows_the_stored_table() -> None:
    text = coverage_table.DOCUMENT.read_text(encoding="utf-8")
    assert document_with(stored(), text) == text


def test_no_engine_accepts_what_the_schema_forbids() -> None:
    unsound = [name for name, row in stored().rows.items() if "unsound" in row.values()]
    assert unsound == []


def test_a_schema_without_instances_is_refused_by_every_engine() -> None:
    impossible = [case.name for case in CASES if not case.valid and not case.invalid]
    assert len(impossible) > 5
    for name in impossible:
        assert set(stored().rows[name].values()) == {"refused"}


def test_the_main_engine_enforces_or_checks_nearly_everything_and_exactly() -> None:
    found = [row["llguidance"] for row in stored().rows.values()]
    assert "narrowed" not in found
    assert found.count("enforced") > 0.85 * len(found)


def test_a_case_is_judged_by_what_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (
        KeywordCase("a", {"type": "null"}, (None,), (1,)),
        KeywordCase("b", {"type": "null"}, (None, 1)),
        KeywordCase("c", {"type": "null"}, (), (1, None)),
        KeywordCase("d", {"type": "null"}),
        KeywordCase("e", {"type": "array", "uniqueItems": True}, ([1, 2],), ([1, 1],)),
        KeywordCase("f", {"not": {}}),
    )
    monkeypatch.setattr(coverage_table, "CASES", cases)
    rows = measured(["llguidance"]).rows
    assert [row["llguidance"] for row in rows.values()] == [
        "enforced",
        "narrowed",
        "unsound",
        "unsound",
        "checked",
        "refused",
    ]


def test_an_engine_is_asked_for_a_keyword_by_its_worst_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = CoverageTable(
        {"llguidance": "1", "xgrammar": "2"},
        {
            "items": {"llguidance": "enforced", "xgrammar": "enforced"},
            "items, untyped": {"llguidance": "checked", "xgrammar": "refused"},
            "minItems": {"llguidance": "enforced", "xgrammar": "narrowed"},
        },
    )
    monkeypatch.setattr(coverage_table, "stored", lambda: table)
    assert coverage_table.of("llguidance", "items") == "checked"
    assert coverage_table.of("xgrammar", "items") == "refused"
    assert coverage_table.of("xgrammar", "minItems") == "narrowed"
    assert coverage_table.of("xgrammar", "none") is None


def test_the_table_reads_as_words() -> None:
    rows = {"items, untyped": {"llguidance": "enforced", "xgrammar": "refused"}}
    table = CoverageTable({"llguidance": "1.9", "xgrammar": "0.2"}, rows)  # type: ignore[arg-type]
    assert table.as_markdown().splitlines() == [
        "| keyword | llguidance 1.9 | xgrammar 0.2 |",
        "| --- | --- | --- |",
        "| `items`, untyped | yes | 400 |",
    ]


def test_the_vocabulary_has_every_byte_once() -> None:
    vocabulary = byte_vocabulary()
    tokens = token_bytes(vocabulary.tokenizer_json, vocabulary.vocab_size)
    assert tokens[:256] == [bytes([byte]) for byte in range(256)]
    assert tokens[256:] == [b""]
