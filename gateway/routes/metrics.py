"""GET /metrics in Prometheus' text format."""

from fastapi import APIRouter
from starlette.responses import Response

from gateway.http_path import READ_METHODS
from telemetry.metrics import Metrics


def metrics_router(metrics: Metrics) -> APIRouter:
    router = APIRouter()

    @router.api_route("/metrics", methods=READ_METHODS)
    async def scrape() -> Response:
        body, content_type = metrics.render()
        return Response(body, headers={"content-type": content_type})

    return router
