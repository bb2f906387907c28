"""Files of the MaskBench form: one JSON object a line with `schema` and `tests`, plain or gzipped.

Schemas and instances are kept as the text that stands in the file, so that no number is rounded
and no key moved before an engine sees them. Read by grammar.bench.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path

import msgspec

GZIP_MAGIC = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"
BLANK = " \t\r\n"


def _no_constant(name: str) -> str:
    raise ValueError(f"it is not JSON: {name}")


# Numbers stay text: Python refuses to convert very long ones, and here only their end matters.
_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)

Span = tuple[int, int]


class BenchFileError(Exception):
    """The file cannot be read as one of this form; one line with the number of the line."""


class Instance(msgspec.Struct, frozen=True):
    """`data` is the instance's JSON text. `is_valid` is what the file says about it."""

    data: str
    is_valid: bool


class BenchCase(msgspec.Struct, frozen=True):
    """One line: a schema and instances of it."""

    id: str
    schema: str
    instances: tuple[Instance, ...]


def read_cases(path: Path, *, limit: int | None = None) -> list[BenchCase]:
    """The file's cases, at most `limit`; empty lines are passed over.

    Raises: BenchFileError with the number of the first line that does not fit, or where there is
    none.
    """
    try:
        content = path.read_bytes()
        if content.startswith(GZIP_MAGIC):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise BenchFileError(f"{path}: cannot be read: {reason}") from error
    cases: list[BenchCase] = []
    for number, line in enumerate(content.removeprefix(UTF8_MARK).split(b"\n"), start=1):
        if limit is not None and len(cases) >= limit:
            break
        if line.strip():
            cases.append(_read_line(line, path, number))
    if not cases:
        raise BenchFileError(f"{path}: it has no line with a schema")
    return cases


def _read_line(line: bytes, path: Path, number: int) -> BenchCase:
    try:
        return _case(line.decode(), number)
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 (byte {error.start + 1})"
    except RecursionError:
        reason = "its JSON is nested too deeply"
    except json.JSONDecodeError as error:
        reason = f"it is not JSON: {error.msg} (character {error.pos + 1})"
    except ValueError as error:
        reason = str(error)
    raise BenchFileError(f"{path}: line {number}: {reason}")


def _case(line: str, number: int) -> BenchCase:
    """Raises: ValueError for what is no case."""
    members, end = _members(line, _after_blanks(line, 0))
    if _after_blanks(line, end) != len(line):
        raise ValueError("something follows the JSON object")
    if "schema" not in members:
        raise ValueError("it has no 'schema'")
    instances = _instances(line, members["tests"]) if "tests" in members else ()
    return BenchCase(
        _id(line, members.get("id"), number), _text(line, members["schema"]), instances
    )


def _id(line: str, span: Span | None, number: int) -> str:
    value = json.loads(_text(line, span)) if span else None
    return str(value) if isinstance(value, str | int) else f"line {number}"


def _instances(line: str, tests: Span) -> tuple[Instance, ...]:
    if line[tests[0]] != "[":
        raise ValueError("'tests' is not an array")
    found: list[Instance] = []
    for start, _ in _elements(line, tests):
        place = f"test {len(found) + 1}"
        if line[start] != "{":
            raise ValueError(f"{place} is not an object")
        members, _ = _members(line, start)
        if not {"data", "valid"} <= members.keys():
            raise ValueError(f"{place} lacks 'data' or 'valid'")
        verdict = _text(line, members["valid"])
        if verdict not in ("true", "false"):
            raise ValueError(f"{place}: 'valid' is neither true nor false")
        found.append(Instance(_text(line, members["data"]), verdict == "true"))
    return tuple(found)


def _members(line: str, start: int) -> tuple[dict[str, Span], int]:
    """Where the values of the object that begins at `start` stand, and where it ends."""
    if line[start : start + 1] != "{":
        raise ValueError("it is not a JSON object")
    members: dict[str, Span] = {}
    position = _after_blanks(line, start + 1)
    while line[position : position + 1] != "}":
        if members:
            position = _after(line, ",", position)
        if line[position : position + 1] != '"':
            raise json.JSONDecodeError("a key was expected", line, position)
        key, position = scanstring(line, position + 1)
        span = _value(line, _after(line, ":", position))
        members[key] = span
        position = _after_blanks(line, span[1])
    return members, position + 1


def _elements(line: str, array: Span) -> Iterator[Span]:
    """The elements of an array that is known to be well formed."""
    position = _after_blanks(line, array[0] + 1)
    while line[position] != "]":
        span = _value(line, position)
        yield span
        position = _after_blanks(line, span[1])
        if line[position] == ",":
            position = _after_blanks(line, position + 1)


def _value(line: str, start: int) -> Span:
    _, end = _decoder.raw_decode(line, start)
    return start, end


def _after(line: str, mark: str, position: int) -> int:
    position = _after_blanks(line, position)
    if line[position : position + 1] != mark:
        raise json.JSONDecodeError(f"{mark!r} was expected", line, position)
    return _after_blanks(line, position + 1)


def _after_blanks(line: str, position: int) -> int:
    while line[position : position + 1] in BLANK and position < len(line):
        position += 1
    return position


def _text(line: str, span: Span) -> str:
    return line[span[0] : span[1]]
