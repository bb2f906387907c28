"""Structured logging on stderr: `key=value` text or one JSON object a line.

Fields come from `extra={...}` of a log call; `trace_id` is one of a request that failed.
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
        return f"{head} {message}{pairs}" + (f"\n{error}" if error else "")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(record), ensure_ascii=False, default=str)


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
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    # A client's text in a message must not be able to forge a line of its own.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
