"""`radixgate bench` and /metrics of the server it measures say the same of the same requests."""

import asyncio
import os
from pathlib import Path
from unittest.mock import patch

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.cli import main
from telemetry.bench_figures import SeriesFigures, figures_of
from telemetry.bench_json import decode_run
from telemetry.bench_run import BenchRun
from tests.conformance.target import Target

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


async def totals(client: httpx2.AsyncClient) -> dict[str, float]:
    """Each sample's name with the sum over its labels."""
    text = (await client.get("/metrics")).text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


async def bench(target: Target, out: Path, *flags: str) -> tuple[BenchRun, dict[str, float]]:
    """What it found, and by how much the server's metrics grew meanwhile."""
    key = {"OPENAI_API_KEY": target.api_key or ""}
    arguments = ["bench", "--url", f"{target.base_url}/v1", "--json-out", str(out), "--quiet"]
    async with target.http() as client:
        before = await totals(client)
        with patch.dict(os.environ, key):
            assert await asyncio.to_thread(main, [*arguments, *flags]) == 0
        after = await totals(client)
    run = decode_run(await asyncio.to_thread(out.read_bytes))
    return run, {name: value - before.get(name, 0.0) for name, value in after.items()}


def only(run: BenchRun) -> SeriesFigures:
    (series,) = run.series
    return figures_of(series)


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
async def test_tokens_and_times_are_those_of_the_metrics(
    tiny_server: Target, tmp_path: Path, endpoint: str
) -> None:
    flags = ("--workload", "chat", "--prefix-tokens", "12", "--prompt-tokens", "6", "--turns", "2")
    run, grown = await bench(
        tiny_server, tmp_path / "o.json", *flags, "--output-tokens", "24", "--requests", "16",
        "--concurrency", "2", "--endpoint", endpoint,
    )  # fmt: skip
    figures = only(run)
    assert figures.num_answered == 16
    assert figures.ttft is not None
    assert figures.tpot is not None
    # The request at the start asks for a token, with a prompt of its own.
    assert grown["radixgate_time_to_first_token_seconds_count"] == 17
    probed = grown["radixgate_generated_tokens_total"] - figures.output_tokens
    assert 1 <= probed <= 16
    assert grown["radixgate_prompt_tokens_total"] > figures.prompt_tokens
    assert figures.cached_tokens is not None
    assert 0 <= grown["radixgate_cached_tokens_total"] - figures.cached_tokens <= 16
    # What lies between is the making of a connection and the way there and back.
    theirs_s = grown["radixgate_time_to_first_token_seconds_sum"] / 17
    assert theirs_s == pytest.approx(figures.ttft.mean, rel=0.5, abs=0.005)
    tpot_s = grown["radixgate_time_per_output_token_seconds_sum"]
    tpot_s /= grown["radixgate_time_per_output_token_seconds_count"]
    assert tpot_s == pytest.approx(figures.tpot.mean, rel=0.3, abs=0.0005)


async def test_every_gap_between_tokens_is_counted_on_both_sides(
    tiny_server: Target, tmp_path: Path
) -> None:
    run, grown = await bench(
        tiny_server, tmp_path / "o.json", "--workload", "unique", "--prompt-tokens", "6",
        "--output-tokens", "24", "--requests", "6", "--concurrency", "2",
    )  # fmt: skip
    itl = only(run).itl
    assert itl is not None
    assert missing_gaps(run) <= 6  # a last token may end without a text of its own
    assert grown["radixgate_inter_token_seconds_count"] == pytest.approx(itl.count, abs=6)
    total_s = itl.mean * itl.count
    assert grown["radixgate_inter_token_seconds_sum"] == pytest.approx(total_s, rel=0.3, abs=0.05)


def missing_gaps(run: BenchRun) -> int:
    """How many of the tokens that followed a first one have no gap."""
    records = list(run.series[0].measured())
    return sum(one.output_tokens - 1 - len(one.itl_s) for one in records)
