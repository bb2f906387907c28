"""What llguidance 1.9 enforces of a schema whose keywords were checked one by one.

It refuses by itself what it does not know, so few combinations need a rule: those in which its
arithmetic rounds, and those in which a repeated key would count twice.
"""

import re
from decimal import Decimal
from typing import Any

from grammar.ecma_regex import rust_pattern
from grammar.keyword_values import refused
from grammar.keywords import ASSERTED_FORMATS
from grammar.number_bounds import tighten_bounds
from grammar.schema_document import Json, child

Schema = dict[str, Any]

# What it allows beyond the calendar: a 60th second in every minute, the year 0, 29 February.
YEAR = "^(?:[1-9]|0[1-9]|00[1-9]|000[1-9])"
LEAP_YEAR = "(?:..(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
MONTH = f"^(?:{LEAP_YEAR}-02-29|....-(?:0[13-9]|1[0-2]|02-(?:[01]|2[0-8])))"
NARROWER_FORMATS = {
    "date": (YEAR, MONTH),
    "date-time": (YEAR, MONTH, "^[^:]*:[0-9][0-9]:[0-5]"),
    "time": ("^[0-9][0-9]:[0-9][0-9]:[0-5]",),
}
# How far a bound is moved that llguidance would take for inclusive.
EXCLUSIVE_STEP = 1e-9
# Control characters other than those with a short escape.
UNSPELLABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")


def llguidance_rules(schema: Schema, pointer: str) -> Schema:
    """The schema as llguidance gets it. Raises: UnsupportedConstraint."""
    settled = dict(schema)
    _check_literals(settled, pointer)
    if settled.get("format") not in ASSERTED_FORMATS:
        settled.pop("format", None)
    if "pattern" in settled:
        settled["pattern"] = rust_pattern(settled["pattern"], pointer=child(pointer, "pattern"))
    if "patternProperties" in settled:
        settled["patternProperties"] = _pattern_properties(
            settled["patternProperties"], child(pointer, "patternProperties")
        )
    if settled.get("format") in NARROWER_FORMATS:
        narrower = [{"pattern": pattern} for pattern in NARROWER_FORMATS[settled["format"]]]
        settled["allOf"] = [*settled.get("allOf", ()), *narrower]
    if "oneOf" in settled:
        raise refused(
            "the branches of oneOf are not provably exclusive (use anyOf, or a const that differs)",
            child(pointer, "oneOf"),
            "oneOf",
        )
    _check_property_counts(settled, pointer)
    _check_multiple(settled, pointer)
    tighten_bounds(settled, pointer)
    _move_exclusive_bounds(settled)
    return settled


def _check_multiple(schema: Schema, pointer: str) -> None:
    """llguidance counts in decimals, where 1.9 is a multiple of 0.1; validators that divide
    doubles say that it is not. Both agree on fractions that a double holds exactly, as 0.5."""
    step = schema.get("multipleOf", 1)
    if Decimal(repr(step)) != Decimal(step):
        raise refused(
            "validators disagree on multiples of such a fraction",
            child(pointer, "multipleOf"),
            "multipleOf",
        )


def _check_literals(schema: Schema, pointer: str) -> None:
    """A control character without a short escape is lost where \\u escapes are off, and an
    integer that no double equals is rounded."""
    for keyword in ("enum", "const", "properties", "required"):
        literals = schema.get(keyword, ())
        if keyword == "properties":
            literals = list(literals)
        problem = _literal_problem(literals)
        if problem is not None:
            raise refused(problem, child(pointer, keyword), keyword)


def _literal_problem(value: Json) -> str | None:
    if isinstance(value, str) and UNSPELLABLE.search(value):
        return "control characters in literal strings are not supported"
    if isinstance(value, int) and float(value) != value:
        return f"the integer {value} is not exact in double precision"
    if isinstance(value, dict):
        return _literal_problem([*value.keys(), *value.values()])
    if isinstance(value, list | tuple):
        return next(filter(None, map(_literal_problem, value)), None)
    return None


def _pattern_properties(schemas: Schema, place: str) -> Schema:
    translated = {
        rust_pattern(pattern, pointer=child(place, pattern)): schema
        for pattern, schema in schemas.items()
    }
    if len(translated) < len(schemas):
        raise refused("two patterns mean the same", place, "patternProperties")
    return translated


def _check_property_counts(schema: Schema, pointer: str) -> None:
    """A mask cannot tell a repeated additional key from a new one, so keys beyond the required
    ones prove nothing about `minProperties`."""
    minimum = schema.get("minProperties", 0)
    if minimum > max(1, len(schema.get("required", ()))):
        raise refused(
            "minProperties above the number of required keys cannot be enforced",
            child(pointer, "minProperties"),
            "minProperties",
        )
    if minimum <= len(schema.get("required", ())):
        schema.pop("minProperties", None)
    optional = set(schema.get("properties", ())) - set(schema.get("required", ()))
    if "maxProperties" in schema and optional:
        raise refused(
            "maxProperties is enforced only where all properties are required",
            child(pointer, "maxProperties"),
            "maxProperties",
        )


def _move_exclusive_bounds(schema: Schema) -> None:
    """Of two bounds less than 1 apart it takes a whole exclusive one for inclusive: (0, 0.5)
    would allow 0. Such a bound is moved inwards a little and becomes inclusive."""
    lower = schema.get("exclusiveMinimum", schema.get("minimum"))
    upper = schema.get("exclusiveMaximum", schema.get("maximum"))
    if lower is None or upper is None or upper - lower >= 1:
        return
    for exclusive, inclusive, step in (
        ("exclusiveMinimum", "minimum", EXCLUSIVE_STEP),
        ("exclusiveMaximum", "maximum", -EXCLUSIVE_STEP),
    ):
        if exclusive in schema and float(schema[exclusive]).is_integer():
            schema[inclusive] = schema.pop(exclusive) + step
