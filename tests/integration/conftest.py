"""Fixtures of the integration tests."""

import pytest
from tokenizers import Tokenizer

from runtime.config import RuntimeConfig
from runtime.messages import EngineInfo
from runtime.model_source import open_model
from tests.engine_harness import EngineHarness
from tests.model_file import default_model_path
from tests.real_model import RealModel


@pytest.fixture
def harness() -> EngineHarness:
    """An engine with room for everything a test sends."""
    return EngineHarness()


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
    info = EngineInfo(
        engine_id="engine",
        incarnation="first",
        model_hash=source.content_hash(),
        architecture=source.architecture,
        dtype=loaded.dtype,
        device=loaded.device,
        vocab_size=loaded.vocab_size,
        eos_token_ids=tuple(source.text.eos_token_ids),
        max_model_len=loaded.max_model_len,
        page_size=loaded.page_size,
        num_pages=loaded.num_pages,
        max_running=config.max_running,
        kv_root=loaded.kv_root,
    )
    return RealModel(loaded.executor, info, config, Tokenizer.from_str(source.text.tokenizer_json))
