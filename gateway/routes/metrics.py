"""GET /metrics in Prometheus' text format."""

from fastapi import APIRouter
from starlette.responses import Response

from telemetry.metrics import Metrics


def metrics_router(metrics: Metrics) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics")
    async def scrape() -> Response:
        body, content_type = metrics.render()
        return Response(body, headers={"content-type": content_type})

    return router
