"""POST /v1/embeddings: no served model makes vectors, and a wrong one is worse than none.

A request is read first, so that a client with a malformed one hears of that.
"""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import InvalidRequest
from gateway.parameter_table import Endpoint
from gateway.parameters import ParameterRules
from gateway.request_context import request_context
from gateway.schemas.embeddings_request import EmbeddingsRequest
from gateway.serving import Serving
from gateway.validation import validate


def embeddings_router(serving: Serving, *, is_strict: bool) -> APIRouter:
    router = APIRouter()
    rules = ParameterRules(Endpoint.EMBEDDINGS, is_strict=is_strict)

    @router.post(Endpoint.EMBEDDINGS)
    async def create_embedding(request: Request) -> Response:
        fields = await serving.bodies.read(request, rules, _fields)
        serving.model(request, fields.model)
        observation = request_context(request.scope).observation
        assert observation is not None, "API routes are observed"
        observation.trace.describe(operation="embeddings", model=fields.model, attributes={})
        raise InvalidRequest(
            f"The model '{fields.model}' generates text: it is no embedding model, and vectors made"
            " with it would be wrong. This server serves no embedding model.",
            code="unsupported_value",
            param="model",
        )

    return router


def _fields(body: dict[str, Any], _ignored: tuple[str, ...]) -> EmbeddingsRequest:
    return validate(EmbeddingsRequest, body)
