"""`radixgate serve`: from settings to a running server, and the end of it.

The socket is bound before anything is loaded, so that a taken port is known at once. HTTP is
answered while the runtime loads (`/ready` says 503 until then); the last line printed at start
says where and how to ask.
"""

import asyncio
import gc
import logging
import math
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

import uvicorn
from fastapi import FastAPI

from gateway.app import create_app, package_version
from gateway.chat_template import ChatTemplate
from gateway.default_model import FetchError
from gateway.http_protocol import BoundedHttpProtocol
from gateway.kept_secret import with_kept_secret
from gateway.lifecycle import Lifecycle
from gateway.model_names import ModelNameError, settle_names
from gateway.reasoning import find_markers
from gateway.registry import ModelRegistry
from gateway.runtime_settings import find_model, runtime_config, warn_of_unused
from gateway.settings import Settings, SettingsError
from gateway.token_generator import TokenGenerator
from gateway.tokenizer import Tokenizer
from gateway.tools.families import DialectSetting, find_dialect
from grammar.matcher import Vocabulary
from grammar.probe import ConstraintProbe
from runtime.errors import RuntimePackageError
from runtime.messages import EngineInfo, StepSpan
from runtime.model_source import ModelSource, open_model
from runtime.remote_engine import RemoteEngine
from runtime.supervisor import EngineSupervisor, LogFormat, SupervisorPolicy
from runtime.token_engine import EngineState, EngineUnavailable, TokenEngine
from telemetry.errors import SetupError
from telemetry.logs import configure_logging
from telemetry.metric_export import MetricExport
from telemetry.metrics import Metrics
from telemetry.tracing import Tracing

logger = logging.getLogger(__name__)

EXIT_BAD_SETTINGS = 2
_BACKLOG = 2048
_LOAD_TIMEOUT_S = 900.0
# A runtime elsewhere may come when it likes; this is how often its absence is told.
_PATIENCE_S = 60.0
# Longer than the minute for which load balancers keep a connection: they shall close it, not we,
# or a request that is on its way at that moment is lost.
_KEEP_ALIVE_S = 75
# How long the event loop waits for a thread that is at work in Python, such as the one that encodes
# spans: with Python's own 5 ms tokens wait for most of each batch (tests.bench.tracing_cost).
_SWITCH_INTERVAL_S = 0.0005
# How long after the drain's end a client has to read its error before its connection is cut.
_CUT_OFF_S = 5.0


class StartError(Exception):
    """The server cannot start; the message is one line that says what to do."""


def serve(settings: Settings) -> int:
    """Serves until a signal ends it; returns the exit code."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    configure_logging(settings.log_level, json_lines=settings.log_json)
    # What it says at info (started, waiting for, finished) our own lines say shorter.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.root.level))
    try:
        with bind(settings.host, settings.port) as listener:
            return _run(assemble(settings), listener)
    except (StartError, ModelNameError, FetchError, RuntimePackageError, SetupError) as error:
        return _complain(str(error))
    except SettingsError as error:
        _complain(str(error))
        return EXIT_BAD_SETTINGS
    except KeyboardInterrupt:  # before there is a server, such as in a long download
        return 128 + signal.SIGINT


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises: StartError where the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise StartError(
            f"cannot listen on {host} port {port} ({error.strerror}): stop what uses it, or choose"
            f" another, as in `PORT={port + 1 if port < 65535 else 8000} make serve`"
        ) from None
    return listener


class ServedEngine(TokenEngine, Protocol):
    """A TokenEngine that says when it is ready, and why it is not."""

    @property
    def failure(self) -> str | None: ...

    async def wait_ready(self, timeout_s: float) -> None:
        """Raises: EngineUnavailable once it cannot become READY any more, TimeoutError."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts that the server holds on to. `runtime_url` None: the runtime is its child."""

    app: FastAPI
    engine: ServedEngine
    lifecycle: Lifecycle
    model_id: str
    has_chat: bool
    drain_timeout_s: float
    runtime_url: str | None = None


