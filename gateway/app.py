"""Builds the HTTP application over an engine and the generators that use it. No module state."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Protocol

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from gateway.auth import ApiKeys, AuthMiddleware
from gateway.disconnect import DisconnectMiddleware
from gateway.errors import InvalidRequest
from gateway.key_file import KeyFileError
from gateway.key_file_watch import KeyFileWatch
from gateway.lifecycle import Lifecycle
from gateway.limiter import Limiter, Limits
from gateway.live_report import LiveReport
from gateway.live_requests import LiveRequests
from gateway.metric_sources import connect_metrics
from gateway.middleware import (
    EXPOSED_HEADERS,
    BodyLimitMiddleware,
    Cors,
    ErrorMiddleware,
    RequestContextMiddleware,
    error_response,
)
from gateway.observation import ObservationMiddleware
from gateway.page import load_page
from gateway.rate_limit_headers import RateLimitMiddleware
from gateway.rate_limits import RateLimits
from gateway.redis_counters import RedisCounters
from gateway.redis_link import RedisLink
from gateway.registry import ModelRegistry
from gateway.response_store import open_store
from gateway.routes.cache import CacheApi, cache_router
from gateway.routes.chat import chat_router
from gateway.routes.completions import completions_router
from gateway.routes.embeddings import embeddings_router
from gateway.routes.health import health_router
from gateway.routes.metrics import metrics_router
from gateway.routes.models import models_router
from gateway.routes.openapi import openapi_router
from gateway.routes.render import render_router
from gateway.routes.responses import ResponsesApi, responses_router
from gateway.routes.tokenize import tokenize_router
from gateway.routes.ui import ui_router
from gateway.routing_errors import RoutingErrors
from gateway.serving import Serving
from gateway.settings import Settings, SettingsError, variable_of
from prefix_cache.tiers.redis_url import RedisURLError
from runtime.messages import EngineInfo
from runtime.token_engine import TokenEngine
from telemetry.metrics import Metrics
from telemetry.tracing import Tracing

_MIB = 1024 * 1024
_LONG_REQUEST_S = 3600.0
_LEASE_MARGIN_S = 60.0
# Of the largest size that a body may have: so much memory all bodies together may take.
_MAX_LARGE_BODIES = 64


class Service(Protocol):
    """Something that lives as long as the app: started before it serves, stopped after."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def create_app(
    settings: Settings,
    *,
    models: ModelRegistry,
    engine: TokenEngine,
    metrics: Metrics,
    tracing: Tracing,
    services: Sequence[Service] = (),
    lifecycle: Lifecycle | None = None,
) -> FastAPI:
    """The lifespan starts `services`, then the engine, and stops them in reverse order. The
    caller keeps `lifecycle` to drain, and shuts `tracing` down.

    Raises: SettingsError for what the settings alone cannot show.
    """
    lifecycle = lifecycle or Lifecycle()
    limiter = _limiter(settings)
    redis = _redis(settings, metrics)
    live = LiveRequests()
    keys, key_file = _keys(settings, metrics)
    rates = _rates(settings, redis)
    own_services = [service for service in (redis, key_file, rates) if service is not None]
    serving = Serving(
        settings,
        models=models,
        limiter=limiter,
        rates=rates,
        lifecycle=lifecycle,
        fingerprint=lambda: system_fingerprint(engine.info, package_version()),
    )
    app = FastAPI(
        title="radixgate",
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lambda _app: _running((*own_services, *services, engine)),
        exception_handlers={RequestValidationError: _on_validation_error},
    )
    responses = _responses(settings, serving, redis)
    routers = (
        chat_router(serving, is_strict=settings.strict_params),
        completions_router(serving, is_strict=settings.strict_params),
        responses_router(responses),
        cache_router(CacheApi(serving, responses=responses, is_strict=settings.strict_params)),
        embeddings_router(serving, is_strict=settings.strict_params),
        tokenize_router(serving, is_strict=settings.strict_params),
        render_router(serving, is_strict=settings.strict_params),
        models_router(models),
        health_router(engine, lifecycle=lifecycle, version=package_version()),
        metrics_router(metrics),
        ui_router(
            LiveReport(live, engine=engine, models=models, version=package_version()), load_page()
        ),
        openapi_router(settings, version=package_version()),
    )
    _include(app, routers)
    connect_metrics(metrics, settings, models=models, engine=engine, version=package_version())
    _add_middleware(
        app, settings, keys=keys, rates=rates, tracing=tracing, metrics=metrics, live=live
    )
    return app


