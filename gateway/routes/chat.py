"""POST /v1/chat/completions."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.constraint_request import constraint_request
from gateway.generation import ChatPrompt
from gateway.parameter_table import Endpoint
from gateway.parameters import ParameterRules
from gateway.sampling import token_limit
from gateway.schemas.chat_request import ChatCompletionRequest
from gateway.schemas.chat_response import ChatPresenter
from gateway.serving import Serving, Wanted
from gateway.validation import validate


def chat_router(serving: Serving, *, is_strict: bool) -> APIRouter:
    router = APIRouter()
    rules = ParameterRules(Endpoint.CHAT, is_strict=is_strict)

    @router.post(Endpoint.CHAT)
    async def create_chat_completion(request: Request) -> Response:
        wanted = await serving.read(request, rules, _wanted)
        return serving.answer(request, wanted, ChatPresenter)

    return router


def _wanted(body: dict[str, Any], ignored: tuple[str, ...]) -> Wanted:
    fields = validate(ChatCompletionRequest, body)
    limits = {
        name: getattr(fields, name) for name in ("max_completion_tokens", "max_tokens", "n_predict")
    }
    return Wanted(
        operation="chat",
        fields=fields,
        prompts=(ChatPrompt(tuple(message.as_dict() for message in fields.messages)),),
        max_tokens=token_limit(limits, min_tokens=fields.min_tokens),
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
        constraint=constraint_request(fields),
        ignored=ignored,
        service_tier=fields.service_tier and "default",
        metadata=fields.metadata,
    )
