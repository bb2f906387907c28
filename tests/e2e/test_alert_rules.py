"""What promtool, the program of Prometheus' own, says of the configuration and the rules."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.metric_queries import RULES
from tests.stack_tools import tools_or_skip

TESTS = sorted(path.name for path in RULES.glob("*_test.yml"))
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]


def promtool(*arguments: str, folder: Path = RULES) -> subprocess.CompletedProcess[str]:
    program = str(tools_or_skip().promtool)
    return subprocess.run([program, *arguments], capture_output=True, text=True, cwd=folder)


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """With a key where a container has one: promtool looks whether it is there."""
    folder = Path(shutil.copytree(RULES, tmp_path / "prometheus"))
    key = tmp_path / "key"
    key.write_text("rg-1\n")
    config = folder / "prometheus.yml"
    config.write_text(config.read_text().replace("/run/secrets/metrics_key", str(key)))
    return folder


def test_the_configuration_and_its_rules_are_valid(configuration: Path) -> None:
    done = promtool("check", "config", "--lint-fatal", "prometheus.yml", folder=configuration)
    assert done.returncode == 0, done.stderr


def test_every_alert_fires_when_it_should_and_only_then() -> None:
    done = promtool("test", "rules", *TESTS)
    assert done.returncode == 0, done.stderr


CHANGES = {
    "ManyErrors": ("> 0.05", "> 0.5"),
    "CacheTierDown": ("(radixgate_cache_tier_up) == 0", "(radixgate_cache_tier_up) == 1"),
    "SlowFirstToken": ("or vector(2)", "or vector(0.5)"),
    "HitRateCollapsed": ("< 0.5 * avg_over_time", "< 0.05 * avg_over_time"),
    "LongQueue": ("max(radixgate_requests_waiting)", "sum(radixgate_requests_waiting)"),
}


def test_alerts_that_are_changed_fail_their_cases(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(RULES, tmp_path / "prometheus"))
    text = (folder / "alerts.yml").read_text()
    for found, instead in CHANGES.values():
        assert found in text
        text = text.replace(found, instead)
    (folder / "alerts.yml").write_text(text)
    done = promtool("test", "rules", *TESTS, folder=folder)
    assert done.returncode == 1
    assert set(re.findall(r"alertname: (\w+)", done.stdout + done.stderr)) == CHANGES.keys()
