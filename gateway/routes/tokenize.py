"""POST /tokenize and /detokenize: what a text or a conversation is to the model, and back."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.generation import Prompt, TextPrompt
from gateway.middleware import JSONBody
from gateway.parameter_table import Endpoint
from gateway.parameters import ParameterRules
from gateway.schemas.conversation import chat_prompt
from gateway.schemas.tokenize_request import DetokenizeRequest, TokenizeRequest
from gateway.schemas.tokenize_response import Detokenized, Tokenized
from gateway.schemas.tools import chosen_tools
from gateway.serving import Serving
from gateway.validation import validate


def tokenize_router(serving: Serving, *, is_strict: bool) -> APIRouter:
    router = APIRouter()
    tokenize_rules = ParameterRules(Endpoint.TOKENIZE, is_strict=is_strict)
    detokenize_rules = ParameterRules(Endpoint.DETOKENIZE, is_strict=is_strict)

    @router.post(Endpoint.TOKENIZE)
    @router.post("/v1" + Endpoint.TOKENIZE)
    async def tokenize(request: Request) -> Response:
        fields, prompt = await serving.bodies.read(request, tokenize_rules, _to_tokenize)
        model = serving.model(request, fields.model)
        with serving.place(request):
            given = await model.tokenize(prompt, with_pieces=bool(fields.return_token_strs))
        return JSONBody(
            Tokenized(len(given.token_ids), given.max_model_len, given.token_ids, given.pieces)
        )

    @router.post(Endpoint.DETOKENIZE)
    @router.post("/v1" + Endpoint.DETOKENIZE)
    async def detokenize(request: Request) -> Response:
        fields = await serving.bodies.read(request, detokenize_rules, _to_detokenize)
        model = serving.model(request, fields.model)
        with serving.place(request):
            text = await model.detokenize(fields.tokens)
        return JSONBody(Detokenized(text, text))

    return router


def _to_tokenize(body: dict[str, Any], _ignored: tuple[str, ...]) -> tuple[TokenizeRequest, Prompt]:
    """Raises: InvalidRequest."""
    fields = validate(TokenizeRequest, body)
    if fields.messages is None:
        text = fields.content if fields.prompt is None else fields.prompt
        return fields, TextPrompt(text=text, adds_special=fields.adds_special)
    tools = chosen_tools(fields).shown
    prompt = chat_prompt(fields, fields.messages, tools=tools, adds_special=fields.adds_special)
    return fields, prompt


def _to_detokenize(body: dict[str, Any], _ignored: tuple[str, ...]) -> DetokenizeRequest:
    """Raises: InvalidRequest."""
    return validate(DetokenizeRequest, body)
