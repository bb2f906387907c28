"""POST /v1/cache/explain, GET and DELETE /v1/cache: what the prefix cache has, and why not more."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import InvalidRequest, NotAllowed
from gateway.generation import CacheAsker, Generator, ServedCache
from gateway.http_path import READ_METHODS
from gateway.middleware import JSONBody
from gateway.parameter_table import Endpoint
from gateway.parameters import ParameterRules, RulesBySubject
from gateway.request_context import request_context
from gateway.routes.chat import wanted_chat
from gateway.routes.completions import wanted_completion
from gateway.routes.responses import ResponsesApi, ResponsesWanted, fitted, wanted_response
from gateway.schemas.cache_response import CacheExplanations
from gateway.serving import Serving, Wanted

CACHE = "/v1/cache"
EXPLAIN = CACHE + "/explain"
DEFAULT_NODES = 500
MAX_NODES = 2_000
_MAX_DIGITS = 9
# What a request is about, and so which endpoint's it is.
_ENDPOINTS = {
    "messages": Endpoint.CHAT,
    "prompt": Endpoint.COMPLETIONS,
    "input": Endpoint.RESPONSES,
}
_WANTED = {"messages": wanted_chat, "prompt": wanted_completion, "input": wanted_response}


class CacheApi:
    """The routes' work. `responses` knows what conversations go on with."""

    def __init__(self, serving: Serving, *, responses: ResponsesApi, is_strict: bool) -> None:
        self._serving = serving
        self._responses = responses
        self._rules = RulesBySubject(
            {
                subject: ParameterRules(endpoint, is_strict=is_strict)
                for subject, endpoint in _ENDPOINTS.items()
            }
        )

    async def explain(self, request: Request) -> Response:
        wanted = await self._serving.read(request, self._rules, self._wanted)
        name = wanted.fields.model
        cache = self._cache(request, name)
        generator: Generator = self._serving.model(request, name)
        if isinstance(wanted, ResponsesWanted):
            wanted = await self._responses.completed(request, wanted)
            generator = fitted(generator, wanted)
        prepared = await self._serving.prepare(request, wanted, generator)
        model = self._serving.name_in_answers(request, name)
        with self._serving.place(request):
            explanations = await cache.explain(prepared, _asker(request), model=model)
        if len(wanted.prompts) > 1:
            return JSONBody(CacheExplanations(explanations))
        return JSONBody(explanations[0])

    async def show(self, request: Request) -> Response:
        max_nodes = _max_nodes(request.query_params.get("max_nodes"))
        name = request.query_params.get("model")
        cache = self._cache(request, name)
        model = self._serving.name_in_answers(request, name)
        with self._serving.place(request):
            return JSONBody(await cache.describe(_asker(request), model=model, max_nodes=max_nodes))

    async def flush(self, request: Request) -> Response:
        if not request_context(request.scope).account.sees_all:
            raise NotAllowed("Only an admin key may flush the prefix cache.")
        name = request.query_params.get("model")
        cache = self._cache(request, name)
        model = self._serving.name_in_answers(request, name)
        with self._serving.place(request):
            return JSONBody(await cache.flush(model=model))

    def _wanted(self, body: dict[str, Any], ignored: tuple[str, ...]) -> Wanted:
        subject = self._rules.subject_of(body)
        if subject is None:
            raise InvalidRequest(
                "Missing required parameter: 'messages' of a chat request, 'prompt' of a completion"
                " or 'input' of a response.",
                code="missing_required_parameter",
                param="messages",
            )
        return _WANTED[subject](body, ignored)

    def _cache(self, request: Request, name: str | None) -> ServedCache:
        """Raises: NotFound for the model; InvalidRequest where it keeps no cache."""
        cache = self._serving.model(request, name).cache
        if cache is None:
            raise InvalidRequest(
                "This model is served by an engine that cannot be asked about its prefix cache.",
                code="cache_not_available",
                param="model",
            )
        return cache


def cache_router(api: CacheApi) -> APIRouter:
    router = APIRouter()
    router.add_api_route(EXPLAIN, api.explain, methods=["POST"])
    router.add_api_route(CACHE, api.show, methods=READ_METHODS)
    router.add_api_route(CACHE, api.flush, methods=["DELETE"])
    return router


def _asker(request: Request) -> CacheAsker:
    account = request_context(request.scope).account
    return CacheAsker(owner=account.cache_owner, sees_all=account.sees_all)


def _max_nodes(given: str | None) -> int:
    """Raises: InvalidRequest."""
    if given is None:
        return DEFAULT_NODES
    is_number = given.isascii() and given.isdecimal() and len(given) <= _MAX_DIGITS
    if not is_number or not 1 <= int(given) <= MAX_NODES:
        raise InvalidRequest(
            f"Invalid value for 'max_nodes': it is a number from 1 to {MAX_NODES}.",
            param="max_nodes",
        )
    return int(given)
