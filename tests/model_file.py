"""Where tests find the default model's file, and the mark of tests that need it."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def default_model_path() -> Path:
    """RADIXGATE_TEST_MODEL, else the file that `make setup` puts in place."""
    configured = os.environ.get("RADIXGATE_TEST_MODEL")
    return Path(configured) if configured else ROOT / ".cache/models/smollm2-135m-instruct.gguf"


needs_model = pytest.mark.skipif(
    not default_model_path().is_file(),
    reason="the default model is not here; `make setup` fetches it",
)
