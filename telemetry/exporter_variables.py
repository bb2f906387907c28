"""The OTEL_* variables that the SDK's exporters and spans read for themselves, looked at before.

The SDK goes on without a value that it cannot use, and quotes it in the log, be it a secret; or it
raises what no operator can read. settings.py asks. Imports no SDK.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from telemetry.errors import SetupError

_PREFIX = "OTEL_EXPORTER_OTLP_"
_HIDDEN = "(hidden)"
_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+[ \t]*=[ \t]*([\x20-\x7e]*)")
_FILES = ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
_COMPRESSIONS = {"grpc": ("gzip",), "http/protobuf": ("none", "gzip", "deflate")}
_SPAN_LIMITS = (
    "OTEL_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
)


def check_exporter(
    environment: Mapping[str, str],
    signal: Literal["TRACES", "METRICS"],
    protocol: Literal["grpc", "http/protobuf"],
) -> None:
    """Raises: SetupError for the first variable of the signal's exporter that cannot work."""
    known = _COMPRESSIONS[protocol]
    rules: tuple[tuple[str, Callable[[str], bool], str], ...] = (
        ("HEADERS", _are_headers, "name=value of printable ASCII, with commas between them"),
        ("TIMEOUT", _is_positive, "a number of seconds above 0"),
        ("COMPRESSION", lambda value: value.lower() in known, f"{' or '.join(known)} ({protocol})"),
        ("INSECURE", lambda value: value.lower() in ("true", "false"), "true or false"),
        *((name, _is_file, "a file that can be read") for name in _FILES),
    )
    for name, is_fit, expected in rules:
        key, value = _given(environment, signal, name)
        if value and not is_fit(value):
            raise SetupError(key, _HIDDEN if name == "HEADERS" else value, expected=expected)


def check_span_limits(environment: Mapping[str, str]) -> None:
    """Raises: SetupError."""
    for key in _SPAN_LIMITS:
        value = environment.get(key, "").strip()
        if value and not (value.isascii() and value.isdigit()):
            raise SetupError(key, value, expected="a whole number from 0")


def _given(environment: Mapping[str, str], signal: str, name: str) -> tuple[str, str]:
    """The variable that counts, the signal's own before the common one, and its value."""
    own, common = f"{_PREFIX}{signal}_{name}", _PREFIX + name
    key = own if environment.get(own, "").strip() else common
    return key, environment.get(key, "").strip()


def _are_headers(text: str) -> bool:
    return all(_is_header(part) for part in text.split(",") if part.strip())


def _is_header(text: str) -> bool:
    """What the SDK takes. A value that is no line of text would be quoted at each attempt."""
    match = _HEADER.fullmatch(text.strip())
    if match is None:
        return False
    value = unquote(match[1])
    return value.isascii() and value.isprintable()


def _is_positive(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return math.isfinite(number) and number > 0


def _is_file(path: str) -> bool:
    try:
        with Path(path).open("rb"):
            return True
    except OSError:
        return False
