"""How much later `radixgate bench` sees a token than it was sent: `python -m
tests.bench.bench_overhead`.

500 streams of 50 tokens a second each, the client on one core, the server (without a model,
tests/bench/stamped_server.py) on another. A token says when it was sent, by the clock that the
client uses too; what lies between is the kernel's and the client's. Answers are of different
lengths, so that requests begin while all others stream.
"""

import argparse
import asyncio
import os
import resource
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.bench_machine import allow_files, loop_factory
from gateway.load_client import Load, PlayedLoad, play
from gateway.load_connection import Link
from gateway.load_target import Target
from telemetry.bench_figures import Distribution, distribution
from telemetry.request_bodies import Dialect
from telemetry.workloads import Script, prompt_turn
from tests.bench.machine import this_machine
from tests.bench.processor import ProcessorTimes

MAX_LATE_S = 0.005
_NS = 1e9


def scripts(num_requests: int, *, mean_tokens: int) -> list[Script]:
    """Answers between half and one and a half of the mean, in a fixed order."""
    lengths = (mean_tokens // 2 + (7919 * index) % mean_tokens for index in range(num_requests))
    return [Script((prompt_turn("How late is it?", max(2, length)),)) for length in lengths]


def lateness(load: PlayedLoad) -> tuple[list[float], list[float]]:
    """Of first tokens, and of all, in seconds."""
    first, every = [], []
    for turn in load.turns:
        if turn.answer is None or turn.answer.timing is None:
            continue
        sent_ns = [int(word) for word in turn.answer.text.split()]
        timing = turn.answer.timing
        seen_s = turn.start_ns / _NS + timing.ttft_s
        first.append(seen_s - sent_ns[0] / _NS)
        for gap_s, word_ns in zip((0.0, *timing.itl_s), sent_ns, strict=True):
            seen_s += gap_s
            every.append(seen_s - word_ns / _NS)
    return first, every


async def measure(port: int, options: argparse.Namespace) -> PlayedLoad:
    link = Link(Target.of(f"http://127.0.0.1:{port}/v1", None))
    await link.open()
    mean_tokens = round(options.rate * options.answer_s)
    num_requests = round(options.streams * options.seconds / options.answer_s)
    load = Load(
        scripts(num_requests, mean_tokens=mean_tokens),
        num_clients=options.streams,
        max_in_flight=options.streams,
    )
    return await play(link, "stamped", load, dialect=Dialect())


@contextmanager
def server(port: int, rate: float, mode: str) -> Iterator[int]:
    """Its process, on the last core, away from the client's, where there are two."""
    cpus = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "tests.bench.stamped_server", str(port), str(rate), mode]
    process = subprocess.Popen([*command, str(cpus[-1])], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.wait()


def main() -> int:
    options = _parser().parse_args()
    print(this_machine().describe())
    print(shlex.join(["python", "-m", "tests.bench.bench_overhead", *sys.argv[1:]]), flush=True)
    cpus = os.sched_getaffinity(0)
    allow_files(options.streams)
    is_good = True
    for mode in options.mode or ["spread", "lockstep"]:
        port = _free_port()
        with server(port, options.rate, mode) as server_pid:
            start = ProcessorTimes.now(server_pid)
            os.sched_setaffinity(0, {min(cpus)})
            try:
                with asyncio.Runner(loop_factory=loop_factory()) as runner:
                    load = runner.run(measure(port, options))
            finally:
                os.sched_setaffinity(0, cpus)
            is_good = _say(mode, load, options) and is_good
            print(f"  {ProcessorTimes.now(server_pid).describe_since(start)}", flush=True)
    return 0 if is_good else 1


def _say(mode: str, load: PlayedLoad, options: argparse.Namespace) -> bool:
    wall_s = (load.end_ns - load.start_ns) / _NS
    num_failed = sum(turn.failure is not None for turn in load.turns)
    first, every = lateness(load)
    seen = distribution(first)
    print(f"{mode}: {options.streams} streams x {options.rate:g} tokens/s, {wall_s:.1f} s,")
    print(f"  {len(load.turns):,} requests, {num_failed} failed, {len(every):,} tokens", end=", ")
    print(f"{len(every) / wall_s:,.0f} tokens/s, client {load.cpu_s / wall_s:.0%} of one core")
    print(f"  first tokens seen late by {_shown(seen)}")
    print(f"  all tokens seen late by   {_shown(distribution(every))}")
    print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
    is_good = seen is not None and seen.p99 <= MAX_LATE_S and not num_failed
    print(f"  p99 of first tokens at most {MAX_LATE_S * 1e3:g} ms: {'yes' if is_good else 'no'}")
    return is_good


def _shown(one: Distribution | None) -> str:
    if one is None:
        return "nothing"
    names = ("mean", "p50", "p90", "p95", "p99", "max")
    return ", ".join(f"{name} {getattr(one, name) * 1e3:.2f} ms" for name in names)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50.0, help="tokens a second of each")
    parser.add_argument("--seconds", type=float, default=20.0, help="about so long a mode")
    parser.add_argument("--answer-s", type=float, default=4.0, help="mean length of an answer")
    parser.add_argument("--mode", action="append", choices=["spread", "lockstep"])
    return parser


if __name__ == "__main__":
    sys.exit(main())
