"""`radixgate bench` against a real server: its figures are the server's, its page works."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser
from prometheus_client.parser import text_string_to_metric_families

from telemetry.bench_figures import figures_of
from telemetry.bench_json import decode_run
from telemetry.bench_run import BenchRun, RequestRecord
from tests.conformance.target import Target
from tests.e2e.browser import chromium, watched
from tests.e2e.server_process import serving
from tests.model_file import ROOT, needs_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

# A folder for pictures that docs show.
SCREENSHOTS = os.environ.get("RADIXGATE_TEST_SCREENSHOTS")
SMALL = ("--workload", "chat", "--turns", "2", "--prompt-tokens", "20", "--output-tokens", "8")
TOKENS = ("prompt", "cached", "generated")
TTFT_SUM = "radixgate_time_to_first_token_seconds_sum"


@dataclass(frozen=True, slots=True)
class Benched:
    """What a run wrote, and what the server counted meanwhile, with the requests that found out
    how it is spoken to."""

    run: BenchRun
    folder: Path
    printed: str
    counted: dict[str, float]

    def records(self) -> list[RequestRecord]:
        rounds = (each for one in self.run.series for each in one.rounds)
        return [record for each in rounds for record in each.records]

    def told(self) -> dict[str, int]:
        """Sums of usage."""
        records = self.records()
        return {
            "prompt": sum(one.prompt_tokens for one in records),
            "cached": sum(one.cached_tokens or 0 for one in records),
            "generated": sum(one.output_tokens for one in records),
        }


def scraped(target: Target) -> dict[str, float]:
    """Sums over all labels."""
    text = httpx2.get(f"{target.base_url}/metrics").text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "le" not in sample.labels:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def bench(target: Target, folder: Path, *flags: str) -> Benched:
    """What `target` counts is told, whoever else is measured."""
    folder.mkdir(exist_ok=True)
    before = scraped(target)
    files = ["--json-out", "bench.json", "--markdown-out", "bench.md", "--html-out", "bench.html"]
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "bench", "--quiet", *flags, *files],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    after = scraped(target)
    counted = {name: value - before.get(name, 0.0) for name, value in after.items()}
    run = decode_run((folder / "bench.json").read_bytes())
    return Benched(run, folder, done.stdout, counted)


def named(**targets: Target) -> tuple[str, ...]:
    """Flags that measure each of them under its name."""
    return tuple(
        part
        for label, target in targets.items()
        for part in ("--url", f"{target.base_url}/v1", "--label", label)
    )


@pytest.fixture(scope="module")
def benched(tiny_server: Target, tmp_path_factory: pytest.TempPathFactory) -> Benched:
    flags = ("--concurrency", "1,3", "--requests", "6", "--warmup", "1", "--slo", "ttft=10s")
    folder = tmp_path_factory.mktemp("bench") / "run"
    twice = named(one=tiny_server, two=tiny_server)
    return bench(tiny_server, folder, *twice, *SMALL, *flags, "--price-per-hour", "2")


def test_a_run_measures_every_request_and_writes_every_report(benched: Benched) -> None:
    labels = [(one.level.concurrency, one.label) for one in benched.run.series]
    assert labels == [(1, "one"), (1, "two"), (3, "one"), (3, "two")]
    for series in benched.run.series:
        figures = figures_of(series, slo=benched.run.slo)
        assert (figures.num_answered, figures.num_failed) == (6, 0)
        assert figures.output_tokens == 6 * 8
        assert figures.goodput_share == 1.0
        assert figures.used_share is not None
        assert figures.used_share > 0.8
    assert re.search(r"^3 clients +two +6 +0 ", benched.printed, flags=re.M)
    assert "| 3 clients | `two` | 6 | 0 |" in (benched.folder / "bench.md").read_text()
    page = (benched.folder / "bench.html").read_text()
    assert page.count("<figure>") == 7 + 2 * 3
    shown = json.loads((benched.folder / "bench.json").read_text())["figures"][3]
    assert f'value="{shown["output_tok_s"]:.6g}"' in page
    assert f'value="{shown["output_cost"]:.6g}"' in page


def test_tokens_are_those_that_the_server_counts(
    benched: Benched, tiny_server: Target, tmp_path: Path
) -> None:
    """What is counted beside the records are the requests that find out how a server is spoken to:
    the same in any run."""
    twice = named(one=tiny_server, two=tiny_server)
    few = ("--requests", "2", "--seed", "5")
    other = bench(tiny_server, tmp_path / "other", *twice, *SMALL, *few)
    beside = []
    for one in (benched, other):
        told = one.told()
        counted = {name: one.counted[f"radixgate_{name}_tokens_total"] for name in TOKENS}
        beside.append({name: counted[name] - told[name] for name in ("prompt", "generated")})
    assert beside[0] == beside[1]
    assert beside[0]["generated"] <= 4
    assert benched.told()["cached"] > 0


def test_times_are_those_of_the_server_and_the_way_to_it(benched: Benched) -> None:
    ttfts = [one.ttft_s for one in benched.records() if one.ttft_s is not None]
    assert len(ttfts) == 4 * 7
    # The server also counts the few requests beside; the client waits for its connection too.
    assert 0.5 * benched.counted[TTFT_SUM] < sum(ttfts) < benched.counted[TTFT_SUM] + 0.5 * 28
    for one in benched.records():
        assert one.tpot_s is not None
        assert one.ttft_s is not None
        assert one.e2e_s >= one.ttft_s + one.tpot_s * (one.output_tokens - 1) - 1e-6


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_fault_and_can_be_used_by_all(
    benched: Benched, browser: Browser, scheme: str
) -> None:
    size = {"width": 360, "height": 800}
    with watched(browser, benched.folder.as_uri(), color_scheme=scheme, viewport=size) as seen:
        seen.open("/bench.html")
        assert seen.page.locator("figure svg[role=img]").count() == 7 + 2 * 3
        seen.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360
        found = Axe().run(seen.page).response
        assert [(one["id"], one["nodes"]) for one in found["violations"]] == []
        assert len(found["passes"]) > 20
        assert seen.asked == ["/bench.html"]


def test_the_commands_of_the_docs_page_work_as_pasted(tiny_server: Target, tmp_path: Path) -> None:
    page = (ROOT / "docs/bench.md").read_text()
    (block,) = re.findall(r"```sh\n(.*?)```", page, flags=re.S)
    assert block.count("http://127.0.0.1:8000") == 1
    block = block.replace("http://127.0.0.1:8000", tiny_server.base_url)
    here = f"{shlex.quote(sys.executable)} -m gateway.cli "
    done = subprocess.run(
        ["sh", "-ec", re.sub(r"^radixgate ", here, block, flags=re.M)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.html", "run.json", "run.md"]
    assert "SLO       ttft=500ms,tpot=50ms" in done.stdout
    assert re.search(r"^4 clients +B: \S+ / A: \S+ +1\.00", done.stdout, flags=re.M)
    assert "one run with several --url" in done.stderr


@needs_model
@pytest.mark.skipif(SCREENSHOTS is None, reason="RADIXGATE_TEST_SCREENSHOTS names no folder")
def test_a_picture_for_the_docs(browser: Browser, model_dir: Path, tmp_path: Path) -> None:
    """A sweep over the default model with one thread and with two."""
    assert SCREENSHOTS is not None
    flags = (
        "--concurrency",
        "1,4,16",
        "--requests",
        "24",
        "--warmup",
        "2",
        "--output-tokens",
        "32",
    )
    with (
        serving("--num-threads", "1", model_dir=str(model_dir)) as (_, slow),
        serving("--num-threads", "2", model_dir=str(model_dir)) as (_, fast),
    ):
        both = named(one_thread=slow, two_threads=fast)
        found = bench(slow, tmp_path / "run", *both, *flags, "--slo", "ttft=500ms,tpot=50ms")
    size = {"width": 1200, "height": 1265}
    with watched(browser, found.folder.as_uri(), color_scheme="light", viewport=size) as seen:
        seen.open("/bench.html")
        seen.page.screenshot(path=Path(SCREENSHOTS) / "bench_report.png")