class AtEnd:
    """A service that is to be closed when the app ends. In a thread: an exporter that flushes may
    block for seconds. `start` must not."""

    def __init__(
        self, close: Callable[[], None], *, start: Callable[[], None] | None = None
    ) -> None:
        self._close = close
        self._start = start

    async def start(self) -> None:
        if self._start is not None:
            self._start()

    async def stop(self) -> None:
        await asyncio.to_thread(self._close)


def assemble(settings: Settings, *, engine: ServedEngine | None = None) -> Assembly:
    """Puts the server together; starts nothing. `engine` None: the one the settings ask for.
    A cache folder is made here, and the secret in it.

    Raises: FetchError, ModelError, ModelNameError, SettingsError, SetupError.
    """
    settings = with_kept_secret(settings)
    path, own_name = find_model(settings)
    names = settle_names(own_name, settings.served_model_name, settings.model_aliases)
    source = open_model(path)
    tracing = Tracing.from_environment(service_version=package_version())
    metrics = Metrics()
    metrics.set_span_source(
        exported=lambda: tracing.num_exported_spans, dropped=lambda: tracing.num_dropped_spans
    )
    engine = engine or _engine(
        settings, source, path=path, model_id=names.id, on_step=tracing.record_step
    )
    template = template_of(source, settings.tool_dialect)
    tokenizer = Tokenizer(source.text)
    markers = find_markers(
        settings.reasoning_markers, tokenizer, template=source.text.chat_template
    )
    probe = ConstraintProbe(vocabulary_of(source), time_limit_s=settings.compile_timeout_s)
    generator = TokenGenerator(
        engine=engine,
        tokenizer=tokenizer,
        template=template,
        probe=probe,
        markers=markers,
        checked_retries=settings.checked_retries,
    )
    lifecycle = Lifecycle()
    app = create_app(
        settings,
        models=ModelRegistry(
            {names.id: generator},
            created=int(time.time()),
            names=dict.fromkeys(names.others, names.id),
            aliases=names.aliases,
        ),
        engine=engine,
        metrics=metrics,
        tracing=tracing,
        services=(*_exports(metrics), AtEnd(tracing.shutdown), probe, AtEnd(generator.close)),
        lifecycle=lifecycle,
    )
    return Assembly(
        app,
        engine,
        lifecycle,
        model_id=names.id,
        has_chat=template is not None,
        drain_timeout_s=settings.drain_timeout_s,
        runtime_url=settings.runtime_url,
    )


def _exports(metrics: Metrics) -> tuple[AtEnd, ...]:
    """What sends metrics to a collector, where one is set. Raises: SetupError."""
    export = MetricExport.from_environment(metrics, service_version=package_version())
    return () if export is None else (AtEnd(export.close, start=export.start),)


def _engine(
    settings: Settings,
    source: ModelSource,
    *,
    path: Path,
    model_id: str,
    on_step: Callable[[StepSpan], None],
) -> ServedEngine:
    """A runtime elsewhere, or one of its own, as a child."""
    if settings.runtime_url is not None:
        warn_of_unused(settings)
        return RemoteEngine(
            settings.runtime_url,
            hang_timeout_s=settings.hang_timeout_s,
            check=lambda info: _other_model(info, source),
            on_step=on_step,
        )
    return EngineSupervisor(
        runtime_config(settings, path, model_id=model_id),
        policy=SupervisorPolicy(hang_timeout_s=settings.hang_timeout_s),
        logs=LogFormat(settings.log_level, json_lines=settings.log_json),
        cache_redis_url=settings.cache_redis_url,
        on_step=on_step,
    )


async def _other_model(info: EngineInfo, source: ModelSource) -> str | None:
    """Why answers of this runtime would be nonsense here. In a thread: files are read whole."""
    try:
        own_hash = await asyncio.to_thread(source.content_hash)
    except OSError as error:
        return f"the model's files cannot be read: {error}"
    if info.model_hash == own_hash:
        return None
    return f"the runtime serves another model than this server ({info.architecture}); give both one"


