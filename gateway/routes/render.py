"""POST /v1/chat/completions/render and /apply-template: what a chat is to the model, without an
answer. It is refused for whatever the chat itself would be refused for."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.middleware import JSONBody
from gateway.parameter_table import Endpoint
from gateway.parameters import ParameterRules
from gateway.routes.chat import wanted_chat
from gateway.schemas.tokenize_response import Rendered
from gateway.serving import Serving

RENDER = Endpoint.CHAT + "/render"
APPLY_TEMPLATE = "/apply-template"


def render_router(serving: Serving, *, is_strict: bool) -> APIRouter:
    router = APIRouter()
    rules = ParameterRules(Endpoint.CHAT, is_strict=is_strict)

    @router.post(RENDER)
    @router.post(APPLY_TEMPLATE)
    async def render(request: Request) -> Response:
        wanted = await serving.read(request, rules, wanted_chat)
        prepared = await serving.prepare(request, wanted)
        (prompt,), (token_ids,) = wanted.prompts, prepared.prompt_token_ids
        shown = await serving.model(request, wanted.fields.model).tokenize(prompt)
        return JSONBody(Rendered(shown.text, token_ids))

    return router
