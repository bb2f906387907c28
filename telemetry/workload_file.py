"""Reads a workload from its file: one JSON object with a version and a kind (docs/workloads.md)."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from telemetry.workloads import KINDS, Body, Requests, Workload

VERSION = 1
MAX_FILE_BYTES = 256 * 1024 * 1024


class WorkloadFileError(Exception):
    """The file is no workload; the message is one line with its name, the field and the fault."""


class _Versioned(msgspec.Struct):
    """Looked at before anything else: another version may have other fields."""

    version: int


def read_workload(path: Path) -> Workload:
    """Of a workload's file, or of one with a body a line (*.jsonl). Raises: WorkloadFileError."""
    if path.suffix == ".jsonl":
        return Requests(version=VERSION, file=path.name, bodies=_read_bodies(path))
    content = _read(path)
    try:
        version = msgspec.json.decode(content, type=_Versioned).version
        if version != VERSION:
            raise WorkloadFileError(f"{path}: version: expected {VERSION}, got {version}")
        workload = msgspec.json.decode(content, type=Workload)
    except msgspec.DecodeError as error:
        raise WorkloadFileError(f"{path}: {_explain(error)}") from None
    except RecursionError:
        raise WorkloadFileError(f"{path}: it is nested too deeply") from None
    if not isinstance(workload, Requests):
        return workload
    if workload.bodies:
        raise WorkloadFileError(f"{path}: bodies: they belong in a file of their own")
    return msgspec.structs.replace(workload, bodies=_read_bodies(path.parent / workload.file))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise WorkloadFileError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # a name that no file can have
        raise WorkloadFileError(f"{path}: {error}") from None
    if len(content) > MAX_FILE_BYTES:
        raise WorkloadFileError(f"{path}: it is larger than {MAX_FILE_BYTES} bytes")
    return content


def _explain(error: msgspec.DecodeError) -> str:
    """The field first, as the other messages of this project have it."""
    reason, _, place = str(error).partition(" - at `$")
    field = place.rstrip("`").lstrip(".")
    if field == "kind":
        reason += f"; expected one of {', '.join(KINDS)}"
    return f"{field}: {reason}" if field else reason


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, each with its number. Raises: WorkloadFileError."""
    lines = enumerate(_read(path).splitlines(), start=1)
    return ((number, line) for number, line in lines if line.strip())


def _read_bodies(path: Path) -> tuple[Body, ...]:
    bodies = tuple(
        _read_body(line, where=f"{path} line {number}") for number, line in read_lines(path)
    )
    if not bodies:
        raise WorkloadFileError(f"{path}: there is no body in it; expected one a line")
    return bodies


def _read_body(line: bytes, *, where: str) -> Body:
    try:
        body = json.loads(line)
    except ValueError as error:
        raise WorkloadFileError(f"{where}: no JSON: {error}") from None
    except RecursionError:
        raise WorkloadFileError(f"{where}: it is nested too deeply") from None
    return check_body(body, where=where)


def check_body(body: object, *, where: str) -> Body:
    """Raises: WorkloadFileError for what is no body of one chat with one answer."""
    if not isinstance(body, dict):
        raise WorkloadFileError(f"{where}: expected an object, a body of /v1/chat/completions")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise WorkloadFileError(f"{where}: messages: expected a list with at least one message")
    if body.get("n", 1) != 1:
        raise WorkloadFileError(f"{where}: n: expected 1, as a conversation has one answer")
    if not all(isinstance(one, dict) and isinstance(one.get("role"), str) for one in messages):
        raise WorkloadFileError(f"{where}: messages: expected objects, each with a role")
    return body
