"""`make bench` from its flags to its files, on servers without a model. No figure is judged."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.__main__ import run
from tests.bench.command_line import Request, parse
from tests.bench.servers import Contender
from tests.fake_openai_server import CACHED_TOKENS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

FAKE = shlex.join([sys.executable, "-m", "tests.fake_openai_server", "{port}"])


def fake_request(*contenders: Contender, out: Path | None = None) -> Request:
    quick = parse(["--quick", "--clients", "1", "--clients", "3"])
    return replace(quick, contenders=contenders, out=out)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run on two servers wrote, with the table under `markdown`."""
    out = tmp_path_factory.mktemp("bench") / "found.json"
    servers = (Contender("peer", FAKE), Contender("ours", FAKE, restarts=True))
    assert run(fake_request(*servers, out=out)) == 0
    written: dict[str, Any] = json.loads(out.read_text())
    return {**written, "markdown": out.with_suffix(".md").read_text()}


def test_every_workload_has_a_row_for_each_server_and_number_of_clients(
    found: dict[str, Any],
) -> None:
    keys = {(row["server"], row["workload"], row["num_clients"]) for row in found["medians"]}
    assert len(keys) == len(found["medians"]) == 2 * 4 * 2
    assert all(row["num_failed"] == 0 and row["client_cpu"] > 0 for row in found["medians"])
    for row in found["medians"]:
        assert row["output_tokens"] == row["num_requests"] * _max_tokens(row["workload"])
        # The fake server's prompts share three tokens; its first request is the one at start.
        assert row["cached_tokens"] == row["num_requests"] * CACHED_TOKENS


def _max_tokens(workload: str) -> int:
    return 128 if workload in ("short", "json") else 64


def test_valid_answers_are_counted_by_the_schema(found: dict[str, Any]) -> None:
    """The fake server's every other answer fits."""
    rows = [row for row in found["medians"] if row["num_clients"] == 1]
    (json_row,) = [r for r in rows if r["workload"] == "json" and r["server"] == "ours"]
    assert json_row["valid_s"] * json_row["wall_s"] == pytest.approx(json_row["num_requests"] / 2)
    assert {row["valid_s"] for row in rows if row["workload"] != "json"} == {None}


def test_ratios_starts_and_memory_are_written(found: dict[str, Any]) -> None:
    assert len(found["ratios"]) == 4 * 2
    assert all(ratio["throughput"] > 0 for ratio in found["ratios"])
    starts = [(start["server"], start["num_clients"]) for start in found["starts"]]
    assert starts == [("peer", 1), ("peer", 3), ("ours", 1), ("ours", 3)]
    assert all(start["peak_pss_bytes"] > 2**20 for start in found["starts"])
    assert all(start["start_s"] > 0 for start in found["starts"])


def test_the_table_names_hardware_commit_and_commands(found: dict[str, Any]) -> None:
    table = found["markdown"]
    assert f"commit {found['machine']['commit']}" in table
    assert found["machine"]["cpu"] in table
    assert "python -m tests.fake_openai_server" in table
    assert sys.executable not in table
    assert len([line for line in table.splitlines() if line.startswith("| ours | short")]) == 2


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (shlex.join([sys.executable, "-c", "print('no model here')"]), "no model here"),
        ("/no/such/server --port {port}", "cannot start"),
        ("http://127.0.0.1:9/v1", "does not answer"),
    ],
    ids=["ends", "missing", "nobody"],
)
def test_a_server_that_cannot_be_measured_ends_the_run_with_the_reason(
    target: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(fake_request(Contender("peer", target))) == 1
    assert reason in capsys.readouterr().err
