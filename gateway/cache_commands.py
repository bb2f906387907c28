"""The commands `radixgate cache`, `cache explain` and `cache flush`: a running server's cache, over
HTTP, in the terminal."""

import argparse
import datetime
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import msgspec

from gateway.cache_picture import MIN_WIDTH, Terminal, explanation_lines, harmless, state_lines
from gateway.schemas.cache_response import (
    CacheExplanation,
    CacheExplanations,
    CacheFlush,
    CacheState,
)
from gateway.settings import CLIENT_KEY_VARIABLE

EXIT_FAILED, EXIT_UNUSABLE = 1, 2
_TIMEOUT_S = 60.0
_MAX_SAID_CHARS = 300
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
    given["headers"] = {**given.get("headers", {}), **_authorization(options.key_env)}
    try:
        with httpx2.Client(timeout=_TIMEOUT_S) as client:
            answer = client.request(method, url + path, **given)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise CacheCommandError(f"{options.url}: {reason}", EXIT_FAILED) from None
    if answer.status_code != 200:
        raise CacheCommandError(f"{answer.status_code}: {_said(answer.content)}", EXIT_FAILED)
    return answer.content


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
    except (msgspec.DecodeError, LookupError, TypeError):
        message = content.decode(errors="replace")
    return harmless(str(message)[:_MAX_SAID_CHARS], is_plain=False)


def _decoded(raw: bytes, kind: type[AnswerT]) -> AnswerT:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CacheCommandError(f"this is not a radixgate server: {error}", EXIT_FAILED) from None


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
    if options.json:
        _print([raw.decode(errors="replace")])
    return bool(options.json)


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
