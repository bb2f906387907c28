"""GET /health (a restart would not help), /ready (it can answer), /version."""

from fastapi import APIRouter
from starlette.responses import Response

from gateway.errors import Overloaded
from gateway.http_path import READ_METHODS
from gateway.lifecycle import Lifecycle
from gateway.middleware import JSONBody
from runtime.token_engine import EngineState, TokenEngine

_REASONS = {
    EngineState.STARTING: "the engine is starting",
    EngineState.DEAD: "the engine died and is not back yet",
    EngineState.REFUSED: "the engine that answers cannot be used here; the log says why",
    EngineState.FAILED: "the engine failed for good; the log says why",
    EngineState.STOPPED: "the engine is stopped",
}


def health_router(engine: TokenEngine, *, lifecycle: Lifecycle, version: str) -> APIRouter:
    router = APIRouter()

    @router.api_route("/health", methods=READ_METHODS)
    async def health() -> Response:
        # A dead or refused engine may come back or be replaced; a failed one comes with a new
        # server only.
        if engine.state is EngineState.FAILED:
            raise Overloaded(f"Not healthy: {_REASONS[EngineState.FAILED]}.", code="engine_failed")
        return JSONBody({"status": "ok"})

    @router.api_route("/ready", methods=READ_METHODS)
    async def ready() -> Response:
        reason = "the server is stopping" if lifecycle.is_draining else _REASONS.get(engine.state)
        if reason is not None:
            raise Overloaded(f"Not ready: {reason}.", code="not_ready", retry_after_s=1)
        return JSONBody({"status": "ready"})

    @router.api_route("/version", methods=READ_METHODS)
    async def read_version() -> Response:
        info = engine.info
        return JSONBody({"version": version, "engine": info and info.incarnation})

    return router
