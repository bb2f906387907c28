"""Memory of a process tree, as the kernel counts it."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.bench.memory import process_tree, tree_pss_bytes, watch_memory

MIB = 1024 * 1024
# A child that holds 64 MiB and has a child of its own; both end when their input does.
CHILD = "import sys; held = bytearray(64 << 20); print('ready', flush=True); sys.stdin.read()"
PARENT = (
    "import subprocess, sys;"
    f"subprocess.run([sys.executable, '-c', {CHILD!r}], stdin=sys.stdin, check=True)"
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="PSS is a figure of Linux")


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose child holds 64 MiB."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


async def test_a_childs_memory_counts_and_stays_the_peak_after_its_end(
    parent: subprocess.Popen[bytes],
) -> None:
    assert len(list(process_tree(parent.pid))) == 2
    async with watch_memory(parent.pid) as peak:
        pass
    assert 64 * MIB < peak.pss_bytes < 200 * MIB
    parent.communicate()
    assert tree_pss_bytes(parent.pid) == 0
    assert peak.pss_bytes > 64 * MIB


async def test_without_a_process_nothing_is_watched() -> None:
    async with watch_memory(None) as peak:
        pass
    assert peak.pss_bytes == 0
