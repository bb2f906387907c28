"""The flags of `radixgate bench` and what their values may be. Called by `gateway.bench_command`.

Nothing is loaded here that only a bench needs: every command of radixgate reads all flags.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gateway.flag_times import seconds_of
from telemetry.bench_run import Arrival, Slo
from telemetry.named_workloads import NAMES
from telemetry.request_bodies import Endpoint
from telemetry.trace_file import UNITS

DEFAULT_URL = "http://127.0.0.1:8000/v1"
DEFAULT_CLIENTS = 8

_Value = TypeVar("_Value")


class OptionError(ValueError):
    """Flags that do not fit together; the message is one line."""


def add_load_flags(parser: argparse.ArgumentParser) -> None:
    """Whom to ask, and how."""
    add = parser.add_argument
    add(
        "--url",
        action="append",
        help=f"of the server (default {DEFAULT_URL}); given again: another one, by turns",
    )
    add("--label", action="append", metavar="NAME", help="of each --url, in the same order")
    add("--model", help="the servers' model (default: the first that each lists)")
    add("--endpoint", choices=[one.value for one in Endpoint], default=Endpoint.CHAT.value)
    add(
        "--header-env",
        action="append",
        default=[],
        metavar="HEADER=VARIABLE",
        help="a header with the value of an environment variable",
    )
    add("--keep-alive", action="store_true", help="use connections again (default: one a request)")
    add(
        "--timeout",
        type=time_of,
        default=600.0,
        metavar="TIME",
        help="the longest silence of a server (default 600s)",
    )
    _add_arrival_flags(parser)
    _add_workload_flags(parser)
    add("--slo", type=slo_of, metavar="LIST", help="ttft=500ms,tpot=50ms,e2e=10s: for goodput")
    add("--price-per-hour", type=price, metavar="AMOUNT", help="of a server: for costs of tokens")


def _add_arrival_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--arrival",
        choices=[one.value for one in Arrival],
        help="closed: clients that wait for answers; poisson: --rate; trace: --trace",
    )
    add(
        "--concurrency",
        "--users",
        type=list_of(count),
        metavar="N,N,...",
        help=f"clients, a level each (default: users of a file, {DEFAULT_CLIENTS} else)",
    )
    add("--rate", type=list_of(_positive), metavar="R,R,...", help="requests/s, a level each")
    add("--trace", type=Path, metavar="FILE", help="times and requests, see docs/workloads.md")
    add("--speed", type=list_of(_positive), metavar="X,X,...", help="of the trace (default 1)")
    add("--trace-unit", choices=UNITS, default="s", help="of its timestamps (default s)")
    add("--trace-block", type=count, default=512, metavar="N", help="tokens of a hash id (512)")
    add(
        "--max-in-flight",
        type=count,
        default=1024,
        metavar="N",
        help="requests of an open loop at a time (default 1024); more are late",
    )
    add("--requests", type=count, metavar="N", help="a level and round")
    add("--duration", type=time_of, metavar="TIME", help="send nothing after it (30s, 5m)")
    add("--warmup", type=_number, default=0, metavar="N", help="requests before each round (0)")
    add("--rounds", type=count, default=1, metavar="K", help="of all levels and servers")
    add(
        "--same-words",
        action="store_true",
        help="the same prompts in every round: what is cached from before counts",
    )


def _add_workload_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--workload",
        metavar="NAME|FILE",
        help=f"{', '.join(NAMES)}, or a file (default chat); see docs/workloads.md",
    )
    add("--seed", type=int, help="of words and arrivals (default: the file's, 1 else)")
    add("--prompt-tokens", type=count, metavar="N", help="of each question")
    add("--output-tokens", type=count, metavar="N", help="of each answer")
    add("--prefix-tokens", type=_number, metavar="N", help="that prompts share")
    add("--turns", type=count, metavar="N", help="of each conversation")
    add("--groups", type=count, metavar="N", help="prefixes of shared_prefix")


def list_of(read: Callable[[str], _Value]) -> Callable[[str], list[_Value]]:
    """Of values with commas between them."""
    return lambda text: [read(part.strip()) for part in text.split(",")]


def count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:10]) or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least 1 was expected")
    return int(text)


def _number(text: str) -> int:
    return 0 if text == "0" else count(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: a number above 0 was expected")
    return value


def price(text: str) -> float:
    return 0.0 if text == "0" else _positive(text)


def time_of(text: str) -> float:
    """Seconds; without a unit they are meant."""
    seconds = seconds_of(text)
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r}: a time such as 500ms, 30s or 5m was expected")
    return seconds


def slo_of(text: str) -> Slo:
    """Of `ttft=500ms,tpot=50ms`."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, limit = part.strip().partition("=")
        if name not in ("ttft", "tpot", "e2e") or name in limits:
            known = "ttft, tpot and e2e, each once, such as ttft=500ms"
            raise argparse.ArgumentTypeError(f"{part!r}: expected {known}")
        if not limit.endswith("s"):
            raise argparse.ArgumentTypeError(f"{part!r}: the limit needs its unit, ms or s")
        limits[name] = time_of(limit)
    return Slo(limits.get("ttft"), limits.get("tpot"), limits.get("e2e"))
