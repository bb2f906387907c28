"""A runtime without a model, as a process: `python -m tests.bench.token_source ADDRESS FILE ...`.

It speaks the real wire and begins once so many requests are there: each step has one token for each
of them, on a fixed schedule. When all have ended it leaves the time of each step in a file.
"""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import zmq

from gateway.tokenizer import Tokenizer
from runtime import wire
from runtime.cache_messages import CacheAnswer, CacheFault, CacheQuery
from runtime.loop import Doorbell, RuntimeLoop
from runtime.messages import Abort, ChoiceUsage, EngineInfo, EngineStats, Submit, TokenEvent
from runtime.model_source import open_model
from tests.model_file import default_model_path

# Plain words, so that each token is text at once and makes one frame.
TEXT = (
    "It was a bright morning and the boats lay in the harbour as they had for years, side by side,"
    " while the people of the town went about their work and spoke of the weather and the price of"
    " fish. Nobody knew that the letter had come, and nobody would have cared. "
)
_GATEWAY_TIMEOUT_S = 600.0
_NS = 1_000_000_000


class Emissions(msgspec.Struct, frozen=True):
    """What the source did: the monotonic time of each step, when it was due, and the texts of the
    tokens, which begin anew after the last."""

    emitted_ns: list[int]
    due_ns: list[int]
    texts: list[str]


class TokenSource:
    """An engine for runtime.loop: `num_tokens` for each of `num_streams` requests, `rate` a second
    each. It has work exactly when a step is due."""

    def __init__(
        self, token_ids: Sequence[int], *, num_streams: int, num_tokens: int, rate: float
    ) -> None:
        self._token_ids = token_ids
        self._num_streams = num_streams
        self._num_tokens = num_tokens
        self._pause_ns = round(_NS / rate)
        self._requests: list[tuple[bytes, Submit]] = []
        self._admissions: dict[bytes, list[TokenEvent]] = {}
        self._first_due_ns: int | None = None
        self._wall_offset_ns = time.time_ns() - time.monotonic_ns()
        self._gone: set[str] = set()
        self.emitted_ns: list[int] = []

    @property
    def is_over(self) -> bool:
        return len(self.emitted_ns) == self._num_tokens

    @property
    def due_ns(self) -> list[int]:
        """When each step so far should have been."""
        first_ns = self._first_due_ns or 0
        return [first_ns + i * self._pause_ns for i in range(len(self.emitted_ns))]

    def submit(self, gateway: bytes, request: Submit) -> None:
        self._requests.append((gateway, request))
        admission = TokenEvent(request.request_id, 0, 0, admitted=True)
        self._admissions.setdefault(gateway, []).append(admission)
        if len(self._requests) == self._num_streams:
            self._first_due_ns = time.monotonic_ns() + _NS // 2

    def abort(self, _gateway: bytes, abort: Abort) -> None:
        self._gone.add(abort.request_id)

    def abort_gateway(self, _gateway: bytes) -> None:
        self._gone.update(request.request_id for _, request in self._requests)

    def step(self) -> dict[bytes, list[TokenEvent]]:
        admissions, self._admissions = self._admissions, {}
        if admissions or not self._is_due():
            return admissions
        index = len(self.emitted_ns)
        outputs: dict[bytes, list[TokenEvent]] = {}
        for gateway, request in self._requests:
            if request.request_id not in self._gone:
                outputs.setdefault(gateway, []).append(self._event(request, index))
        self.emitted_ns.append(time.monotonic_ns())
        return outputs

    def take_recorded(self) -> None:
        """No step of it is."""

    def has_work(self) -> bool:
        return bool(self._admissions) or self._is_due()

    def next_deadline_ns(self) -> int | None:
        due_ns = self._next_due_ns()
        return None if due_ns is None else due_ns + self._wall_offset_ns

    def idle(self) -> bool:
        return False

    def stats(self) -> EngineStats:
        return EngineStats(num_running=len(self._requests), steps=len(self.emitted_ns))

    def answer(self, query: CacheQuery) -> CacheAnswer:
        return CacheFault(query.request_id, "a source of tokens has no cache")

    def _next_due_ns(self) -> int | None:
        if self._first_due_ns is None or self.is_over:
            return None
        return self._first_due_ns + len(self.emitted_ns) * self._pause_ns

    def _is_due(self) -> bool:
        due_ns = self._next_due_ns()
        return due_ns is not None and time.monotonic_ns() >= due_ns

    def _event(self, request: Submit, index: int) -> TokenEvent:
        token_ids = [self._token_ids[index % len(self._token_ids)]]
        if index + 1 < self._num_tokens:
            return TokenEvent(request.request_id, 0, index + 1, token_ids)
        usage = ChoiceUsage(len(request.prompt_token_ids), 0, self._num_tokens)
        return TokenEvent(
            request.request_id, 0, index + 1, token_ids, finish_reason="length", usage=usage
        )


def source_info(vocab_size: int, eos_token_ids: Sequence[int]) -> EngineInfo:
    return EngineInfo(
        engine_id="source",
        incarnation="1",
        model_hash="0" * 64,
        architecture="none",
        dtype="none",
        device="none",
        vocab_size=vocab_size,
        eos_token_ids=tuple(eos_token_ids),
        max_model_len=1_000_000,
        page_size=16,
        num_pages=1_000_000,
        max_running=1024,
        kv_root=b"source",
    )


def main() -> int:
    """Serves until it is told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("emissions", type=Path, help="the file to leave")
    parser.add_argument("--core", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})
    text = open_model(default_model_path()).text
    tokenizer = Tokenizer(text)
    token_ids = tokenizer.encode(TEXT, add_special=False)
    source = TokenSource(
        token_ids,
        num_streams=options.streams,
        num_tokens=options.tokens,
        rate=options.rate,
    )
    info = source_info(text.vocab_size, text.eos_token_ids)

    def leave_emissions() -> None:
        texts = [tokenizer.token_bytes(token_id).decode() for token_id in token_ids]
        done = msgspec.json.encode(Emissions(source.emitted_ns, source.due_ns, texts))
        unfinished = options.emissions.with_suffix(".new")
        unfinished.write_bytes(done)
        unfinished.rename(options.emissions)

    serve(source, info, address=options.address, at_end=leave_emissions)
    return 0


def serve(
    source: TokenSource, info: EngineInfo, *, address: str, at_end: Callable[[], None]
) -> None:
    """Until SIGTERM; `at_end` is called once, after the last token."""
    is_stopped = is_told = False

    def stop(*_: object) -> None:
        nonlocal is_stopped
        is_stopped = True

    def should_stop() -> bool:
        nonlocal is_told
        if source.is_over and not is_told:
            is_told = True
            at_end()
        return is_stopped

    signal.signal(signal.SIGTERM, stop)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with contextlib.closing(Doorbell()) as doorbell, context.socket(zmq.ROUTER) as socket:
        wire.configure_router(socket)
        socket.bind(address)
        RuntimeLoop(
            socket=socket,
            engine=source,
            info=info,
            gateway_timeout_s=_GATEWAY_TIMEOUT_S,
            doorbell=doorbell,
        ).run(should_stop)
    context.destroy(0)


if __name__ == "__main__":
    sys.exit(main())
