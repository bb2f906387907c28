"""The whole path on a real socket: HTTP, text, wire, scheduler, prefix cache, an executor."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.app import create_app
from gateway.chat_template import ChatTemplate
from gateway.reasoning import find_markers
from gateway.registry import ModelRegistry
from gateway.settings import Settings
from gateway.token_generator import TokenGenerator
from gateway.tokenizer import Tokenizer
from gateway.tools.families import find_dialect
from grammar.engines import load_engine
from grammar.matcher import Vocabulary
from runtime.batch import Executor
from runtime.config import RuntimeConfig
from runtime.grammar_builder import EngineLoader
from runtime.messages import EngineInfo, StepSpan
from runtime.text_assets import TextAssets
from telemetry.metrics import Metrics
from telemetry.testing import in_memory_tracing
from telemetry.tracing import Tracing
from tests.byte_tokenizer import VOCAB_SIZE, byte_assets
from tests.fake_constraint_probe import FakeConstraintProbe
from tests.fake_executor import FakeExecutor
from tests.fake_token_engine import INFO
from tests.gateway_harness import MODEL
from tests.stepped_engine import SteppedEngine
from tests.waiting import until

PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class WholePath:
    """One server. `lost_at` has the engine's `num_steps` at the moment at which the server saw
    each connection end."""

    base_url: str
    engine: SteppedEngine
    probe: FakeConstraintProbe
    tracing: Tracing
    lost_at: Sequence[int]

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.base_url, timeout=30.0)


def byte_engine(
    executor: FakeExecutor | None = None,
    *,
    num_pages: int = 512,
    max_model_len: int = 2048,
    max_running: int = 8,
    max_step_tokens: int = 256,
    page_bytes: int = 0,
    load: EngineLoader = load_engine,
    trace_steps: float = 0.0,
    on_step: Callable[[StepSpan], None] | None = None,
) -> SteppedEngine:
    """An engine whose tokens are bytes, over the executor that finds every misplaced page."""
    info = msgspec.structs.replace(
        INFO,
        num_pages=num_pages,
        max_model_len=max_model_len,
        page_size=PAGE_SIZE,
        page_bytes=page_bytes,
    )
    return stepped_engine(
        executor or FakeExecutor(PAGE_SIZE, VOCAB_SIZE),
        info,
        assets=byte_assets(),
        max_running=max_running,
        max_step_tokens=max_step_tokens,
        load=load,
        trace_steps=trace_steps,
        on_step=on_step,
    )


def stepped_engine(
    executor: Executor,
    info: EngineInfo,
    *,
    assets: TextAssets,
    max_running: int,
    max_step_tokens: int,
    load: EngineLoader = load_engine,
    trace_steps: float = 0.0,
    on_step: Callable[[StepSpan], None] | None = None,
) -> SteppedEngine:
    """An engine for the model that `assets` are the text half of."""
    return SteppedEngine(
        executor,
        msgspec.structs.replace(info, max_running=max_running),
        config=RuntimeConfig(
            model="tiny",
            max_running=max_running,
            max_step_tokens=max_step_tokens,
            trace_steps=trace_steps,
        ),
        vocabulary=Vocabulary(
            assets.tokenizer_json, assets.vocab_size, tuple(assets.eos_token_ids)
        ),
        load=load,
        on_step=on_step,
    )


@asynccontextmanager
async def serving(
    engine: SteppedEngine,
    *,
    tracing: Tracing | None = None,
    assets: TextAssets | None = None,
    **settings: Any,
) -> AsyncIterator[WholePath]:
    """The engine behind a gateway with these settings, for the length of the block."""
    assets = assets or byte_assets()
    assert assets.chat_template is not None
    tracing = tracing or in_memory_tracing()[0]
    probe, settled, tokenizer = FakeConstraintProbe(), Settings(**settings), Tokenizer(assets)
    generator = TokenGenerator(
        engine=engine,
        tokenizer=tokenizer,
        template=ChatTemplate(
            assets.chat_template,
            assets.special_tokens,
            dialect=find_dialect(settled.tool_dialect, assets.chat_template),
        ),
        probe=probe,
        markers=find_markers(settled.reasoning_markers, tokenizer, template=assets.chat_template),
    )
    app = create_app(
        settled,
        models=ModelRegistry({MODEL: generator}, created=1_700_000_000),
        engine=engine,
        metrics=Metrics(),
        tracing=tracing,
    )
    lost_at: list[int] = []

    class WatchedConnection(HttpToolsProtocol):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost_at.append(engine.num_steps)

    config = uvicorn.Config(
        app, http=WatchedConnection, log_config=None, lifespan="on", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started or running.done())
        try:
            yield WholePath(base_url, engine, probe, tracing, lost_at)
        finally:
            server.should_exit = True
            await running
            engine.check()
            generator.close()
