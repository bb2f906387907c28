"""Fixtures of the integration tests."""

from collections.abc import Iterator
from typing import Any

import pytest
from tokenizers import Tokenizer

from runtime.config import RuntimeConfig
from runtime.model_source import open_model
from runtime.worker import engine_info
from tests.engine_harness import EngineHarness
from tests.grammar_harness import GrammarHarness, MakeHarness
from tests.model_file import default_model_path
from tests.real_model import RealModel


@pytest.fixture
def harness() -> EngineHarness:
    """An engine with room for everything a test sends."""
    return EngineHarness()


@pytest.fixture
def make_grammar_harness() -> Iterator[MakeHarness]:
    """Takes what GrammarHarness takes; whatever was made is closed after the test."""
    made: list[GrammarHarness] = []

    def make(**options: Any) -> GrammarHarness:
        made.append(GrammarHarness(**options))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


@pytest.fixture(scope="session")
def real_model() -> RealModel:
    """The default model, loaded once: float32 and exact."""
    # Imported here: most tests of this folder need no torch.
    from runtime.model_runner import load_executor

    config = RuntimeConfig(
        model=str(default_model_path()), dtype="float32", kv_memory_bytes=192 * 1024 * 1024
    )
    source = open_model(config.model)
    loaded = load_executor(source, config)
    info = engine_info("engine", source, loaded, config)
    return RealModel(loaded.executor, info, config, Tokenizer.from_str(source.text.tokenizer_json))
