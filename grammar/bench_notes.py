"""What becomes of each keyword of a schema, for `radixgate grammar explain`."""

import json
from collections.abc import Iterator
from typing import Any

from grammar.bench_frames import Compiled, KeywordNote
from grammar.keywords import ANNOTATIONS, CONSTRAINTS, CONTAINERS
from grammar.schema.dialect import Dialect, dialect_of
from grammar.schema.formats import ASSERTED_FORMATS
from grammar.schema.subschemas import inner_schemas
from grammar.schema_document import Json, child

PARTNERS = {
    "then": "if", "else": "if", "minContains": "contains", "maxContains": "contains",
    "additionalItems": "items",
}  # fmt: skip


def keyword_notes(schema: str, compiled: Compiled) -> tuple[KeywordNote, ...]:
    """One note a keyword, in the schema's order; of a refused schema only the one to blame."""
    if compiled.treatment == "refused":
        keyword = compiled.keyword or ""
        return (KeywordNote(compiled.pointer, keyword, "refused", compiled.reason),)
    document = json.loads(schema)
    dialect = dialect_of(document)
    gaps = {gap.pointer: gap for gap in compiled.gaps}
    notes = []
    for pointer, keyword, schema_object in keywords_of(document):
        gap = gaps.pop(pointer, None)
        why = _why_no_constraint(keyword, schema_object, dialect)
        if gap is not None:
            notes.append(KeywordNote(pointer, keyword, "checked", gap.reason))
        elif why is not None:
            notes.append(KeywordNote(pointer, keyword, "annotation", why))
        else:
            notes.append(KeywordNote(pointer, keyword, "enforced"))
    notes += [KeywordNote(gap.pointer, gap.keyword, "checked", gap.reason) for gap in gaps.values()]
    return tuple(notes)


def keywords_of(document: Json) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Pointer and name of each keyword in the document, subschemas included, and the schema that
    it stands in."""
    waiting: list[tuple[str, Json]] = [("", document)]
    while waiting:
        pointer, schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        inner: list[tuple[str, Json]] = []
        for keyword, value in schema.items():
            place = child(pointer, keyword)
            yield place, keyword, schema
            inner += [(child(place, *steps), one) for steps, one in inner_schemas(keyword, value)]
        waiting += reversed(inner)


def _why_no_constraint(keyword: str, schema: dict[str, Any], dialect: Dialect) -> str | None:
    """Why the keyword allows every value, where it does."""
    if keyword in CONTAINERS:
        return "it holds schemas for $ref"
    if keyword in ANNOTATIONS:
        return "it describes"
    if keyword not in CONSTRAINTS:
        return "JSON Schema has no such keyword"
    if "$ref" in schema and keyword != "$ref" and dialect.ref_hides_siblings:
        return f"draft {dialect.draft} does not look at what stands beside $ref"
    if not dialect.knows(keyword):
        return f"draft {dialect.draft} has no such keyword"
    if keyword == "format" and schema[keyword] not in ASSERTED_FORMATS:
        return "this format is not asserted"
    partner = PARTNERS.get(keyword)
    if partner is not None and partner not in schema:
        return f"it has no meaning without {partner!r}"
    return None
