"""How an instance is written so that a mask can accept it: compact, keys in the schema's order.

Order is the only freedom that masks take from a valid instance; a bench that ignored it would
measure the order of keys in its file.
"""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from grammar.schema.compiler import compile_schema
from grammar.schema_document import Json, steps_of
from grammar.spec import PreparedConstraint

Schema = dict[str, Any]

# Whole numbers up to here have the same digits as a double and as an integer.
MAX_EXACT = 2**53
# Places that hold further schemas for the same value.
ALTERNATIVES = ("allOf", "anyOf", "oneOf")
BRANCHES = ("then", "else", "if")


class Untestable(Exception):
    """The instance has no JSON text that a model could write."""


def instance_value(text: str) -> Json:
    """The instance's value. Raises: Untestable for numbers beyond doubles and lone surrogates."""
    try:
        value = json.loads(text, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Untestable("it has a lone surrogate") from error
    except RecursionError as error:
        raise Untestable("it is nested too deeply") from error
    except ValueError as error:  # also of integers with thousands of digits
        raise Untestable("it has a number beyond double precision") from error
    return value


def speller(schema: str, prepared: PreparedConstraint) -> Callable[[Json], list[str]]:
    """Gives the texts of a value among which the grammar has its choice, the likeliest first."""
    if prepared.form == "json_schema":  # read by the engine's own library
        order = DeclaredOrder(json.loads(schema))
        return lambda value: [order.text(value)]
    return compile_schema(schema).spellings


class DeclaredOrder:
    """Writes values with keys in the order in which the schema names them."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def text(self, value: Json) -> str:
        """The value as compact JSON; keys that the schema does not name come last, as they are."""
        ordered = self._ordered(value, [self._document])
        return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))

    def _ordered(self, value: Json, schemas: list[Json]) -> Json:
        if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_EXACT:
            return int(value)
        if isinstance(value, list):
            members = list(self._members(schemas, ("items", "additionalItems", "contains")))
            return [
                self._ordered(item, [*self._tuple_members(schemas, index), *members])
                for index, item in enumerate(value)
            ]
        if not isinstance(value, dict):
            return value
        declared: dict[str, list[Json]] = {}
        for schema in self._expanded(schemas):
            for key, inner in _object(schema.get("properties")).items():
                declared.setdefault(key, []).append(inner)
        others = list(self._members(schemas, ("additionalProperties",)))
        keys = [key for key in declared if key in value]
        keys += [key for key in value if key not in declared]
        return {key: self._ordered(value[key], declared.get(key, others)) for key in keys}

    def _members(self, schemas: list[Json], keywords: tuple[str, ...]) -> Iterator[Json]:
        for schema in self._expanded(schemas):
            yield from (schema[keyword] for keyword in keywords if keyword in schema)

    def _tuple_members(self, schemas: list[Json], index: int) -> Iterator[Json]:
        for schema in self._expanded(schemas):
            for keyword in ("prefixItems", "items"):
                members = schema.get(keyword)
                if isinstance(members, list) and index < len(members):
                    yield members[index]

    def _expanded(self, schemas: list[Json]) -> Iterator[Schema]:
        """All schemas that apply to the same value, through references and combinations."""
        seen: set[int] = set()
        waiting = list(reversed(schemas))
        while waiting:
            schema = waiting.pop()
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen.add(id(schema))
            yield schema
            further = [self._target(schema.get("$ref"))]
            further += [branch for name in ALTERNATIVES for branch in _array(schema.get(name))]
            further += [schema.get(name) for name in BRANCHES]
            waiting += reversed(further)

    def _target(self, reference: Json) -> Json:
        """What a local JSON Pointer names; None for every other reference."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        place = self._document
        for step in steps_of(reference[1:]):
            if isinstance(place, list) and step.isdecimal() and int(step) < len(place):
                place = place[int(step)]
            elif isinstance(place, dict) and step in place:
                place = place[step]
            else:
                return None
        return place


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _array(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
