"""W3C trace context: reading it from request headers, writing it for those we call.

Parsing is strict and silent: a client's broken header starts a new trace and never a log line.
"""

import re
from collections.abc import Iterable, Mapping

from opentelemetry.trace import SpanContext, TraceFlags, TraceState

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MAX_TRACEPARENT_LEN = 512
# https://www.w3.org/TR/trace-context/#tracestate-header: at most 32 members, 512 characters.
_MAX_TRACESTATE_LEN = 512
_MAX_TRACESTATE_MEMBERS = 32
_MEMBER_KEY = re.compile(
    r"[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}"
)
_MEMBER_VALUE = re.compile(r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


def read_context(headers: Mapping[str, str]) -> SpanContext | None:
    """The caller's context, or None when there is none or it is malformed."""
    parent = _parse_traceparent(_values(headers, "traceparent"))
    if parent is None:
        return None
    trace_id, span_id, flags = parent
    return SpanContext(
        trace_id=trace_id,
        span_id=span_id,
        is_remote=True,
        trace_flags=TraceFlags(flags),
        trace_state=_parse_tracestate(_values(headers, "tracestate")),
    )


def format_traceparent(context: SpanContext) -> str:
    """The header value that makes `context` the parent of what the receiver does."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _values(headers: Mapping[str, str], name: str) -> list[str]:
    # Repeated headers show up as repeated items; plain dicts may carry any case.
    return [value.strip(" \t") for key, value in headers.items() if key.lower() == name]


def _parse_traceparent(values: list[str]) -> tuple[int, int, int] | None:
    if len(values) != 1 or len(values[0]) > _MAX_TRACEPARENT_LEN:
        return None
    match = _TRACEPARENT.fullmatch(values[0])
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest):
        return None
    if int(trace_id, 16) == 0 or int(span_id, 16) == 0:
        return None
    return int(trace_id, 16), int(span_id, 16), int(flags, 16)


def _parse_tracestate(values: Iterable[str]) -> TraceState:
    text = ",".join(values)
    if len(text) > _MAX_TRACESTATE_LEN:
        return TraceState()
    members: dict[str, str] = {}
    for item in filter(None, (part.strip(" \t") for part in text.split(","))):
        key, separator, value = item.partition("=")
        is_valid = separator and _MEMBER_KEY.fullmatch(key) and _MEMBER_VALUE.fullmatch(value)
        if not is_valid or key in members:
            return TraceState()
        members[key] = value
    if len(members) > _MAX_TRACESTATE_MEMBERS:
        return TraceState()
    return TraceState(list(members.items()))
