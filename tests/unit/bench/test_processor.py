"""Whose processor time it was."""

import os
import subprocess
import sys

import pytest

from tests.bench.processor import ProcessorTimes, busy_seconds, tree_seconds

SPIN = "import time\nwhile time.process_time() < 0.3: pass"

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_what_is_neither_the_servers_nor_the_clients_is_others() -> None:
    start = ProcessorTimes(at_s=0.0, busy_s=100.0, client_s=1.0, server_s=10.0)
    end = ProcessorTimes(at_s=10.0, busy_s=118.0, client_s=2.0, server_s=22.0)
    assert end.other_cores_since(start) == pytest.approx(0.5)


def test_for_a_server_that_is_not_known_nothing_is_said() -> None:
    start = ProcessorTimes(at_s=0.0, busy_s=100.0, client_s=1.0, server_s=None)
    end = ProcessorTimes(at_s=10.0, busy_s=118.0, client_s=2.0, server_s=None)
    assert end.other_cores_since(start) is None


def test_idle_and_waiting_time_is_not_busy_and_stolen_time_is() -> None:
    stat = "cpu  100 20 30 9999 8888 4 5 60 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert busy_seconds(stat) == (100 + 20 + 30 + 4 + 5 + 60) / os.sysconf("SC_CLK_TCK")


@linux_only
def test_the_time_of_a_child_that_has_ended_still_counts() -> None:
    before_s = tree_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    assert tree_seconds(os.getpid()) - before_s > 0.25
