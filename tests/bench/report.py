"""The results as a table in Markdown and as JSON."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from tests.bench.machine import Machine
from tests.bench.results import ColdAndWarm, LoadRow, Results

_MIB = 1024 * 1024
_COLUMNS = (
    "server",
    "workload",
    "clients",
    "output tok/s",
    "valid/s",
    "TTFT p50 / p99 ms",
    "TPOT p50 / p99 ms",
    "ITL p99 ms",
    "cached / prompt tokens",
    "failed",
    "client CPU %",
    "other CPU %",
)


def markdown(
    machine: Machine, results: Results, *, server: str, command: str, contenders: dict[str, str]
) -> str:
    """Hardware, commands, one row a load, ratios of `server` to the others, starts and memory."""
    parts = [
        machine.describe() + ".",
        f"`{command}`; medians over {len(results.rounds)} round(s).",
        "\n".join(
            f"* {name} {results.versions.get(name, 'unknown')}: `{described}`"
            for name, described in contenders.items()
        ),
        _table(_COLUMNS, map(row_cells, results.medians())),
    ]
    if ratios := results.ratios(server):
        cells = (
            (r.workload, str(r.num_clients), r.other, _number(r.throughput), _number(r.ttft_p50))
            for r in ratios
        )
        parts.append(_table(("workload", "clients", "over", "throughput", "TTFT p50"), cells))
    if results.starts:
        columns = ("server", "clients", "start to first answer s", "peak memory MiB (sum of PSS)")
        parts.append(_table(columns, _start_cells(results)))
    parts += [_describe_pairs(name, pairs) for name, pairs in _joined_pairs(results).items()]
    return "\n\n".join(parts) + "\n"


def as_json(
    machine: Machine, results: Results, *, server: str, command: str, contenders: dict[str, str]
) -> dict[str, Any]:
    """Everything that the table is made of, and each round by itself."""
    return {
        "machine": asdict(machine),
        "command": command,
        "servers": contenders,
        "versions": results.versions,
        "medians": [asdict(row) for row in results.medians()],
        "ratios": [asdict(ratio) for ratio in results.ratios(server)],
        "rounds": [[asdict(row) for row in rows] for rows in results.rounds],
        "starts": [asdict(start) for start in results.starts],
        "cold_and_warm": [{"server": name, **asdict(pairs)} for name, pairs in results.pairs],
    }


def row_cells(row: LoadRow) -> tuple[str, ...]:
    figures = row.summary
    return (
        row.server,
        row.workload,
        str(row.num_clients),
        _number(figures.output_tok_s),
        _number(row.valid_s),
        f"{_number(figures.ttft_p50_ms)} / {_number(figures.ttft_p99_ms)}",
        f"{_number(figures.tpot_p50_ms)} / {_number(figures.tpot_p99_ms)}",
        _number(figures.itl_p99_ms),
        f"{row.cached_tokens} / {row.prompt_tokens}",
        f"{row.num_failed} of {row.num_requests}" if row.num_failed else "0",
        f"{100 * row.client_cpu:.0f}",
        "-" if row.other_cores is None else f"{100 * row.other_cores:.0f}",
    )


def _start_cells(results: Results) -> Iterable[tuple[str, ...]]:
    keys = dict.fromkeys((start.server, start.num_clients) for start in results.starts)
    for server, num_clients in keys:
        starts = [s for s in results.starts if (s.server, s.num_clients) == (server, num_clients)]
        seconds = statistics.median(start.start_s for start in starts)
        peak = max(start.peak_pss_bytes for start in starts)
        yield server, str(num_clients), _number(seconds), f"{peak / _MIB:.0f}"


def _joined_pairs(results: Results) -> dict[str, ColdAndWarm]:
    """The pairs of all rounds together, by server."""
    joined: dict[str, ColdAndWarm] = {}
    for name, pairs in results.pairs:
        before = joined.get(name, ColdAndWarm(pairs.prompt_tokens, (), ()))
        joined[name] = ColdAndWarm(
            pairs.prompt_tokens, before.cold_ms + pairs.cold_ms, before.warm_ms + pairs.warm_ms
        )
    return joined


def _describe_pairs(name: str, pairs: ColdAndWarm) -> str:
    cold, warm = statistics.median(pairs.cold_ms), statistics.median(pairs.warm_ms)
    return (
        f"{name}, the same prompt of {pairs.prompt_tokens} tokens twice, median of"
        f" {len(pairs.cold_ms)} pairs: first token after {_number(cold)} ms cold and"
        f" {_number(warm)} ms warm, {_number(cold / warm)} times as fast."
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None) -> str:
    """Three digits that count, or a dash."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
