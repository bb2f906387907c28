"""Tells a schema that is none from one that only asks for what no grammar keeps."""

import json

from grammar.errors import UnsupportedConstraint
from grammar.keyword_values import CHECKS
from grammar.schema_document import Json, steps_of

# In front of the places that the constraint's errors name.
_NUM_OUTER_STEPS = 3


def is_malformed(schema: str, error: UnsupportedConstraint) -> bool:
    """Whether `error`, about a call's schema, is about a keyword that has none of its values.
    False where that cannot be told."""
    steps = list(steps_of(error.pointer))[_NUM_OUTER_STEPS:]
    found, value = _value_at(json.loads(schema), steps)
    keyword = error.keyword
    if not found or keyword is None:
        return False
    if not steps or steps[-1] != keyword:
        return not isinstance(value, dict | bool)
    if keyword in ("enum", "const"):  # these may be too long
        return keyword == "enum" and not isinstance(value, list)
    try:
        CHECKS.get(keyword, _anything)(value, error.pointer, keyword)
    except UnsupportedConstraint:
        return True
    return False


def _anything(value: Json, _place: str, _keyword: str) -> Json:
    return value


def _value_at(document: Json, steps: list[str]) -> tuple[bool, Json]:
    value = document
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return False, None
    return True, value