def _responses(settings: Settings, serving: Serving, redis: RedisLink | None) -> ResponsesApi:
    return ResponsesApi(
        serving,
        store=open_store(settings, redis),
        max_bytes=int(settings.max_body_mb * _MIB),
        is_strict=settings.strict_params,
    )


def _include(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    for router in routers:
        app.include_router(router)
    routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    app.add_exception_handler(HTTPException, RoutingErrors(routes))


def package_version() -> str:
    """The installed distribution's version."""
    try:
        return metadata.version("radixgate")
    except metadata.PackageNotFoundError:
        return "0+source"


def system_fingerprint(info: EngineInfo | None, version: str) -> str:
    """Constant for one build, model, number format and device."""
    parts = [version]
    if info is not None:
        parts += [info.model_hash, info.dtype, info.device, info.kv_root.hex()]
    return "fp_" + hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:12]


def _redis(settings: Settings, metrics: Metrics) -> RedisLink | None:
    if settings.redis_url is None:
        return None
    try:
        return RedisLink(settings.redis_url, on_failure=metrics.redis_failed)
    except RedisURLError as error:
        raise SettingsError(f"{variable_of('redis_url')}=(hidden): {error}") from None


def _keys(settings: Settings, metrics: Metrics) -> tuple[ApiKeys, KeyFileWatch | None]:
    """The accepted keys, and what keeps them up to date where there is a key file."""
    secret = settings.server_secret.encode()
    if settings.key_file is None:
        return ApiKeys(settings.api_keys, secret=secret), None
    watch = KeyFileWatch(Path(settings.key_file), on_reload=metrics.key_file_read)
    try:
        return watch.open(settings.api_keys, secret=secret), watch
    except KeyFileError as error:
        raise SettingsError(f"{variable_of('key_file')}: {error}") from None


def _rates(settings: Settings, redis: RedisLink | None) -> RateLimits:
    if redis is None:
        return RateLimits()
    # Longer than any request lives: what a server that died still holds is given back then.
    lease_s = (settings.request_timeout_s or _LONG_REQUEST_S) + _LEASE_MARGIN_S
    return RateLimits(RedisCounters(redis, lease_s=lease_s))


def _limiter(settings: Settings) -> Limiter:
    return Limiter(
        Limits(
            max_running=settings.max_running,
            max_queue=settings.max_queue,
            max_prompt_tokens=settings.max_queue_tokens,
            max_per_tenant=settings.max_requests_per_key,
        )
    )


@asynccontextmanager
async def _running(services: Sequence[Service]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for service in services:
            stack.push_async_callback(service.stop)
            await service.start()
        yield


def _add_middleware(
    app: FastAPI,
    settings: Settings,
    *,
    keys: ApiKeys,
    rates: RateLimits,
    tracing: Tracing,
    metrics: Metrics,
    live: LiveRequests,
) -> None:
    """From the inside out: the last one added is the first to see a request."""
    app.add_middleware(DisconnectMiddleware)
    max_bytes = int(settings.max_body_mb * _MIB)
    app.add_middleware(
        BodyLimitMiddleware, max_bytes=max_bytes, max_total_bytes=_MAX_LARGE_BODIES * max_bytes
    )
    app.add_middleware(
        ObservationMiddleware,
        tracing=tracing,
        metrics=metrics,
        live=live,
        logs_requests=settings.log_requests,
    )
    app.add_middleware(RateLimitMiddleware, rates=rates)
    app.add_middleware(AuthMiddleware, keys=keys, metrics=metrics)
    app.add_middleware(ErrorMiddleware)
    if settings.cors_origins:
        app.add_middleware(
            Cors,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "DELETE", "OPTIONS"),
            allow_headers=("*",),
            expose_headers=EXPOSED_HEADERS,
        )
    app.add_middleware(
        RequestContextMiddleware,
        root_path=settings.root_path,
        shows_content=settings.trace_content,
    )
    app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(settings.trusted_proxies))


async def _on_validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(InvalidRequest("The request's path or query cannot be read."))
