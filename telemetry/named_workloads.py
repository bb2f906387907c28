"""The workloads that need no file, by name: kinds of `telemetry.workloads` with sizes that the
command line may change. Pure; called by `gateway.bench_command`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from telemetry.workloads import Agent, JsonSchema, MultiTurn, PrefixRepetition, Workload

# More than a run of days has; they are made one by one as they are needed.
_ENDLESS = 1_000_000_000
_MAX_SIZE = 1_000_000  # as in files


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the command line says; None = the workload's own. Tokens are words (workload_text)."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prefix_tokens: int | None = None
    turns: int | None = None
    groups: int | None = None


@dataclass(frozen=True, slots=True)
class _Named:
    """`sizes` are all that it has; those of other workloads are refused."""

    make: Callable[[Mapping[str, int], int, int], Workload]
    sizes: Mapping[str, int]


class SizeError(ValueError):
    """A size that the workload does not have, or too large a one; the message is one line."""


def _chat(sizes: Mapping[str, int], num_requests: int, num_clients: int) -> Workload:
    return MultiTurn(
        version=1,
        users=_conversations(num_requests, sizes["turns"], num_clients),
        turns=sizes["turns"],
        system_tokens=sizes["prefix_tokens"],
        user_tokens=sizes["prompt_tokens"],
        output_tokens=sizes["output_tokens"],
    )


def _unique(sizes: Mapping[str, int], num_requests: int, _num_clients: int) -> Workload:
    return PrefixRepetition(
        version=1,
        groups=1,
        prompts_per_group=num_requests,
        prefix_tokens=0,
        suffix_tokens=sizes["prompt_tokens"],
        output_tokens=sizes["output_tokens"],
    )


def _shared_prefix(sizes: Mapping[str, int], num_requests: int, _num_clients: int) -> Workload:
    return PrefixRepetition(
        version=1,
        groups=sizes["groups"],
        prompts_per_group=math.ceil(num_requests / sizes["groups"]),
        prefix_tokens=sizes["prefix_tokens"],
        suffix_tokens=sizes["prompt_tokens"],
        output_tokens=sizes["output_tokens"],
    )


def _agent(sizes: Mapping[str, int], num_requests: int, num_clients: int) -> Workload:
    return Agent(
        version=1,
        agents=_conversations(num_requests, sizes["turns"], num_clients),
        calls=sizes["turns"] - 1,
        system_tokens=sizes["prefix_tokens"],
        tools=6,
        tool_tokens=120,
        task_tokens=sizes["prompt_tokens"],
        call_tokens=12,
        result_tokens=sizes["prompt_tokens"],
        output_tokens=sizes["output_tokens"],
    )


def _json_schema(sizes: Mapping[str, int], num_requests: int, _num_clients: int) -> Workload:
    return JsonSchema(
        version=1,
        requests=num_requests,
        prompt_tokens=sizes["prompt_tokens"],
        output_tokens=sizes["output_tokens"],
    )


def _conversations(num_requests: int, turns: int, num_clients: int) -> int:
    """So that each client has one."""
    return max(math.ceil(num_requests / turns), num_clients)


_WORKLOADS = {
    "chat": _Named(
        _chat, {"prefix_tokens": 50, "prompt_tokens": 60, "output_tokens": 128, "turns": 3}
    ),
    "unique": _Named(_unique, {"prompt_tokens": 512, "output_tokens": 128}),
    "shared_prefix": _Named(
        _shared_prefix,
        {"prefix_tokens": 1024, "prompt_tokens": 128, "output_tokens": 128, "groups": 1},
    ),
    "multi_turn": _Named(
        _chat, {"prefix_tokens": 256, "prompt_tokens": 100, "output_tokens": 128, "turns": 10}
    ),
    "agent": _Named(
        _agent, {"prefix_tokens": 400, "prompt_tokens": 200, "output_tokens": 64, "turns": 6}
    ),
    "json_schema": _Named(_json_schema, {"prompt_tokens": 60, "output_tokens": 256}),
}
NAMES = tuple(_WORKLOADS)


def make_named(
    name: str, sizes: Sizes, *, num_requests: int | None, num_clients: int = 1
) -> Workload:
    """With `num_requests` at least; None = as many as anyone plays. `name` is one of NAMES.

    Raises: SizeError.
    """
    found = _sizes_of(name, sizes)
    return _WORKLOADS[name].make(found, num_requests or _ENDLESS, num_clients)


def describe_named(name: str, sizes: Sizes) -> str:
    """Its sizes on one line. Raises: SizeError."""
    found = _sizes_of(name, sizes)
    return ", ".join(f"{size.replace('_', ' ')} {count}" for size, count in found.items())


def _sizes_of(name: str, sizes: Sizes) -> Mapping[str, int]:
    own, given = _WORKLOADS[name].sizes, _given(sizes)
    if strange := [size for size in given if size not in own]:
        flags = ", ".join(f"--{size.replace('_', '-')}" for size in strange)
        raise SizeError(f"the workload {name} has no {flags}")
    if large := [size for size, count in given.items() if count > _MAX_SIZE]:
        raise SizeError(f"--{large[0].replace('_', '-')}: expected at most {_MAX_SIZE:,}")
    return {**own, **given}


def _given(sizes: Sizes) -> dict[str, int]:
    all_sizes = {
        "prompt_tokens": sizes.prompt_tokens,
        "output_tokens": sizes.output_tokens,
        "prefix_tokens": sizes.prefix_tokens,
        "turns": sizes.turns,
        "groups": sizes.groups,
    }
    return {name: count for name, count in all_sizes.items() if count is not None}
