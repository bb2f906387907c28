"""Runtimes that share a Redis: one that differs from the others ends its start, and says why."""

import os
from pathlib import Path

import msgspec
import pytest

from runtime import wire, worker_process
from runtime.config import RuntimeConfig, TierConfig
from runtime.worker_options import EXIT_LOAD_FAILED, WorkerOptions
from tests.redis_pages import open_calls, open_tier
from tests.tiny_model import write_tiny_model
from tests.valkey_server import ValkeyServer

PASSWORD = "open-sesame"


def options_of(folder: Path, *, failure: Path) -> WorkerOptions:
    model = write_tiny_model(folder / "tiny")
    return WorkerOptions(
        wire.new_ipc_address(folder),
        RuntimeConfig(
            model=str(model),
            dtype="float32",
            device="cpu",
            kv_memory_bytes=4 * 1024 * 1024,
            num_threads=1,
            tiers=TierConfig(model_id="model", secret_check="check"),
        ),
        parent_pid=os.getpid(),
        failure_path=str(failure),
    )


async def test_a_runtime_that_differs_from_the_others_of_its_model_is_a_failed_load(
    valkey: ValkeyServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_calls(valkey.url) as calls:
        calls.run([(b"CONFIG", b"SET", b"requirepass", PASSWORD.encode())])
    url = f"redis://:{PASSWORD}@127.0.0.1:{valkey.port}/0"
    options = options_of(tmp_path, failure=tmp_path / "failure")
    with open_tier(url):  # another model's root under the same id
        process = await worker_process.launch(options, cache_redis_url=url)
        assert await process.wait() == EXIT_LOAD_FAILED
    reason = (tmp_path / "failure").read_text(encoding="utf-8")
    assert reason.startswith("this server and another one that serves model ")
    assert "differ in root" in reason
    assert "RADIXGATE_DTYPE" in reason
    assert "\n" not in reason
    shown = reason + capfd.readouterr().err + msgspec.json.encode(options).decode()
    assert PASSWORD not in shown
