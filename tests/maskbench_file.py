"""Where tests find a file of real schemas with instances, and the mark of tests that need one."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def maskbench_path() -> Path:
    """RADIXGATE_TEST_MASKBENCH, else the file that lies beside the checkout where there is one."""
    configured = os.environ.get("RADIXGATE_TEST_MASKBENCH")
    return Path(configured) if configured else ROOT / "../shared/data/maskbench_dev.jsonl.gz"


needs_maskbench = pytest.mark.skipif(
    not maskbench_path().is_file(),
    reason="no MaskBench file: set RADIXGATE_TEST_MASKBENCH to a .jsonl.gz",
)
