"""Fixtures of the engine's integration tests."""

import pytest

from tests.engine_harness import EngineHarness


@pytest.fixture
def harness() -> EngineHarness:
    """An engine with room for everything a test sends."""
    return EngineHarness()
