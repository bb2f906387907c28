"""Plays conversations on any OpenAI-compatible server, a thread for each that is under way.

A closed loop: a user's next turn is sent when the last answer has ended. Called by
gateway.bench_command; needs nothing but the standard library, so that it is quick to start.
"""

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from telemetry.answer_stream import Answer, RecordedStream, StreamError, read_answer
from telemetry.load_report import PlayedTurn
from telemetry.workloads import Body, Conversation, Script

_READ_BYTES = 65536
# The longest silence of a server, such as a long wait in its queue.
_TIMEOUT_S = 600.0
# What an answer may have, and for how long it may come: it is kept in memory until it is read.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ANSWER_S = 3600.0


class TargetError(Exception):
    """The server cannot be measured; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server and what every request to it has. `path` is what comes before /chat/completions."""

    scheme: str
    host: str
    port: int | None
    path: str
    api_key: str | None = None

    @classmethod
    def of(cls, url: str, api_key: str | None) -> "Target":
        """Raises: TargetError."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise TargetError(f"{url}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TargetError(f"{url}: expected a URL such as http://127.0.0.1:8000/v1")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise TargetError("the key has characters that no key has")
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), api_key)

    def connect(self) -> http.client.HTTPConnection:
        """Not yet made: it is with the first request."""
        kind = http.client.HTTPSConnection if self.scheme == "https" else http.client.HTTPConnection
        return kind(self.host, self.port, timeout=_TIMEOUT_S)

    @property
    def headers(self) -> dict[str, str]:
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {"Content-Type": "application/json", **key}


@dataclass(frozen=True, slots=True)
class PlayedLoad:
    """All requests of one load, in the order in which they ended."""

    turns: tuple[PlayedTurn, ...]
    wall_s: float
    num_unsent: int


def first_model(target: Target) -> str:
    """The first that the server lists. Raises: TargetError."""
    connection = target.connect()
    try:
        connection.request("GET", f"{target.path}/models", headers=target.headers)
        reply = connection.getresponse()
        content = reply.read(MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TargetError(f"the server does not answer: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if reply.status != 200:
        said = " ".join(content.decode(errors="replace").split())[:200]
        raise TargetError(f"GET {target.path}/models: status {reply.status}: {said}")
    try:
        return str(json.loads(content)["data"][0]["id"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise TargetError(f"GET {target.path}/models lists no model; name one") from None


def tells_token_ids(target: Target, model: str) -> bool:
    """Whether the server says which tokens it read and made, found out with a request of one token.

    Raises: TargetError where it answers no request at all.
    """
    body: Body = {
        "model": model,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        return read_answer(send(target, body | {"return_token_ids": True})).prompt_ids is not None
    except StreamError:
        pass
    try:
        read_answer(send(target, body))
    except StreamError as error:
        raise TargetError(f"the server does not answer: {error}") from None
    return False


def send(target: Target, body: Mapping[str, Any]) -> RecordedStream:
    """One request to its end, on a connection of its own, so that no server gains from keeping
    them. What fails is in the stream's `failure`."""
    content = json.dumps(body).encode()
    connection = target.connect()
    stream = RecordedStream(time.perf_counter_ns())
    try:
        connection.request("POST", f"{target.path}/chat/completions", content, target.headers)
        reply = connection.getresponse()
        stream.status = reply.status
        num_bytes, end_ns = 0, stream.start_ns + round(MAX_ANSWER_S * 1e9)
        while data := reply.read1(_READ_BYTES):
            stream.pieces.append((now_ns := time.perf_counter_ns(), data))
            num_bytes += len(data)
            if num_bytes > MAX_ANSWER_BYTES or now_ns > end_ns:
                stream.failure = "the answer does not end"
                break
    except (OSError, http.client.HTTPException, ValueError) as error:
        stream.failure = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return stream


def play(
    target: Target,
    model: str,
    *,
    scripts: Sequence[Script],
    num_clients: int,
    max_requests: int | None = None,
    wants_ids: bool = False,
) -> PlayedLoad:
    """Plays the scripts in their order, `num_clients` at a time, each to its end or its first
    failure; after `max_requests` no further one is sent. With `wants_ids` the server is asked for
    the tokens of each."""
    stage = _Stage(target, model, max_requests=max_requests, wants_ids=wants_ids)
    waiting = _Shared(enumerate(scripts))
    start_s = time.perf_counter()
    with ThreadPoolExecutor(num_clients) as pool:
        clients = [pool.submit(stage.play_all, waiting) for _ in range(num_clients)]
        try:
            for client in clients:
                client.result()
        except BaseException:  # also an interrupt: the clients end after their current answer
            stage.close()
            raise
    wall_s = time.perf_counter() - start_s
    num_turns = sum(len(script.turns) for script in scripts)
    return PlayedLoad(tuple(stage.played), wall_s, num_turns - len(stage.played))


class _Shared:
    """An iterator that several threads take from."""

    def __init__(self, scripts: Iterator[tuple[int, Script]]) -> None:
        self._scripts = scripts
        self._lock = threading.Lock()

    def take(self) -> tuple[int, Script] | None:
        with self._lock:
            return next(self._scripts, None)


class _Stage:
    """What the clients of one load share."""

    def __init__(
        self, target: Target, model: str, *, max_requests: int | None, wants_ids: bool
    ) -> None:
        self.played: list[PlayedTurn] = []
        self._target = target
        self._model = model
        self._extra: Body = {"return_token_ids": True} if wants_ids else {}
        self._num_left = max_requests
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def close(self) -> None:
        """No further request is sent."""
        self._closed.set()

    def play_all(self, waiting: _Shared) -> None:
        while (taken := waiting.take()) is not None:
            user, script = taken
            self._play(user, Conversation(script))

    def _play(self, user: int, conversation: Conversation) -> None:
        while not conversation.is_over and self._may_send():
            turn = conversation.num_answered
            if turn:
                self._closed.wait(conversation.script.think_time_s)
            body = conversation.next_body(self._model) | self._extra
            answer = self._ask(user, turn, body)
            if answer is None:
                return
            conversation.add_answer(answer.text)

    def _ask(self, user: int, turn: int, body: Body) -> Answer | None:
        stream = send(self._target, body)
        end_ns = time.perf_counter_ns()
        answer, failure = None, None
        try:
            answer = read_answer(stream)
        except StreamError as error:
            failure = str(error)
        self.played.append(PlayedTurn(user, turn, stream.start_ns, end_ns, answer, failure))
        return answer

    def _may_send(self) -> bool:
        if self._closed.is_set():
            return False
        with self._lock:
            if self._num_left is None:
                return True
            self._num_left -= 1
            return self._num_left >= 0
