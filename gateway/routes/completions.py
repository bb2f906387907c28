"""POST /v1/completions, the older API that takes a text or token ids."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.constraint_request import constraint_request
from gateway.errors import InvalidRequest
from gateway.parameter_table import Endpoint
from gateway.parameters import ParameterRules
from gateway.sampling import text_options, token_limit
from gateway.schemas.caching import cache_wish
from gateway.schemas.completion_request import DEFAULT_MAX_TOKENS, MAX_PROMPTS, CompletionRequest
from gateway.schemas.completion_response import CompletionPresenter
from gateway.serving import Serving, Wanted
from gateway.validation import validate

# Prompts times n: each choice is a sequence of its own in the engine.
MAX_TOTAL_CHOICES = MAX_PROMPTS


def completions_router(serving: Serving, *, is_strict: bool) -> APIRouter:
    router = APIRouter()
    rules = ParameterRules(Endpoint.COMPLETIONS, is_strict=is_strict)

    @router.post(Endpoint.COMPLETIONS)
    async def create_completion(request: Request) -> Response:
        wanted = await serving.read(request, rules, wanted_completion)
        return serving.answer(request, wanted, CompletionPresenter)

    return router


def wanted_completion(body: dict[str, Any], ignored: tuple[str, ...]) -> Wanted:
    """What a valid body asks for. Raises: InvalidRequest."""
    fields = validate(CompletionRequest, body)
    limits = {"max_tokens": fields.max_tokens, "n_predict": fields.n_predict}
    is_silent = fields.max_tokens is None and fields.n_predict is None
    if is_silent:
        limits = {"max_tokens": DEFAULT_MAX_TOKENS}
    wanted = Wanted(
        operation="text_completion",
        fields=fields,
        prompts=fields.prompts,
        max_tokens=token_limit(limits, min_tokens=fields.min_tokens, allows_zero=bool(fields.echo)),
        logprobs=fields.logprobs,
        constraint=constraint_request(fields),
        ignored=ignored,
        text=text_options(fields, echoes=bool(fields.echo)),
        has_default_limit=is_silent,
        cache=cache_wish(fields),
    )
    if wanted.num_choices > MAX_TOTAL_CHOICES:
        raise InvalidRequest(
            f"Invalid value for 'prompt': {wanted.num_choices} choices were asked for with it, at "
            f"most {MAX_TOTAL_CHOICES} are given at once.",
            code="array_above_max_length",
            param="prompt",
        )
    return wanted
