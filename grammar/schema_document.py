"""A JSON Schema as text becomes plain Python values; JSON Pointers into them."""

import json
import math
from collections.abc import Iterator
from typing import Any

from grammar.errors import UnsupportedConstraint

MAX_SCHEMA_CHARS = 1_000_000
MAX_INTEGER = 2**63 - 1

Json = Any  # a value that json.loads returns


def parse_schema(text: str) -> Json:
    """The schema's value, keys in the text's order.

    Raises: UnsupportedConstraint for what JSON leaves undefined (keys given twice, numbers
    outside of double precision, lone surrogates) and for what is neither object nor boolean.
    """
    if len(text) > MAX_SCHEMA_CHARS:
        raise UnsupportedConstraint(f"a schema has at most {MAX_SCHEMA_CHARS} characters")
    try:
        document = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_representable,
        )
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UnsupportedConstraint("the schema has a lone surrogate in a string") from error
    except ValueError as error:
        raise UnsupportedConstraint(f"the schema is not valid JSON: {error}") from error
    except RecursionError as error:
        raise UnsupportedConstraint("the schema is nested too deeply") from error
    if not isinstance(document, dict | bool):
        raise UnsupportedConstraint("a schema is a JSON object or a boolean")
    return document


def child(pointer: str, *keys: str | int) -> str:
    """The JSON Pointer one or more steps below `pointer` (RFC 6901)."""
    for key in keys:
        step = str(key)
        if "~" in step or "/" in step:
            step = step.replace("~", "~0").replace("/", "~1")
        pointer = f"{pointer}/{step}"
    return pointer


def steps_of(pointer: str) -> Iterator[str]:
    """The steps of a JSON Pointer."""
    for step in pointer.split("/")[1:]:
        yield step.replace("~1", "/").replace("~0", "~")


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return value


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def _representable(text: str) -> int | float:
    """Integers beyond 64 bits become doubles, as in every engine's parser, unless that would round
    them: a literal that cannot be kept is to be refused."""
    value, exact = _finite(text), int(text)
    return value if abs(exact) > MAX_INTEGER and value == exact else exact
