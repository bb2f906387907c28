"""Refuses malformed schemas before any of them is given a meaning: all that the root reaches
through keywords and references, also where it would turn out that they do not matter."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from grammar.errors import UnsupportedPattern
from grammar.keyword_values import CHECKS, refused
from grammar.keywords import CONTAINERS
from grammar.schema.dialect import Dialect
from grammar.schema.locations import Locations
from grammar.schema.pattern_syntax import parse_parts
from grammar.schema.subschemas import inner_schemas
from grammar.schema_document import Json, child

Schema = dict[str, Any]


class _Found(NamedTuple):
    """What should be a schema, and the keyword that says so."""

    pointer: str
    schema: Json
    keyword: str


def check_schemas(document: Json, locations: Locations, dialect: Dialect) -> None:
    """Raises: UnsupportedConstraint at the first keyword whose value is none of those that it can
    have, outer schemas before inner ones."""
    waiting = [_Found("", document, "")]
    seen: set[str] = set()
    while waiting:
        found = waiting.pop()
        if found.pointer in seen or isinstance(found.schema, bool):
            continue
        seen.add(found.pointer)
        if not isinstance(found.schema, dict):
            raise refused("a schema is an object or a boolean", found.pointer, found.keyword)
        inner = list(_checked(found.schema, found.pointer, locations, dialect=dialect))
        waiting += reversed(inner)


def _checked(
    schema: Schema, pointer: str, locations: Locations, *, dialect: Dialect
) -> Iterator[_Found]:
    """Checks the keywords of one schema; the schemas to be checked next."""
    for keyword in dialect.keywords_of(schema):
        value, place = schema[keyword], child(pointer, keyword)
        if keyword in CHECKS:
            CHECKS[keyword](value, place, keyword)
        _check_in_dialect(schema, pointer, keyword, dialect=dialect)
        if keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = locations.resolve(keyword, value, pointer)
            if target is not None:
                yield _Found(target, locations.schema_at(target), keyword)
        if keyword not in CONTAINERS:
            for steps, inner in inner_schemas(keyword, value):
                yield _Found(child(place, *steps), inner, keyword)


def _check_in_dialect(schema: Schema, pointer: str, keyword: str, *, dialect: Dialect) -> None:
    """Patterns, and what the drafts write differently."""
    value, place = schema[keyword], child(pointer, keyword)
    match keyword:
        case "pattern":
            _check_pattern(value, place, keyword)
        case "patternProperties":
            for pattern in value:
                _check_pattern(pattern, child(place, pattern), keyword)
        case "exclusiveMinimum" | "exclusiveMaximum" if isinstance(value, bool):
            _check_exclusive(schema, place, keyword, dialect=dialect)
        case "items" if isinstance(value, list) and not dialect.knows("additionalItems"):
            raise refused("in 2020-12 a tuple is prefixItems", place, keyword)
        case "items" if isinstance(value, list) and "prefixItems" in schema:
            if dialect.knows("prefixItems"):
                raise refused("a tuple is items or prefixItems, not both", place, keyword)


def _check_pattern(pattern: str, place: str, keyword: str) -> None:
    try:
        parse_parts(pattern, "narrow")
    except UnsupportedPattern as error:
        raise refused(error.reason, place, keyword) from error


def _check_exclusive(schema: Schema, place: str, keyword: str, *, dialect: Dialect) -> None:
    """A boolean, as draft 4 has it beside the bound that it speaks of."""
    if dialect.is_declared and dialect.draft > 4:
        raise refused(f"{keyword!r} is a number", place, keyword)
    plain = keyword.replace("exclusiveM", "m")
    if schema[keyword] and plain not in schema:
        raise refused(f"{keyword!r} needs {plain!r}", place, keyword)
