"""What llguidance 1.9 enforces of a schema whose keywords were checked one by one.

It refuses by itself what it does not know, so few combinations need a rule: those in which its
arithmetic rounds, and those in which a repeated key would count twice.
"""

import math
from typing import Any

from grammar.ecma_regex import rust_pattern
from grammar.keyword_values import refused
from grammar.schema_document import child

Schema = dict[str, Any]

# Formats that it enforces at least as strictly as the standard; others are annotations.
FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)
# The largest double below 2**63: its integer ranges are computed in 64 bits.
MAX_BOUND = 2**63 - 1024


def llguidance_rules(schema: Schema, pointer: str) -> Schema:
    """The schema as llguidance gets it. Raises: UnsupportedConstraint."""
    settled = dict(schema)
    if settled.get("format") not in FORMATS:
        settled.pop("format", None)
    if "pattern" in settled:
        settled["pattern"] = rust_pattern(settled["pattern"], pointer=child(pointer, "pattern"))
    if "patternProperties" in settled:
        settled["patternProperties"] = _pattern_properties(
            settled["patternProperties"], child(pointer, "patternProperties")
        )
    if "oneOf" in settled:
        raise refused(
            "the branches of oneOf are not provably exclusive (use anyOf, or a const that differs)",
            child(pointer, "oneOf"),
            "oneOf",
        )
    _check_property_counts(settled, pointer)
    _tighten_bounds(settled, pointer)
    return settled


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


def _tighten_bounds(schema: Schema, pointer: str) -> None:
    """Bounds as doubles that allow no more than the client's, and an end to endless integers."""
    for keyword in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        if keyword in schema:
            schema[keyword] = _tightened(schema[keyword], keyword, child(pointer, keyword))
    if schema.get("type") != "integer" or "enum" in schema or "const" in schema:
        return
    if "minimum" not in schema and "exclusiveMinimum" not in schema:
        schema["minimum"] = -MAX_BOUND
    if "maximum" not in schema and "exclusiveMaximum" not in schema:
        schema["maximum"] = MAX_BOUND


def _tightened(bound: int | float, keyword: str, place: str) -> int | float:
    is_lower = keyword.lower().endswith("minimum")
    inward = bound if is_lower else -bound
    if inward > MAX_BOUND:
        raise refused(f"{keyword!r} leaves no number of 64 bits", place, keyword)
    if inward < -MAX_BOUND:
        return -MAX_BOUND if is_lower else MAX_BOUND
    nearest = float(bound)
    if isinstance(bound, float) or nearest == bound:
        return bound
    if (nearest < bound) == is_lower:
        nearest = math.nextafter(nearest, math.inf if is_lower else -math.inf)
    return int(nearest)
