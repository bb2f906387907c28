"""The static check before an engine sees a schema: enforceable as a whole, or refused.

The result is not the client's text but a schema rebuilt from the keywords that were checked, in
the client's order, so that nothing unchecked ("x-guidance", a misspelling, another draft's
keyword) can reach an engine: annotations are dropped, referenced schemas are collected under
`$defs`, tuples and exclusive bounds take their 2020-12 form. Each rewriting leaves the set of
valid outputs as it is or makes it smaller, never larger.
"""

import json
from collections.abc import Callable
from typing import Any, Literal

from grammar import keyword_values as values
from grammar.disjoint import are_disjoint
from grammar.errors import UnsupportedConstraint
from grammar.keywords import (
    ANNOTATIONS,
    CONTAINERS,
    DRAFTS,
    ENFORCED,
    UNENFORCED,
    draft_uri,
    misspelled,
)
from grammar.references import References
from grammar.satisfiable import require_base_case
from grammar.schema_document import Json, child, parse_schema

MAX_DEPTH = 64
MAX_SCHEMAS = 20_000

Schema = dict[str, Any]
SchemaEngine = Literal["llguidance", "xgrammar"]  # those that read JSON Schema themselves
Rules = Callable[[Schema, str], Schema]


def check_schema(text: str, engine: SchemaEngine) -> str:
    """The schema's text in the form that `engine` enforces wholly.

    Raises: UnsupportedConstraint with the JSON Pointer of the first keyword that it does not
    enforce, or that is malformed.
    """
    document = parse_schema(text)
    checker = SchemaChecker(document, _rules_of(engine))
    try:
        checked = checker.check()
        require_base_case(checked)
    except RecursionError as error:
        raise UnsupportedConstraint("the schema is nested too deeply") from error
    return json.dumps(checked, ensure_ascii=False, separators=(",", ":"))


def _rules_of(engine: SchemaEngine) -> Rules:
    from grammar.llguidance_rules import llguidance_rules
    from grammar.xgrammar_rules import xgrammar_rules

    return {"llguidance": llguidance_rules, "xgrammar": xgrammar_rules}[engine]


class SchemaChecker:
    """One walk over one document. `rules` is the engine's part: it gets each schema after its
    keywords were checked one by one, and refuses the combinations that the engine gets wrong."""

    def __init__(self, document: Json, rules: Rules) -> None:
        self._document = document
        self._rules = rules
        self._draft = _draft_of(document)
        self._references = References(document)
        self._num_schemas = 0

    def check(self) -> Schema:
        """The rebuilt schema, referenced schemas under `$defs`."""
        if self._document is False:
            raise UnsupportedConstraint("the schema false allows no output")
        root = self._schema(self._document, "", depth=0)
        checked = {} if root is True else root
        definitions: Schema = {}
        while (target := self._references.next_pending()) is not None:
            definitions[target.name] = self._schema(target.schema, target.pointer, depth=0)
        if definitions:
            checked["$defs"] = definitions
        return checked

    def _schema(self, schema: Json, pointer: str, *, depth: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise UnsupportedConstraint("a schema is an object or a boolean", pointer=pointer)
        self._count(pointer, depth)
        rebuilt: Schema = {}
        for keyword, value in schema.items():
            place = child(pointer, keyword)
            if self._is_annotation(keyword, value, place):
                continue
            rebuilt[keyword] = self._value(keyword, value, place, depth=depth)
        rebuilt = self._settle_one_of(schema, rebuilt)
        rebuilt = values.settle_arrays(rebuilt, pointer, draft=self._draft)
        rebuilt = values.settle_bounds(rebuilt, pointer, draft=self._draft)
        return self._rules(rebuilt, pointer)

    def _count(self, pointer: str, depth: int) -> None:
        self._num_schemas += 1
        if self._num_schemas > MAX_SCHEMAS:
            raise UnsupportedConstraint(
                f"a schema has at most {MAX_SCHEMAS} subschemas", pointer=pointer
            )
        if depth > MAX_DEPTH:
            raise UnsupportedConstraint(
                f"subschemas are nested at most {MAX_DEPTH} deep", pointer=pointer
            )

    def _is_annotation(self, keyword: str, value: Json, place: str) -> bool:
        if keyword in ENFORCED:
            return False
        if keyword in ANNOTATIONS or (keyword == "uniqueItems" and value is False):
            return True
        if keyword in CONTAINERS:
            values.require_object(value, place, keyword)
            return True
        if keyword in UNENFORCED:
            raise UnsupportedConstraint(
                f"the keyword {keyword!r} cannot be enforced", pointer=place, keyword=keyword
            )
        if (meant := misspelled(keyword)) is not None:
            raise UnsupportedConstraint(
                f"unknown keyword {keyword!r}: is {meant!r} meant?", pointer=place, keyword=keyword
            )
        return True

    def _value(self, keyword: str, value: Json, place: str, *, depth: int) -> Any:
        """The keyword's value after its own check, subschemas rebuilt."""
        if keyword == "$ref":
            return self._references.name_of(value, place)
        if keyword in ("properties", "patternProperties"):
            values.require_object(value, place, keyword)
            return {
                key: self._schema(schema, child(place, key), depth=depth + 1)
                for key, schema in value.items()
            }
        if keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
            return self._schemas(keyword, value, place, depth=depth)
        if keyword == "items" and isinstance(value, list):
            return self._schemas(keyword, value, place, depth=depth)
        if keyword in ("items", "additionalItems", "additionalProperties"):
            return self._schema(value, place, depth=depth + 1)
        return values.CHECKS[keyword](value, place, keyword)

    def _schemas(self, keyword: str, value: Json, place: str, *, depth: int) -> list[Any]:
        values.require_list(value, place, keyword)
        return [
            self._schema(schema, child(place, index), depth=depth + 1)
            for index, schema in enumerate(value)
        ]

    def _settle_one_of(self, schema: Schema, rebuilt: Schema) -> Schema:
        """oneOf whose branches exclude each other is anyOf."""
        branches = schema.get("oneOf")
        if branches is None or not are_disjoint(branches, self._references.resolve):
            return rebuilt
        settled = dict(rebuilt)
        settled.pop("oneOf")
        if "anyOf" not in settled:
            return {**settled, "anyOf": rebuilt["oneOf"]}
        return {**settled, "allOf": [*settled.get("allOf", ()), {"anyOf": rebuilt["oneOf"]}]}


def _draft_of(document: Json) -> int | None:
    """The draft that `$schema` names; None where it names none."""
    uri = document.get("$schema") if isinstance(document, dict) else None
    if uri is None:
        return None
    if not isinstance(uri, str) or draft_uri(uri) not in DRAFTS:
        raise UnsupportedConstraint(
            "unknown $schema: drafts 4 to 2020-12 are understood",
            pointer="/$schema",
            keyword="$schema",
        )
    return DRAFTS[draft_uri(uri)]
