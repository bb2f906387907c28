"""What becomes of each keyword of a schema, for `radixgate grammar explain`."""

import json
from collections.abc import Iterator
from typing import Any

from grammar.bench_frames import Compiled, KeywordNote
from grammar.keywords import ANNOTATIONS, ASSERTED_FORMATS, CONTAINERS, ENFORCED, UNENFORCED
from grammar.schema_document import Json, child

SCHEMA = ("not if then else items additionalItems additionalProperties contains propertyNames "
          "unevaluatedItems unevaluatedProperties").split()  # fmt: skip
SCHEMA_LIST = "allOf anyOf oneOf prefixItems items".split()
SCHEMA_MAP = "properties patternProperties $defs definitions dependentSchemas dependencies".split()


def keyword_notes(schema: str, compiled: Compiled) -> tuple[KeywordNote, ...]:
    """One note a keyword, in the schema's order; of a refused schema only the one to blame."""
    if compiled.treatment == "refused":
        keyword = compiled.keyword or ""
        return (KeywordNote(compiled.pointer, keyword, "refused", compiled.reason),)
    gaps = {gap.pointer: gap.reason for gap in compiled.gaps}
    return tuple(
        _note(pointer, keyword, value, gaps)
        for pointer, keyword, value in keywords_of(json.loads(schema))
    )


def keywords_of(document: Json) -> Iterator[tuple[str, str, Any]]:
    """Pointer, name and value of each keyword in the document, subschemas included."""
    waiting: list[tuple[str, Json]] = [("", document)]
    while waiting:
        pointer, schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        inner: list[tuple[str, Json]] = []
        for keyword, value in schema.items():
            place = child(pointer, keyword)
            yield place, keyword, value
            if keyword in SCHEMA_MAP and isinstance(value, dict):
                inner += [(child(place, key), member) for key, member in value.items()]
            elif keyword in SCHEMA_LIST and isinstance(value, list):
                inner += [(child(place, index), member) for index, member in enumerate(value)]
            elif keyword in SCHEMA:
                inner.append((place, value))
        waiting += reversed(inner)


def _note(pointer: str, keyword: str, value: Json, gaps: dict[str, str]) -> KeywordNote:
    if pointer in gaps:
        return KeywordNote(pointer, keyword, "checked", gaps[pointer])
    if keyword in CONTAINERS:
        return KeywordNote(pointer, keyword, "annotation", "it holds schemas for $ref")
    if keyword == "format" and value not in ASSERTED_FORMATS:
        return KeywordNote(pointer, keyword, "annotation", "this format is not asserted")
    if keyword in ANNOTATIONS:
        return KeywordNote(pointer, keyword, "annotation", "it describes")
    if keyword not in ENFORCED | UNENFORCED:
        return KeywordNote(pointer, keyword, "annotation", "JSON Schema has no such keyword")
    return KeywordNote(pointer, keyword, "enforced")
