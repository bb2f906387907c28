"""Reads a trace of requests: one JSON object a line, with the time of each (docs/workloads.md)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from telemetry.workload_file import WorkloadFileError, check_body, read_lines
from telemetry.workload_text import text_of
from telemetry.workloads import Body, Script, given_turn, prompt_turn

_UNITS_S = {"s": 1.0, "ms": 1e-3}
UNITS = tuple(_UNITS_S)
_LENGTHS = {
    "prompt": ("input_length", "prompt_tokens", "input_tokens"),
    "output": ("output_length", "output_tokens"),
}
_MAX_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """`at_s` is from the first request. Either a body, or lengths in tokens; `blocks` name parts of
    `block_tokens` each that prompts may share, from their beginning on."""

    at_s: float
    body: Body | None
    prompt_tokens: int = 0
    output_tokens: int = 1
    blocks: tuple[int, ...] = ()
    block_tokens: int = 512


def read_trace(path: Path, *, unit: str = "s", block_tokens: int = 512) -> tuple[TraceRequest, ...]:
    """In the order of their times; `unit` is one of UNITS. Raises: WorkloadFileError."""
    found = [
        _read_request(line, f"{path} line {number}", unit=unit, block_tokens=block_tokens)
        for number, line in read_lines(path)
    ]
    if not found:
        raise WorkloadFileError(f"{path}: there is no request in it; expected one a line")
    found.sort(key=lambda one: one.at_s)
    first_s = found[0].at_s
    return tuple(replace(one, at_s=one.at_s - first_s) for one in found)


def trace_scripts(trace: Sequence[TraceRequest], *, seed: int | str) -> Iterator[Script]:
    """One request each, in the order of the trace."""
    for index, one in enumerate(trace):
        if one.body is not None:
            yield Script((given_turn(one.body),))
        else:
            yield Script((prompt_turn(_prompt(one, seed, index), one.output_tokens),))


def _prompt(one: TraceRequest, seed: int | str, index: int) -> str:
    """Words of the blocks, which are the same wherever a block is, then words of its own."""
    parts, left = [], one.prompt_tokens
    for block in one.blocks:
        length = min(left, one.block_tokens)
        parts.append(text_of(length, seed, "block", block))
        left -= length
    parts.append(text_of(left, seed, "own", index))
    return " ".join(part for part in parts if part)


def _read_request(line: bytes, where: str, *, unit: str, block_tokens: int) -> TraceRequest:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise WorkloadFileError(f"{where}: no JSON: {error}") from None
    except RecursionError:
        raise WorkloadFileError(f"{where}: it is nested too deeply") from None
    if not isinstance(entry, dict):
        raise WorkloadFileError(f"{where}: expected an object with a timestamp")
    at_s = _time(entry.get("timestamp"), where) * _UNITS_S[unit]
    if "body" in entry:
        return TraceRequest(at_s, check_body(entry["body"], where=f"{where}: body"))
    prompt_tokens = _length(entry, "prompt", where, least=0)
    blocks = _blocks(entry.get("hash_ids", []), where)
    if (len(blocks) - 1) * block_tokens >= max(1, prompt_tokens) and blocks:
        raise WorkloadFileError(
            f"{where}: hash_ids: {len(blocks)} blocks of {block_tokens} tokens are more than the "
            f"prompt's {prompt_tokens}; say another --trace-block"
        )
    return TraceRequest(
        at_s,
        None,
        prompt_tokens=prompt_tokens,
        output_tokens=_length(entry, "output", where, least=1),
        blocks=blocks,
        block_tokens=block_tokens,
    )


def _time(value: object, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
        return float(value)
    raise WorkloadFileError(f"{where}: timestamp: expected a number")


def _length(entry: Mapping[str, Any], which: str, where: str, *, least: int) -> int:
    """An output of none is one token, as no request is answered with less."""
    names = _LENGTHS[which]
    value = next((entry[name] for name in names if name in entry), None)
    if type(value) is not int or not 0 <= value <= _MAX_TOKENS:
        expected = f"a whole number up to {_MAX_TOKENS:,}, or a body"
        raise WorkloadFileError(f"{where}: {' or '.join(names)}: expected {expected}")
    return max(least, value)


def _blocks(value: object, where: str) -> tuple[int, ...]:
    if isinstance(value, list) and all(type(one) is int for one in value):
        return tuple(value)
    raise WorkloadFileError(f"{where}: hash_ids: expected a list of whole numbers")
