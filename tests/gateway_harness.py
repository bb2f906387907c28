"""A whole gateway over a scripted engine: in process for shapes, on a real socket for streams."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.app import create_app
from gateway.chat_template import ChatTemplate
from gateway.generation import ServedModel
from gateway.http_protocol import BoundedHttpProtocol
from gateway.lifecycle import Lifecycle
from gateway.reasoning import find_markers
from gateway.registry import ModelRegistry
from gateway.settings import Settings
from gateway.token_generator import TokenGenerator
from gateway.tokenizer import Tokenizer
from gateway.tools.families import find_dialect
from runtime.text_assets import TextAssets
from telemetry.metrics import Metrics
from telemetry.testing import in_memory_tracing
from tests.byte_tokenizer import byte_assets
from tests.fake_constraint_probe import FakeConstraintProbe
from tests.fake_token_engine import FakeTokenEngine, Script, hello
from tests.waiting import until

MODEL = "tiny"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"


@dataclass(frozen=True, slots=True)
class Gateway:
    """The app and everything a test may look at or turn."""

    app: FastAPI
    settings: Settings
    engine: FakeTokenEngine
    probe: FakeConstraintProbe
    metrics: Metrics
    spans: InMemorySpanExporter
    lifecycle: Lifecycle


def make_gateway(
    script: Script = hello,
    *,
    tokens_per_event: int = 1,
    name: str = MODEL,
    other_names: Sequence[str] = (),
    aliases: Sequence[str] = (),
    assets: TextAssets | None = None,
    around: Callable[[ServedModel], ServedModel] = lambda model: model,
    **settings: Any,
) -> Gateway:
    """A gateway that serves one model under `name` and `other_names`, and stands in for `aliases`;
    `around` puts another in its place. `settings` are fields of Settings."""
    engine = FakeTokenEngine(script, tokens_per_event=tokens_per_event)
    probe = FakeConstraintProbe()
    tracing, spans = in_memory_tracing()
    assets = assets or byte_assets()
    assert assets.chat_template is not None
    settled, tokenizer = Settings(**settings), Tokenizer(assets)
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
        checked_retries=settled.checked_retries,
    )
    metrics, lifecycle = Metrics(), Lifecycle()
    app = create_app(
        settled,
        models=ModelRegistry(
            {name: around(generator)},
            created=1_700_000_000,
            names=dict.fromkeys(other_names, name),
            aliases=dict.fromkeys(aliases, name),
        ),
        engine=engine,
        metrics=metrics,
        tracing=tracing,
        services=[probe],
        lifecycle=lifecycle,
    )
    return Gateway(app, settled, engine, probe, metrics, spans, lifecycle)


@asynccontextmanager
async def in_process(gateway: Gateway) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without a socket: it sees whole answers only."""
    transport = httpx2.ASGITransport(app=gateway.app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


@asynccontextmanager
async def alive(gateway: Gateway) -> AsyncIterator[httpx2.AsyncClient]:
    """As in_process(), with the services that the app starts and stops."""
    async with gateway.app.router.lifespan_context(gateway.app), in_process(gateway) as client:
        yield client


@asynccontextmanager
async def listening(gateway: Gateway) -> AsyncIterator[str]:
    """Serves on a free port of this machine, in this event loop; gives the base URL."""
    server = uvicorn.Server(_config(gateway))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            await serving


@contextmanager
def listening_in_thread(gateway: Gateway) -> Iterator[str]:
    """As listening(), in a thread of its own, so that many tests can share the server. What the
    gateway holds then belongs to that thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(_config(gateway))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _config(gateway: Gateway) -> uvicorn.Config:
    return uvicorn.Config(
        gateway.app,
        http=BoundedHttpProtocol,
        ws="none",
        log_config=None,
        lifespan="on",
        timeout_graceful_shutdown=1,
    )


def chat(content: Any = "hi", **parameters: Any) -> dict[str, Any]:
    """The body of a chat request with one user message."""
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **parameters}


def completion(prompt: Any = "hi", **parameters: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, **parameters}


def response(given: Any = "hi", **parameters: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": given, **parameters}


def error_of(response: httpx2.Response) -> dict[str, Any]:
    """The error object, checked for its shape."""
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    return error


# A body for each route that generates.
BODIES: dict[str, Callable[..., dict[str, Any]]] = {
    CHAT: chat,
    COMPLETIONS: completion,
    RESPONSES: response,
}
