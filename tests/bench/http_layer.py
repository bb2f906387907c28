"""What the gateway costs a token: `python -m tests.bench.http_layer`.

A runtime without a model emits tokens for many streams on a schedule; the gateway has a core for
itself, the source and the client share another. Prints how many tokens came, how much later than
they were emitted, and what the gateway took of its core for it.
"""

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gateway.default_model import MODEL_ID
from runtime.wire import new_ipc_address
from telemetry.load import percentile
from tests.bench.machine import this_machine
from tests.bench.processor import busy_seconds
from tests.bench.stream_recorder import BadStream, Recording, record_streams
from tests.bench.token_source import Emissions
from tests.model_file import ROOT

# The targets of this project, for 64 streams of 200 tokens a second.
MAX_ADDED_MS = 8.0
MAX_SHARE = 0.7
_WARM_S = 2.0
_START_TIMEOUT_S = 60.0
_SLACK_S = 60.0
_LOOK_S = _POLL_S = 0.05
_NS = 1e9
# Linux: the clock of a process by its id (clock_getcpuclockid(3)).
_SCHEDULER_CLOCK = 2


@dataclass(frozen=True, slots=True)
class Look:
    """Processor seconds of each party until `at_ns`, monotonic; `busy_s` of the whole machine."""

    at_ns: int
    gateway_s: float
    source_s: float
    client_s: float
    busy_s: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run showed, warm-up left out. Shares are of one core."""

    num_expected: int
    num_delivered: int
    num_chunks: int
    added_p50_ms: float
    added_p99_ms: float
    late_p99_ms: float
    gateway_share: float
    gateway_us_a_token: float
    source_share: float
    client_share: float
    other_share: float

    @property
    def is_within_target(self) -> bool:
        return (
            self.num_delivered == self.num_expected
            and self.added_p99_ms <= MAX_ADDED_MS
            and self.gateway_share <= MAX_SHARE
        )

    def describe(self) -> str:
        return (
            f"{self.num_delivered:,} of {self.num_expected:,} tokens in {self.num_chunks:,} chunks;"
            f" added latency p50 {self.added_p50_ms:.2f} ms, p99 {self.added_p99_ms:.2f} ms;"
            f" the gateway took {self.gateway_share:.1%} of its core,"
            f" {self.gateway_us_a_token:.1f} us a token\n"
            f"  beside it: source {self.source_share:.1%}, client {self.client_share:.1%} of the"
            f" other core, all else {self.other_share:.1%} of one; steps p99"
            f" {self.late_p99_ms:.2f} ms late"
        )


class Watch:
    """Looks at the processor's clocks now and then while a load runs."""

    def __init__(self, *, gateway: int, source: int) -> None:
        self._gateway = gateway
        self._source = source
        self.looks: list[Look] = []

    def look(self) -> None:
        """Does nothing if the last look was a moment ago."""
        now_ns = time.monotonic_ns()
        if self.looks and now_ns - self.looks[-1].at_ns < _LOOK_S * _NS:
            return
        self.looks.append(
            Look(
                at_ns=now_ns,
                gateway_s=process_seconds(self._gateway),
                source_s=process_seconds(self._source),
                client_s=time.process_time(),
                busy_s=busy_seconds(Path("/proc/stat").read_text()),
            )
        )

    def between(self, start_ns: int, end_ns: int) -> tuple[Look, Look]:
        """The last looks before both times."""
        first = max((look for look in self.looks if look.at_ns <= start_ns), key=_at)
        return first, max((look for look in self.looks if look.at_ns <= end_ns), key=_at)


def _at(look: Look) -> int:
    return look.at_ns