def vocabulary_of(source: ModelSource) -> Vocabulary:
    """The tokenizer as grammar engines know it."""
    text = source.text
    return Vocabulary(text.tokenizer_json, text.vocab_size, tuple(text.eos_token_ids))


def template_of(source: ModelSource, dialect: DialectSetting = "auto") -> ChatTemplate | None:
    """None for a model without a chat template."""
    template = source.text.chat_template
    if template is None:
        return None
    return ChatTemplate(
        template, source.text.special_tokens, dialect=find_dialect(dialect, template)
    )


class GatewayServer(uvicorn.Server):
    """uvicorn, with a word when the model is ready, and /ready at 503 from the first signal on."""

    def __init__(self, assembly: Assembly, url: str) -> None:
        super().__init__(
            uvicorn.Config(
                assembly.app,
                loop="uvloop",
                http=BoundedHttpProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=math.ceil(assembly.drain_timeout_s + _CUT_OFF_S),
            )
        )
        self.exit_code = 0
        self._assembly = assembly
        self._url = url
        self._herald: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._assembly.lifecycle.drain()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._herald = asyncio.create_task(self._announce())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._herald is not None:
            self._herald.cancel()
        end = asyncio.create_task(self._end_requests())
        try:
            await super().shutdown(sockets)
        finally:
            end.cancel()

    async def _end_requests(self) -> None:
        """What outlasts the drain gets an error from the stopped engine instead of a cut."""
        await asyncio.sleep(self._assembly.drain_timeout_s)
        await self._assembly.engine.stop()

    async def _announce(self) -> None:
        """Says that the model is ready, or why it never will be and ends the server."""
        engine = self._assembly.engine
        try:
            if self._assembly.runtime_url is not None:
                await self._wait_for_others()
            else:
                await engine.wait_ready(_LOAD_TIMEOUT_S)
        except (EngineUnavailable, TimeoutError) as error:
            if engine.state is not EngineState.STOPPED:
                self.exit_code = _complain(engine.failure or str(error) or "the load took too long")
                self.should_exit = True
        else:
            # What is loaded lives as long as the server: no collection shall walk it while tokens
            # wait (a full one takes 70 ms).
            gc.collect()
            gc.freeze()
            assembly = self._assembly
            sys.stdout.write(banner(self._url, assembly.model_id, has_chat=assembly.has_chat))
            sys.stdout.flush()

    async def _wait_for_others(self) -> None:
        """Who starts a runtime elsewhere is not known here: it is waited for without an end."""
        engine = self._assembly.engine
        while True:
            try:
                await engine.wait_ready(_PATIENCE_S)
                return
            except TimeoutError:
                reason = engine.failure or "it does not answer"
                logger.warning("no runtime yet at %s: %s", self._assembly.runtime_url, reason)


def banner(url: str, model_id: str, *, has_chat: bool) -> str:
    """The lines that end the start: the URL and a request to paste that the model can answer."""
    endpoint, prompt = "completions", '"prompt": "The sky is"'
    if has_chat:
        endpoint = "chat/completions"
        prompt = '"messages": [{"role": "user", "content": "Say hello."}]'
    # A small model may go on for ever: the first answer shall be there at once.
    body = f'{{"model": "{model_id}", "max_tokens": 64, {prompt}}}'
    return (
        f"radixgate: serving {model_id} at {url}/v1 (to look at: {url}/ui), try:\n"
        f"curl {url}/v1/{endpoint} -H 'content-type: application/json' -d '{body}'\n"
    )


def _run(assembly: Assembly, listener: socket.socket) -> int:
    host, port = listener.getsockname()[:2]
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    url = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
    what = "loading" if assembly.runtime_url is None else f"waiting for {assembly.runtime_url} with"
    sys.stdout.write(f"radixgate: {what} {assembly.model_id}\n")
    sys.stdout.flush()
    server = GatewayServer(assembly, url)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn raises the signal again once it has drained
        return 128 + signal.SIGINT
    return server.exit_code


def _complain(line: str) -> int:
    sys.stderr.write(f"radixgate: {line}\n")
    return 1
