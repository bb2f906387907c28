"""What `radixgate serve` puts together, without starting it."""

import asyncio
import json
import logging
import re
import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI

from gateway import serve
from gateway.app import Service, create_app, package_version
from gateway.settings import Settings
from gateway.token_generator import TokenGenerator
from runtime.model_source import open_model
from runtime.wire import new_ipc_address
from telemetry.metric_export import MetricExport
from telemetry.tracing import Tracing
from tests.fake_token_engine import FakeTokenEngine
from tests.otlp_receiver import closed_port, otlp_receiver
from tests.tiny_model import write_tiny_model
from tests.unit.runtime.fake_runtime import WAIT_S, FakeRuntime
from tests.waiting import until


class ReadyEngine(FakeTokenEngine):
    """One that was there before the server."""

    failure: str | None = None

    async def wait_ready(self, timeout_s: float) -> None:
        assert timeout_s > 0


def services_of_a_tiny_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Service]:
    """What its app starts and stops, beside the engine."""
    found: list[Service] = []

    def recording(settings: Settings, *, services: Sequence[Service], **parts: Any) -> FastAPI:
        found.extend(services)
        return create_app(settings, services=services, **parts)

    monkeypatch.setattr(serve, "create_app", recording)
    serve.assemble(Settings(model=str(write_tiny_model(folder / "tiny"))))
    return found


@pytest.mark.parametrize(
    ("owner", "close"),
    [(TokenGenerator, "close"), (Tracing, "shutdown"), (MetricExport, "close")],
)
async def test_what_has_threads_is_closed_with_the_app_and_beside_the_event_loop(
    owner: type, close: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def recording(_self: object) -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr(owner, close, recording)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", closed_port())
    for service in reversed(services_of_a_tiny_server(tmp_path, monkeypatch)):
        await service.stop()
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


async def test_metrics_are_sent_as_long_as_the_app_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with otlp_receiver("http/protobuf") as receiver:
        for key, value in receiver.environment.items():
            monkeypatch.setenv(key, value)
        services = services_of_a_tiny_server(tmp_path, monkeypatch)
        assert receiver.metrics == []
        exports = [service for service in services if isinstance(service, serve.AtEnd)]
        for service in exports:
            await service.start()
        received = await asyncio.to_thread(receiver.wait_for_metrics)
        for service in exports:
            await service.stop()
    assert received.one("radixgate.requests_in_flight").value == 0
    assert received.points[0].resource["service.version"] == package_version()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"key_file": "KEYS"}, r"^radixgate: RADIXGATE_KEY_FILE: \S+keys\.yaml, line 1, 'keys': "),
        (
            {"redis_url": "redis://:pw@h/x"},
            r"^radixgate: RADIXGATE_REDIS_URL=\(hidden\): expected ",
        ),
        (
            {"cache_redis_url": "redis://:pw@h/x", "server_secret": "s" * 16},
            r"^radixgate: RADIXGATE_CACHE_REDIS_URL=\(hidden\): expected ",
        ),
        (
            {"cache_redis_url": "redis://:pw@h/0?no_option=1", "server_secret": "s" * 16},
            r"^radixgate: RADIXGATE_CACHE_REDIS_URL=\(hidden\): .*no_option",
        ),
        (
            {"cache_redis_url": "redis://:pw@h/0"},
            r"^radixgate: RADIXGATE_CACHE_REDIS_URL needs RADIXGATE_SERVER_SECRET, ",
        ),
        (
            {"cache_dir": "KEYS/cache"},
            r"^radixgate: RADIXGATE_CACHE_DIR='\S+': expected a folder that can be written \(Not a",
        ),
    ],
)
def test_setting_that_only_the_start_can_judge_ends_it_in_one_line(
    settings: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("keys: none")
    monkeypatch.setattr(serve, "configure_logging", lambda *_, **__: None)
    model = str(write_tiny_model(tmp_path / "tiny"))
    given = {name: value.replace("KEYS", str(path)) for name, value in settings.items()}
    assert serve.serve(Settings.load({}, {"model": model, "port": 0, **given})) == 2
    error = capsys.readouterr().err
    assert re.search(said, error)
    assert error.count("\n") == 1
    assert "pw" not in error


@pytest.mark.parametrize(
    ("has_template", "endpoint", "field"),
    [(True, "chat/completions", "messages"), (False, "completions", "prompt")],
)
def test_the_request_to_paste_is_one_that_the_model_can_answer(
    has_template: bool, endpoint: str, field: str, tmp_path: Path
) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    if not has_template:
        (folder / "tokenizer_config.json").write_text("{}")
    assembly = serve.assemble(Settings(model=str(folder)))
    serving, curl = serve.banner(
        "http://h:1", assembly.model_id, has_chat=assembly.has_chat
    ).splitlines()
    assert serving == "radixgate: serving tiny at http://h:1/v1 (to look at: http://h:1/ui), try:"
    command = shlex.split(curl)
    assert command[1] == f"http://h:1/v1/{endpoint}"
    assert json.loads(command[-1]).keys() == {"model", "max_tokens", field}


def test_a_model_is_served_under_the_names_that_were_given(tmp_path: Path) -> None:
    folder = str(write_tiny_model(tmp_path / "tiny"))
    settings = Settings(
        model=folder, served_model_name=("main", "second"), model_aliases=("gpt-4o=second",)
    )
    assert serve.assemble(settings).model_id == "main"


def test_an_alias_of_what_is_not_served_ends_the_start_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve, "configure_logging", lambda *_, **__: None)
    folder = str(write_tiny_model(tmp_path / "tiny"))
    assert serve.serve(Settings(model=folder, port=0, model_aliases=("gpt-4o=nope",))) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "radixgate: model alias 'gpt-4o=nope': 'nope' is not served; served is tiny"


async def test_no_collection_walks_what_is_loaded_once_the_server_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said_before = []
    monkeypatch.setattr("gc.freeze", lambda: said_before.append(capsys.readouterr().out))
    engine = ReadyEngine()
    assembly = serve.assemble(
        Settings(model=str(write_tiny_model(tmp_path / "tiny"))), engine=engine
    )
    assert assembly.engine is engine
    await serve.GatewayServer(assembly, "http://h:1")._announce()
    assert said_before == [""]
    assert "serving tiny" in capsys.readouterr().out


async def test_a_runtime_elsewhere_is_used_if_it_has_the_servers_model(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    async with FakeRuntime(new_ipc_address(tmp_path)).running() as runtime:
        settings = Settings(model=str(model), runtime_url=runtime.address)
        engine = serve.assemble(settings).engine
        await engine.start()
        try:
            await until(lambda: engine.failure is not None)
            assert "another model" in str(engine.failure)
            own_hash = open_model(model).content_hash()
            runtime.info = msgspec.structs.replace(
                runtime.info, incarnation="second", model_hash=own_hash
            )
            await engine.wait_ready(WAIT_S)
            assert engine.info == runtime.info
        finally:
            await engine.stop()


def test_the_event_loop_does_not_wait_long_for_threads_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_host: str, _port: int) -> None:
        raise serve.StartError("no socket")

    monkeypatch.setattr(serve, "bind", refuse)
    monkeypatch.setattr(serve, "configure_logging", lambda *_args, **_kwargs: None)
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "setLevel", lambda _level: None)
    before_s = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)  # Python's own
        assert serve.serve(Settings()) == 1
        assert sys.getswitchinterval() <= 0.001
    finally:
        sys.setswitchinterval(before_s)