def process_seconds(pid: int) -> float:
    """Processor time of all threads of a process, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)


def evaluate(
    recordings: Sequence[Recording], emissions: Emissions, watch: Watch, *, num_warm: int
) -> Cost:
    """Raises: BadStream where an answer is not whole."""
    read = [recording.read(emissions.texts) for recording in recordings]
    arrivals = [stream.tokens_ns for stream in read]
    emitted = emissions.emitted_ns
    added_ms = [
        (arrival - sent) / 1e6
        for times in arrivals
        for arrival, sent in zip(times[num_warm:], emitted[num_warm:], strict=False)
    ]
    late_ms = [
        (sent - due) / 1e6
        for sent, due in zip(emitted[num_warm:], emissions.due_ns[num_warm:], strict=True)
    ]
    start, end = watch.between(emitted[num_warm], emitted[-1])
    wall_s = (end.at_ns - start.at_ns) / _NS
    num_between = sum(start.at_ns < at <= end.at_ns for times in arrivals for at in times)
    gateway_s, source_s = end.gateway_s - start.gateway_s, end.source_s - start.source_s
    client_s, busy_s = end.client_s - start.client_s, end.busy_s - start.busy_s
    added_p99, late_p99 = percentile(added_ms, 0.99), percentile(late_ms, 0.99)
    if added_p99 is None or late_p99 is None or not num_between:
        raise BadStream("no token came after the warm-up")
    return Cost(
        num_expected=len(recordings) * len(emitted),
        num_delivered=sum(map(len, arrivals)),
        num_chunks=sum(stream.num_chunks for stream in read),
        added_p50_ms=statistics.median(added_ms),
        added_p99_ms=added_p99,
        late_p99_ms=late_p99,
        gateway_share=gateway_s / wall_s,
        gateway_us_a_token=gateway_s / num_between * 1e6,
        source_share=source_s / wall_s,
        client_share=client_s / wall_s,
        other_share=max(0.0, busy_s - gateway_s - source_s - client_s) / wall_s,
    )


def chat_request(number: int, num_tokens: int) -> bytes:
    """One streaming chat, as it goes over the wire; no two are alike."""
    body = json.dumps(
        {
            "model": MODEL_ID,
            "messages": [{"role": "user", "content": f"{number}: tell me about boats."}],
            "max_tokens": num_tokens,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def measure(*, num_streams: int, rate: float, seconds: float, cores: tuple[int, int]) -> Cost:
    """One run with new processes; `cores` are the gateway's, and that of source and client.

    Raises: BadStream, TimeoutError, OSError.
    """
    num_tokens, num_warm = round((_WARM_S + seconds) * rate), round(_WARM_S * rate)
    port = _free_port()
    shape = ["--streams", str(num_streams)]
    with tempfile.TemporaryDirectory(prefix="http-layer-") as folder:
        address, emissions = new_ipc_address(Path(folder)), Path(folder) / "emissions.json"
        source = ["token_source", address, str(emissions), "--core", str(cores[1]), *shape]
        source += ["--tokens", str(num_tokens), "--rate", str(rate)]
        gateway = ["pinned_gateway", address, str(port), "--core", str(cores[0]), *shape]
        with _running(source) as source_pid, _running(gateway) as gateway_pid:
            _until_ready(port)
            watch = Watch(gateway=gateway_pid, source=source_pid)
            recordings = record_streams(
                ("127.0.0.1", port),
                [chat_request(number, num_tokens) for number in range(num_streams)],
                timeout_s=_WARM_S + seconds + _SLACK_S,
                look=watch.look,
            )
            done = msgspec.json.decode(emissions.read_bytes(), type=Emissions)
    return evaluate(recordings, done, watch, num_warm=num_warm)


@contextlib.contextmanager
def _running(arguments: Sequence[str]) -> Iterator[int]:
    """A program of this folder, for the length of the block; its id."""
    program, *rest = arguments
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.bench.{program}", *rest],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_ready(port: int) -> None:
    """Raises: TimeoutError."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    pause = threading.Event()
    while time.monotonic() < deadline_s:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_START_TIMEOUT_S)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", "/ready")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        pause.wait(_POLL_S)
    raise TimeoutError("the gateway is not ready")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def main() -> int:
    """Prints each round; 1 where a target is missed or the run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument(
        "--rate", type=float, default=200.0, help="tokens a second and stream (200)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, after two more (10)")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    machine = this_machine()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        print("http_layer: needs two cores", file=sys.stderr)
        return 1
    os.sched_setaffinity(0, {cores[1]})
    print(machine.describe())
    print(f"{options.streams} streams of {options.rate:g} tokens a second, {options.seconds:g} s")
    costs = []
    for _ in range(options.rounds):
        try:
            cost = measure(
                num_streams=options.streams,
                rate=options.rate,
                seconds=options.seconds,
                cores=(cores[0], cores[1]),
            )
        except (BadStream, OSError) as error:
            print(f"http_layer: {error or 'the streams did not end'}", file=sys.stderr)
            return 1
        costs.append(cost)
        print(cost.describe(), flush=True)
    print(
        f"targets: all tokens, p99 {MAX_ADDED_MS:g} ms, {MAX_SHARE:.0%} of a core:"
        f" {'met' if all(cost.is_within_target for cost in costs) else 'missed'}"
    )
    return int(not all(cost.is_within_target for cost in costs))


if __name__ == "__main__":
    sys.exit(main())
