"""GET /openapi.json: what the server takes and gives, made of what it checks requests with. As
all but the probes it needs a key where keys are set.
"""

from functools import cache

from fastapi import APIRouter
from starlette.responses import Response

from gateway.http_path import READ_METHODS
from gateway.middleware import JSONBody
from gateway.openapi_document import openapi_document
from gateway.settings import Settings


def openapi_router(settings: Settings, *, version: str) -> APIRouter:
    router = APIRouter()

    @cache
    def document() -> Response:
        """Made when it is first asked for, in 20 ms."""
        return JSONBody(
            openapi_document(
                version=version,
                needs_key=bool(settings.api_keys) or settings.key_file is not None,
                is_strict=settings.strict_params,
                root_path=settings.root_path,
            )
        )

    @router.api_route("/openapi.json", methods=READ_METHODS)
    async def read_document() -> Response:
        return document()

    return router
