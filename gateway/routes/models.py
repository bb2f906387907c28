"""GET /v1/models and /v1/models/{id}."""

import msgspec
from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.http_path import READ_METHODS
from gateway.middleware import JSONBody
from gateway.registry import ModelRegistry
from gateway.request_context import request_context
from gateway.schemas.models_response import ModelCard, ModelList


def models_router(models: ModelRegistry) -> APIRouter:
    router = APIRouter()

    @router.api_route("/v1/models", methods=READ_METHODS)
    async def list_models(request: Request) -> Response:
        seen = models.open_to(request_context(request.scope).account)
        return JSONBody(ModelList([_card(seen, name) for name in seen.names]))

    # Ids may hold slashes, which clients send raw or percent-encoded.
    @router.api_route("/v1/models/{model:path}", methods=READ_METHODS)
    async def retrieve_model(request: Request, model: str) -> Response:
        if not model:
            raise HTTPException(404)
        return JSONBody(_card(models.open_to(request_context(request.scope).account), model))

    return router


def _card(models: ModelRegistry, name: str) -> ModelCard:
    limit = models.find(name).capabilities.max_model_len
    return ModelCard(
        id=name,
        root=models.id_of(name),
        created=models.created,
        max_model_len=msgspec.UNSET if limit is None else limit,
    )
