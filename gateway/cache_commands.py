"""The commands `radixgate cache`, `cache explain` and `cache flush`: a running server's cache, over
HTTP, in the terminal."""

import argparse
import datetime
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import msgspec

from gateway.cache_picture import MIN_WIDTH, Terminal, explanation_lines, state_lines
from gateway.schemas.cache_response import (
    CacheExplanation,
    CacheExplanations,
    CacheFlush,
    CacheState,
)
from gateway.settings import CLIENT_KEY_VARIABLE
from gateway.terminal_text import harmless

EXIT_FAILED, EXIT_UNUSABLE = 1, 2
_TIMEOUT_S = 60.0
# What a server of another kind may send, and for how long: its answer is kept in memory.
MAX_ANSWER_BYTES = 32 * 1024 * 1024
MAX_ANSWER_S = 120.0
_MAX_SAID_CHARS = 300
# Of the control characters those that JSON leaves in texts as they are.
_OBEYED = re.compile("[\x7f-\x9f]")
AnswerT = TypeVar("AnswerT")


class CacheCommandError(Exception):
    """One line that says why, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _Kind(msgspec.Struct):
    """What an answer is."""

    object: str


def run_cache_command(options: argparse.Namespace) -> int:
    """Returns the exit code: 0, 1 where the server does not answer or refuses, 2 where what was
    given cannot be used. Errors end in one line on stderr."""
    commands = {"explain": _explain, "flush": _flush}
    command = commands.get(options.cache_command or "", _show)
    try:
        command(options)
    except CacheCommandError as error:
        sys.stderr.write(f"radixgate: {error}\n")
        return error.code
    return 0


def _show(options: argparse.Namespace) -> None:
    nodes = getattr(options, "max_nodes", None)
    parameters = {} if nodes is None else {"max_nodes": str(nodes)}
    raw = _call(options, "GET", "/v1/cache", params=parameters)
    if not _print_raw(options, raw):
        _print(state_lines(_decoded(raw, CacheState), _terminal()))


def _explain(options: argparse.Namespace) -> None:
    headers = {"content-type": "application/json"}
    body = _request_body(options.file)
    raw = _call(options, "POST", "/v1/cache/explain", content=body, headers=headers)
    if _print_raw(options, raw):
        return
    is_list = _decoded(raw, _Kind).object == "list"
    explanations = (
        _decoded(raw, CacheExplanations).data if is_list else (_decoded(raw, CacheExplanation),)
    )
    terminal = _terminal()
    for number, explanation in enumerate(explanations):
        if len(explanations) > 1:
            _print([f"prompt {number}:"])
        _print(explanation_lines(explanation, terminal))


def _flush(options: argparse.Namespace) -> None:
    if not options.yes:
        raise CacheCommandError(
            "flush forgets every cached prefix of the server; say --yes to do it", EXIT_UNUSABLE
        )
    raw = _call(options, "DELETE", "/v1/cache")
    if not _print_raw(options, raw):
        _print([f"{_decoded(raw, CacheFlush).pages:,} pages forgotten"])


def _request_body(file: str) -> bytes:
    """What the file or, for -, standard input has. Whether it is a request the server says."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise CacheCommandError(f"{file}: {error.strerror or error}", EXIT_UNUSABLE) from None


def _call(options: argparse.Namespace, method: str, path: str, **given: Any) -> bytes:
    """The body of the answer. Raises: CacheCommandError."""
    url = options.url.rstrip("/").removesuffix("/v1")
    # What is sent compressed all the same is no JSON then, however large it would become.
    given["headers"] = {
        **given.get("headers", {}),
        **_authorization(options.key_env),
        "accept-encoding": "identity",
    }
    try:
        with (
            httpx2.Client(timeout=_TIMEOUT_S) as client,
            client.stream(method, url + path, **given) as answer,
        ):
            content = _content(answer.iter_raw())
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        reason = harmless(str(error) or type(error).__name__, is_plain=False)
        raise CacheCommandError(f"{options.url}: {reason}", EXIT_FAILED) from None
    if content is None:
        raise CacheCommandError(f"{options.url}: its answer does not end", EXIT_FAILED)
    if answer.status_code != 200:
        raise CacheCommandError(f"{answer.status_code}: {_said(content)}", EXIT_FAILED)
    return content


def _content(pieces: Iterable[bytes]) -> bytes | None:
    """None where there is more of it, or it takes longer, than any answer of a radixgate server."""
    content, end_s = bytearray(), time.monotonic() + MAX_ANSWER_S
    for piece in pieces:
        content += piece
        if len(content) > MAX_ANSWER_BYTES or time.monotonic() > end_s:
            return None
    return bytes(content)


def _authorization(variable: str | None) -> dict[str, str]:
    """Raises: CacheCommandError for a variable that was named and is not there."""
    key = os.environ.get(variable or CLIENT_KEY_VARIABLE, "").strip()
    if not key:
        if variable is not None:
            raise CacheCommandError(f"{variable} is not set", EXIT_UNUSABLE)
        return {}
    if not key.isascii() or not key.isprintable():
        raise CacheCommandError(
            f"{variable or CLIENT_KEY_VARIABLE} has characters that no key has", EXIT_UNUSABLE
        )
    return {"authorization": f"Bearer {key}"}


def _said(content: bytes) -> str:
    """The message of an error object, or what there is."""
    try:
        message = msgspec.json.decode(content)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = content.decode(errors="replace")
    return harmless(str(message)[:_MAX_SAID_CHARS], is_plain=False)


def _decoded(raw: bytes, kind: type[AnswerT]) -> AnswerT:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, RecursionError) as error:
        reason = harmless(str(error)[:_MAX_SAID_CHARS], is_plain=False)
        raise CacheCommandError(f"this is not a radixgate server: {reason}", EXIT_FAILED) from None


def _terminal() -> Terminal:
    is_terminal = sys.stdout.isatty()
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return Terminal(
        width=max(shutil.get_terminal_size((100, 24)).columns, MIN_WIDTH),
        has_colour=is_terminal and "NO_COLOR" not in os.environ,
        is_plain=not encoding.startswith("utf"),
        now=datetime.datetime.now(datetime.UTC),
    )


def _print_raw(options: argparse.Namespace, raw: bytes) -> bool:
    """The answer as it came, if that is wanted and it is JSON; what a terminal would obey is only
    in its texts, and escaped there."""
    if not options.json:
        return False
    _decoded(raw, object)
    _print([_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", raw.decode())])
    return True


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
