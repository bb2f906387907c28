"""GET /v1/models and /v1/models/{id}."""

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from gateway.middleware import JSONBody
from gateway.registry import ModelRegistry


class ModelCard(msgspec.Struct, frozen=True):
    """One name of a served model; `root` is the id of that model. `max_model_len` is an addition
    that clients of other servers read, left out until it is known."""

    id: str
    root: str
    created: int
    max_model_len: int | msgspec.UnsetType
    object: str = "model"
    owned_by: str = "radixgate"


class ModelList(msgspec.Struct, frozen=True):
    data: list[ModelCard]
    object: str = "list"


def models_router(models: ModelRegistry) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/models")
    async def list_models() -> Response:
        return JSONBody(ModelList([_card(models, name) for name in models.names]))

    # Ids may hold slashes, which clients send raw or percent-encoded.
    @router.get("/v1/models/{model:path}")
    async def retrieve_model(model: str) -> Response:
        models.find(model)
        return JSONBody(_card(models, model))

    return router


def _card(models: ModelRegistry, name: str) -> ModelCard:
    limit = models.find(name).capabilities.max_model_len
    return ModelCard(
        id=name,
        root=models.id_of(name),
        created=models.created,
        max_model_len=msgspec.UNSET if limit is None else limit,
    )
