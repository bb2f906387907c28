"""The plan that the flags of `radixgate bench` make. Called by `gateway.bench_command`."""

import argparse
import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gateway.bench_flags import DEFAULT_CLIENTS, DEFAULT_URL, OptionError
from gateway.bench_session import BenchPlan
from gateway.load_connection import AnswerLimits
from gateway.load_target import Target
from telemetry.bench_run import Arrival, LoadLevel, WorkloadNote
from telemetry.named_workloads import NAMES, SizeError, Sizes, describe_named, make_named
from telemetry.request_bodies import Endpoint
from telemetry.script_source import ScriptSource, TraceSource, WorkloadSource
from telemetry.trace_file import read_trace
from telemetry.workload_file import read_workload
from telemetry.workloads import Workload, num_users, turns_of

KEY_VARIABLE = "OPENAI_API_KEY"
# Where nobody says how many requests: so many for each client, or for so long an open loop.
_REQUESTS_PER_CLIENT, _MIN_REQUESTS, _OPEN_S = 4, 32, 30.0
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_OWN_HEADERS = frozenset({"host", "content-length", "connection", "transfer-encoding"})


def plan_of(options: argparse.Namespace, arguments: Sequence[str]) -> BenchPlan:
    """Raises: OptionError, WorkloadFileError, TargetError."""
    source = _Source.of(options)
    levels = _levels(options, source)
    seed = options.seed if options.seed is not None else source.seed
    return BenchPlan(
        targets=_targets(options),
        levels=levels,
        sources=tuple(source.at(level) for level in levels),
        workload=source.note,
        endpoint=Endpoint(options.endpoint),
        seed=seed,
        command=shlex.join(["radixgate", *arguments]),
        model=options.model,
        num_rounds=options.rounds,
        warm_up=options.warmup,
        max_requests=options.requests,
        duration_s=options.duration,
        max_in_flight=options.max_in_flight,
        says_the_same=options.same_words,
        keeps_open=options.keep_alive,
        limits=AnswerLimits(silence_s=options.timeout),
        slo=options.slo,
        price_per_hour=options.price_per_hour,
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """What the flags say is to be played; `at` makes it for a level."""

    arrival: Arrival
    note: WorkloadNote
    at: Callable[[LoadLevel], ScriptSource]
    seed: int
    num_clients: int
    max_clients: int | None

    @classmethod
    def of(cls, options: argparse.Namespace) -> "_Source":
        """Raises: OptionError, WorkloadFileError."""
        arrival = _arrival(options)
        sizes = _sizes(options)
        if arrival is Arrival.TRACE:
            return cls._of_trace(options, sizes)
        name = options.workload or "chat"
        if name in NAMES:
            return cls._of_name(name, arrival, options, sizes)
        _refuse_sizes(sizes)
        if not Path(name).exists():
            raise OptionError(f"--workload {name}: no file, and none of {', '.join(NAMES)}")
        workload = read_workload(Path(name))
        num_scripts, _ = turns_of(workload)
        note = WorkloadNote(_kind(workload), _described(workload), options.endpoint, name)
        made = WorkloadSource(workload)
        return cls(arrival, note, lambda _: made, workload.seed, num_users(workload), num_scripts)

    @classmethod
    def _of_name(
        cls, name: str, arrival: Arrival, options: argparse.Namespace, sizes: Sizes
    ) -> "_Source":
        try:
            description = describe_named(name, sizes)
        except SizeError as error:
            raise OptionError(str(error)) from None
        is_endless = options.requests is None and options.duration is not None

        def made(level: LoadLevel) -> ScriptSource:
            wanted = None if is_endless else options.requests or _default_requests(level)
            clients = level.concurrency or 1
            workload = make_named(name, sizes, num_requests=wanted, num_clients=clients)
            return WorkloadSource(workload, is_endless=is_endless)

        note = WorkloadNote(name, description, options.endpoint)
        return cls(arrival, note, made, 1, DEFAULT_CLIENTS, None)

    @classmethod
    def _of_trace(cls, options: argparse.Namespace, sizes: Sizes) -> "_Source":
        _refuse_sizes(sizes)
        if options.workload is not None:
            raise OptionError("--workload: a trace has its own requests")
        trace = read_trace(options.trace, unit=options.trace_unit, block_tokens=options.trace_block)
        span_s = trace[-1].at_s
        description = f"{len(trace):,} requests in {span_s:,.1f} s"
        note = WorkloadNote("trace", description, options.endpoint, str(options.trace))
        made = TraceSource(trace)
        return cls(Arrival.TRACE, note, lambda _: made, 1, 1, None)


def _arrival(options: argparse.Namespace) -> Arrival:
    """What is not said follows from the flags that only one of them has. Raises: OptionError."""
    found = {
        Arrival.CLOSED: options.concurrency,
        Arrival.POISSON: options.rate,
        Arrival.TRACE: options.trace,
    }
    flags = {
        Arrival.CLOSED: "--concurrency",
        Arrival.POISSON: "--rate",
        Arrival.TRACE: "--trace",
    }
    given = [arrival for arrival, value in found.items() if value is not None]
    if options.arrival is None:
        arrival = given[0] if given else Arrival.CLOSED
    else:
        arrival = Arrival(options.arrival)
    if strange := [flags[one] for one in given if one is not arrival]:
        raise OptionError(f"{strange[0]}: it does not belong to --arrival {arrival.value}")
    if arrival is not Arrival.CLOSED and not given:
        raise OptionError(f"--arrival {arrival.value}: {flags[arrival]} is missing")
    if arrival is not Arrival.TRACE and options.speed is not None:
        raise OptionError("--speed: it belongs to --trace")
    return arrival


def _levels(options: argparse.Namespace, source: _Source) -> tuple[LoadLevel, ...]:
    """Raises: OptionError for one that comes twice."""
    arrival = source.arrival
    if arrival is Arrival.POISSON:
        levels = [LoadLevel(arrival, rate=rate) for rate in options.rate]
    elif arrival is Arrival.TRACE:
        levels = [LoadLevel(arrival, speed=speed) for speed in options.speed or [1.0]]
    else:
        wanted = options.concurrency or [source.num_clients]
        most = source.max_clients or max(wanted)
        levels = [LoadLevel(arrival, concurrency=min(one, most)) for one in wanted]
    if len(set(levels)) < len(levels):
        raise OptionError("a level comes twice, or is more than the workload has conversations")
    return tuple(levels)


def _default_requests(level: LoadLevel) -> int:
    if level.rate is not None:
        return max(_MIN_REQUESTS, math.ceil(level.rate * _OPEN_S))
    return max(_MIN_REQUESTS, (level.concurrency or 1) * _REQUESTS_PER_CLIENT)


def _targets(options: argparse.Namespace) -> tuple[tuple[str, Target], ...]:
    """Each with its label. Raises: OptionError, TargetError."""
    key = os.environ.get(KEY_VARIABLE, "").strip() or None
    headers = dict(_header(one) for one in options.header_env)
    targets = [Target.of(url, key, headers=headers) for url in options.url or [DEFAULT_URL]]
    labels = options.label or _labels(targets)
    if len(labels) != len(targets):
        raise OptionError(f"--label: {len(labels)} for {len(targets)} servers")
    if len(set(labels)) < len(labels):
        raise OptionError("--label: two servers have the same")
    return tuple(zip(labels, targets, strict=True))


def _labels(targets: Sequence[Target]) -> list[str]:
    """What stands between // and the path; with a number where that is not enough."""
    places = [urlsplit(target.url).netloc for target in targets]
    if len(set(places)) == len(places):
        return places
    return [f"{place} #{number}" for number, place in enumerate(places, start=1)]


def _header(text: str) -> tuple[str, str]:
    name, _, variable = text.partition("=")
    if not _HEADER.fullmatch(name) or not variable:
        raise OptionError(f"--header-env {text}: expected NAME=VARIABLE")
    if name.lower() in _OWN_HEADERS:
        raise OptionError(f"--header-env {name}: the bench says this itself")
    value = os.environ.get(variable)
    if value is None:
        raise OptionError(f"--header-env {name}: there is no environment variable {variable}")
    return name, value


def _sizes(options: argparse.Namespace) -> Sizes:
    return Sizes(
        prompt_tokens=options.prompt_tokens,
        output_tokens=options.output_tokens,
        prefix_tokens=options.prefix_tokens,
        turns=options.turns,
        groups=options.groups,
    )


def _refuse_sizes(sizes: Sizes) -> None:
    if sizes != Sizes():
        raise OptionError("sizes such as --prompt-tokens belong to workloads by name")


def _kind(workload: Workload) -> str:
    return str(workload.__struct_config__.tag)


def _described(workload: Workload) -> str:
    """Its sizes on one line."""
    fields = msgspec.to_builtins(workload)
    shown = {name: value for name, value in fields.items() if isinstance(value, int | float)}
    words = [f"{name.replace('_', ' ')} {value}" for name, value in shown.items()]
    if bodies := fields.get("bodies"):
        words.append(f"{len(bodies):,} bodies")
    return ", ".join(word for word in words if not word.startswith(("version ", "seed ")))
