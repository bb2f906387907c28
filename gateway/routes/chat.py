"""POST /v1/chat/completions."""

from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.constraint_request import constraint_request
from gateway.generation import TextOptions
from gateway.parameter_table import Endpoint
from gateway.parameters import ParameterRules
from gateway.sampling import text_options, token_limit
from gateway.schemas.caching import cache_wish
from gateway.schemas.chat_request import ChatCompletionRequest
from gateway.schemas.chat_response import ChatPresenter
from gateway.schemas.conversation import chat_prompt
from gateway.schemas.tools import chosen_tools
from gateway.serving import Serving, Wanted
from gateway.validation import validate


def chat_router(serving: Serving, *, is_strict: bool) -> APIRouter:
    router = APIRouter()
    rules = ParameterRules(Endpoint.CHAT, is_strict=is_strict)

    @router.post(Endpoint.CHAT)
    async def create_chat_completion(request: Request) -> Response:
        wanted = await serving.read(request, rules, wanted_chat)
        return serving.answer(request, wanted, ChatPresenter)

    return router


def wanted_chat(body: dict[str, Any], ignored: tuple[str, ...]) -> Wanted:
    """What a valid body asks for. Raises: InvalidRequest."""
    fields = validate(ChatCompletionRequest, body)
    limits = {
        name: getattr(fields, name) for name in ("max_completion_tokens", "max_tokens", "n_predict")
    }
    chosen = chosen_tools(fields)
    prompt = chat_prompt(
        fields,
        fields.messages,
        tools=chosen.shown,
        adds_special=bool(fields.add_special_tokens),
    )
    return Wanted(
        operation="chat",
        fields=fields,
        prompts=(prompt,),
        max_tokens=token_limit(limits, min_tokens=fields.min_tokens),
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
        constraint=constraint_request(fields),
        ignored=ignored,
        text=_text_options(fields),
        tools=chosen.request,
        cache=cache_wish(fields),
        service_tier=fields.service_tier and "default",
        metadata=fields.metadata,
    )


def _text_options(fields: ChatCompletionRequest) -> TextOptions:
    return replace(
        text_options(fields),
        splits_reasoning=fields.separate_reasoning is not False,
        shows_reasoning=fields.include_reasoning is not False,
    )
