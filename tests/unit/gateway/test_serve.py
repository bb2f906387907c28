"""What `radixgate serve` puts together, without starting it."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from gateway import serve
from gateway.app import Service, create_app
from gateway.settings import Settings
from gateway.token_generator import TokenGenerator
from telemetry.tracing import Tracing
from tests.tiny_model import write_tiny_model


def services_of_a_tiny_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Service]:
    """What its app starts and stops, beside the engine."""
    found: list[Service] = []

    def recording(settings: Settings, *, services: Sequence[Service], **parts: Any) -> FastAPI:
        found.extend(services)
        return create_app(settings, services=services, **parts)

    monkeypatch.setattr(serve, "create_app", recording)
    serve.assemble(Settings(model=str(write_tiny_model(folder / "tiny"))))
    return found


@pytest.mark.parametrize(("owner", "close"), [(TokenGenerator, "close"), (Tracing, "shutdown")])
async def test_what_has_threads_is_closed_with_the_app_and_beside_the_event_loop(
    owner: type, close: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def recording(_self: object) -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr(owner, close, recording)
    for service in reversed(services_of_a_tiny_server(tmp_path, monkeypatch)):
        await service.stop()
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
