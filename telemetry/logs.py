"""Structured logging on stderr: `key=value` text or one JSON object a line.

Fields come from `extra={...}` of a log call; what concerns a request has its `trace_id`. A text of
a client in a message, a field or an exception can begin no line of its own.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
# Colours of the same message, which uvicorn adds for terminals.
_UNWANTED = frozenset({"color_message"})
_MAX_CAUSES = 8


def configure_logging(level: str, *, json_lines: bool) -> None:
    """Sends all records from `level` up to stderr. Called again it replaces its own handler.

    Raises: ValueError when `level` is no level.
    """
    root = logging.getLogger()
    root.setLevel(level.upper())
    for handler in [h for h in root.handlers if isinstance(h, _StderrHandler)]:
        root.removeHandler(handler)
    handler = _StderrHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if json_lines else _KeyValues())
    root.addHandler(handler)


class _StderrHandler(logging.StreamHandler[Any]):
    """Tells our handler from those of others."""


class _KeyValues(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        head = f"{fields.pop('time')} {fields.pop('level')} {fields.pop('logger')}"
        message = _one_line(str(fields.pop("message")))
        error = fields.pop("exception", None)
        pairs = "".join(f" {key}={_value(value)}" for key, value in fields.items())
        return f"{head} {message}{pairs}" + (_indented(error) if error else "")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _visible(json.dumps(_fields(record), ensure_ascii=False, default=str))


def stack_of(error: BaseException) -> str:
    """Where an exception came from: as a traceback, without what it and its causes say."""
    parts: list[str] = []
    told: BaseException | None = error
    while told is not None and len(parts) < _MAX_CAUSES:
        frames = "".join(traceback.format_tb(told.__traceback__))
        parts.append(f"Traceback (most recent call last):\n{frames}{type(told).__name__}")
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)
    return "\n\n".join(reversed(parts))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    for key, value in record.__dict__.items():
        if key not in _PLAIN and key not in _UNWANTED and value is not None:
            fields.setdefault(key, value)
    if record.exc_info and record.exc_info[1] is not None:
        fields["exception"] = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
    return fields


def _value(value: Any) -> str:
    text = str(value)
    is_plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if is_plain else _visible(json.dumps(text, ensure_ascii=False))


def _visible(json_text: str) -> str:
    """With JSON's escapes for what json.dumps leaves as it is and a viewer may take for the end of
    a line, or for a command: U+2028, C1 controls, directions."""
    if json_text.isprintable():
        return json_text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in json_text)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _indented(text: str) -> str:
    # The words of an exception may be a client's, and may have lines.
    return "".join(f"\n    {_one_line(line)}" for line in text.splitlines())
