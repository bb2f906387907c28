"""GET /metrics in Prometheus' text format, or in OpenMetrics' with exemplars.

What each tenant took is for admins' and monitors' keys alone."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.http_path import READ_METHODS
from gateway.request_context import request_context
from telemetry.metrics import Metrics


def metrics_router(metrics: Metrics) -> APIRouter:
    router = APIRouter()

    @router.api_route("/metrics", methods=READ_METHODS)
    async def scrape(request: Request) -> Response:
        accepted = ",".join(request.headers.getlist("accept"))
        # Aside: with many tenants it takes so long that tokens would wait.
        body, content_type = await asyncio.to_thread(
            metrics.render,
            accepted,
            with_tenants=request_context(request.scope).account.sees_tenants,
        )
        return Response(body, headers={"content-type": content_type, "vary": "accept"})

    return router
