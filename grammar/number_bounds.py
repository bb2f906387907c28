"""Numeric bounds in the 64 bits in which xgrammar computes, never wider than the client's."""

import math
from typing import Any

from grammar.keyword_values import refused
from grammar.schema_document import child

Schema = dict[str, Any]

# The largest double below 2**63.
MAX_BOUND = 2**63 - 1024
LOWER = ("minimum", "exclusiveMinimum")
UPPER = ("maximum", "exclusiveMaximum")


def tighten_bounds(schema: Schema, pointer: str) -> None:
    """Rounds bounds inwards, and gives an integer without bounds those of 64 bits: a model that
    falls into repeating a digit would otherwise never end."""
    for keyword in (*LOWER, *UPPER):
        if keyword in schema:
            schema[keyword] = _tightened(schema[keyword], keyword, child(pointer, keyword))
    if schema.get("type") != "integer" or "multipleOf" in schema:
        return
    if not any(keyword in schema for keyword in LOWER):
        schema["minimum"] = -MAX_BOUND
    if not any(keyword in schema for keyword in UPPER):
        schema["maximum"] = MAX_BOUND


def _tightened(bound: int | float, keyword: str, place: str) -> int | float:
    is_lower = keyword in LOWER
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
