"""The static check before xgrammar sees a schema: enforceable as a whole, or refused.

The result is not the client's text but a schema rebuilt from the keywords that were checked, in
the client's order, so that nothing unchecked ("x-guidance", another draft's keyword) can reach the
engine: annotations are dropped, referenced schemas are collected under `$defs`, tuples and
exclusive bounds take their 2020-12 form. Each rewriting leaves the set of valid outputs as it is
or makes it smaller, never larger. llguidance gets a grammar instead (grammar.schema).
"""

import json
from typing import Any

from grammar import keyword_values as values
from grammar.disjoint import are_disjoint
from grammar.errors import UnsupportedConstraint
from grammar.keyword_values import refused
from grammar.keywords import BASIC, CONSTRAINTS, CONTAINERS
from grammar.references import References
from grammar.satisfiable import require_base_case
from grammar.schema.dialect import Dialect, dialect_of
from grammar.schema_document import Json, child, parse_schema
from grammar.xgrammar_rules import xgrammar_rules

MAX_DEPTH = 64
MAX_SCHEMAS = 20_000

Schema = dict[str, Any]


def check_schema(text: str) -> str:
    """The schema's text in the form that xgrammar enforces wholly.

    Raises: UnsupportedConstraint with the JSON Pointer of the first keyword that xgrammar does not
    enforce, or that is malformed.
    """
    document = parse_schema(text)
    try:
        checked = _SchemaChecker(document).check()
        require_base_case(checked)
    except RecursionError as error:
        raise UnsupportedConstraint("the schema is nested too deeply") from error
    return json.dumps(checked, ensure_ascii=False, separators=(",", ":"))


class _SchemaChecker:
    """One walk over one document: keyword by keyword, then schema by schema."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._dialect = dialect_of(document)
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
            if not self._is_annotation(keyword, value, place):
                rebuilt[keyword] = self._value(keyword, value, place, depth=depth)
        rebuilt = self._settle_one_of(schema, rebuilt)
        rebuilt = _settle_arrays(rebuilt, pointer, self._dialect)
        return xgrammar_rules(_settle_bounds(rebuilt, pointer, self._dialect), pointer)

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
        if keyword in BASIC:
            return False
        if keyword in CONTAINERS:
            values.require_object(value, place, keyword)
        is_silent = keyword == "uniqueItems" and value is False
        if keyword in CONSTRAINTS and not is_silent:
            raise refused(f"xgrammar does not enforce {keyword!r}", place, keyword)
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
        if "oneOf" not in rebuilt or "anyOf" in rebuilt:
            return rebuilt
        if not are_disjoint(schema["oneOf"], self._references.resolve):
            return rebuilt
        return {("anyOf" if key == "oneOf" else key): value for key, value in rebuilt.items()}


def _settle_arrays(schema: Schema, pointer: str, dialect: Dialect) -> Schema:
    """Tuples of older drafts (`items` as an array) become `prefixItems`."""
    is_tuple = isinstance(schema.get("items"), list)
    if "prefixItems" in schema and (is_tuple or not dialect.knows("prefixItems")):
        place = child(pointer, "prefixItems")
        raise refused("prefixItems is a keyword of 2020-12", place, "prefixItems")
    if is_tuple and not dialect.knows("additionalItems"):
        raise refused("in 2020-12 a tuple is prefixItems", child(pointer, "items"), "items")
    settled: Schema = {}
    for keyword, value in schema.items():
        if keyword == "additionalItems":
            if is_tuple:
                settled["items"] = value
        elif keyword == "items" and is_tuple:
            settled["prefixItems"] = value
        else:
            settled[keyword] = value
    return settled


def _settle_bounds(schema: Schema, pointer: str, dialect: Dialect) -> Schema:
    """Draft 4's boolean exclusive bounds become numbers."""
    settled = dict(schema)
    for exclusive, inclusive in (
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ):
        is_exclusive = settled.get(exclusive)
        if not isinstance(is_exclusive, bool):
            continue
        place = child(pointer, exclusive)
        if dialect.is_declared and dialect.draft > 4:
            raise refused(f"{exclusive!r} is a number", place, exclusive)
        del settled[exclusive]
        if is_exclusive:
            if inclusive not in settled:
                raise refused(f"{exclusive!r} needs {inclusive!r}", place, exclusive)
            settled[exclusive] = settled.pop(inclusive)
    return settled
