"""POST /v1/responses, and what is asked of responses that are kept."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from gateway.constraint_request import constraint_request
from gateway.conversation import Conversation
from gateway.errors import InvalidRequest, NotFound
from gateway.fitted_prompt import FittedGenerator, speak_of_input
from gateway.generation import Generator
from gateway.http_path import READ_METHODS
from gateway.middleware import JSONBody
from gateway.parameter_table import Endpoint
from gateway.parameters import ParameterRules
from gateway.request_context import RequestContext, request_context
from gateway.response_history import ResponseHistory
from gateway.response_store import ResponseStore, StoredResponse
from gateway.sampling import text_options, token_limit
from gateway.schemas.caching import cache_wish
from gateway.schemas.conversation import tool_breakpoints
from gateway.schemas.response_items import RESPONSE_PREFIX, Item
from gateway.schemas.responses_input import ItemReference, input_breakpoints, input_entries
from gateway.schemas.responses_presenter import ResponsesPresenter
from gateway.schemas.responses_request import ResponsesRequest, chosen_tools
from gateway.schemas.responses_response import (
    DeletedResponse,
    InputTokens,
    ItemPage,
    begun_response,
)
from gateway.serving import Serving, Wanted
from gateway.template_options import template_options
from gateway.validation import validate

DEFAULT_PAGE_LEN = 20
MAX_PAGE_LEN = 100
# Leading zeros included; Python refuses to read numbers of thousands.
MAX_PAGE_LEN_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesWanted(Wanted):
    """`entries` are the items that the request brings or names, `conversation` the whole, once
    what came before is known."""

    request: ResponsesRequest
    entries: tuple[Item | ItemReference, ...]
    conversation: Conversation


class ResponsesApi:
    """The routes' work, over one store. `max_bytes` bounds what a request goes on with."""

    def __init__(
        self,
        serving: Serving,
        *,
        store: ResponseStore,
        max_bytes: int,
        is_strict: bool,
    ) -> None:
        self._serving = serving
        self._store = store
        self._history = ResponseHistory(store, max_bytes=max_bytes)
        self._rules = ParameterRules(Endpoint.RESPONSES, is_strict=is_strict)

    async def create(self, request: Request) -> Response:
        wanted = await self._read(request)
        fields = wanted.request
        is_kept = self._store.is_on and fields.store is not False
        if fields.store and not is_kept:
            wanted = replace(wanted, ignored=(*wanted.ignored, "store"))
        if is_kept and wanted.conversation_id is None:  # others may go on with it
            wanted = replace(wanted, conversation_id=wanted.answer_id)
        head = self._serving.head(wanted)
        presenter = ResponsesPresenter(begun_response(head, fields, is_kept=is_kept))
        call = self._serving.call(request, wanted, head=head, presenter=presenter)
        call = replace(
            call,
            generator=fitted(call.generator, wanted),
            new_choice=presenter.new_choice,
            keep=self._keeper(request, wanted, presenter) if is_kept else None,
        )
        return self._serving.run(call)

    async def count_input_tokens(self, request: Request) -> Response:
        wanted = await self._read(request)
        model = self._serving.model(request, wanted.fields.model)
        with self._serving.place(request):
            try:
                tokenized = await model.tokenize(*wanted.prompts)
            except InvalidRequest as error:
                speak_of_input(error)
                raise
        return JSONBody(InputTokens(len(tokenized.token_ids)))

    async def retrieve(self, request: Request, response_id: str) -> Response:
        if request.query_params.get("stream", "false").lower() not in ("false", "0"):
            raise InvalidRequest(
                "A response that is complete is given whole: 'stream' is not supported here.",
                code="unsupported_value",
                param="stream",
            )
        return JSONBody((await self._known(request, response_id)).response)

    async def delete(self, request: Request, response_id: str) -> Response:
        if not await self._store.pop(_tenant(request), response_id):
            raise _unknown(response_id)
        return JSONBody(DeletedResponse(response_id))

    async def list_input_items(self, request: Request, response_id: str) -> Response:
        stored = await self._known(request, response_id)
        return JSONBody(_page(stored.input_items(), request.query_params))

    async def cancel(self, request: Request, response_id: str) -> Response:
        await self._known(request, response_id)
        raise InvalidRequest(
            "Only a response that runs in the background can be cancelled, and none does here; to"
            " cancel another one, close its connection.",
            param="response_id",
        )

    async def compact(self) -> Response:
        raise NotFound("This server does not compact responses: use 'truncation'.")

    async def _read(self, request: Request) -> ResponsesWanted:
        """What is wanted, with the whole conversation."""
        return await self.completed(
            request, await self._serving.read(request, self._rules, wanted_response)
        )

    async def completed(self, request: Request, wanted: ResponsesWanted) -> ResponsesWanted:
        """With what came before, as the store has it.

        Raises: NotFound, InvalidRequest, Overloaded.
        """
        tenant = _tenant(request)
        before = await self._history.before(tenant, wanted.request.previous_response_id)
        own = await self._history.resolved(tenant, wanted.entries)
        wanted = replace(wanted, conversation_id=before.first_id)
        if not before.items and wanted.prompts:  # all there is was in the body
            return wanted
        conversation = replace(wanted.conversation, items=(*before.items, *own))
        prompt = await conversation.prompt_aside()
        return replace(wanted, entries=own, conversation=conversation, prompts=(prompt,))

    def _keeper(
        self, request: Request, wanted: ResponsesWanted, presenter: ResponsesPresenter
    ) -> Callable[[], Awaitable[None]]:
        return partial(self._keep, request_context(request.scope), wanted, presenter)

    async def _keep(
        self, context: RequestContext, wanted: ResponsesWanted, presenter: ResponsesPresenter
    ) -> None:
        assert presenter.final is not None, "it is kept when it is complete"
        own = [item for item in wanted.entries if not isinstance(item, ItemReference)]
        stored = StoredResponse.of(
            presenter.final, own, previous=wanted.request.previous_response_id
        )
        await self._store.put(
            context.tenant, wanted.answer_id, stored, log_fields=context.log_fields
        )

    async def _known(self, request: Request, response_id: str) -> StoredResponse:
        stored = await self._store.get(_tenant(request), response_id)
        if stored is None:
            raise _unknown(response_id)
        return stored


def responses_router(api: ResponsesApi) -> APIRouter:
    router = APIRouter()
    path = "/v1/responses/{response_id}"
    # Before the paths with an id: these two names are none.
    router.add_api_route("/v1/responses/input_tokens", api.count_input_tokens, methods=["POST"])
    router.add_api_route("/v1/responses/compact", api.compact, methods=["POST"])
    router.add_api_route(Endpoint.RESPONSES, api.create, methods=["POST"])
    router.add_api_route(path, api.retrieve, methods=READ_METHODS)
    router.add_api_route(path, api.delete, methods=["DELETE"])
    router.add_api_route(f"{path}/input_items", api.list_input_items, methods=READ_METHODS)
    router.add_api_route(f"{path}/cancel", api.cancel, methods=["POST"])
    return router


def fitted(generator: Generator, wanted: ResponsesWanted) -> FittedGenerator:
    """The generator of this conversation, which shortens it where the request allows it."""
    return FittedGenerator(
        generator, wanted.conversation, truncates=wanted.request.truncation == "auto"
    )


def wanted_response(body: dict[str, Any], ignored: tuple[str, ...]) -> ResponsesWanted:
    """What a valid body asks for, before what came before it is known. Raises: InvalidRequest."""
    fields = validate(ResponsesRequest, body)
    token = secrets.token_hex(16)
    entries = input_entries(fields.input, response_id=RESPONSE_PREFIX + token)
    items = tuple(entry for entry in entries if not isinstance(entry, ItemReference))
    chosen = chosen_tools(fields)
    effort = None if fields.reasoning is None else fields.reasoning.effort
    conversation = Conversation(
        items=items,
        instructions=fields.instructions,
        tools=chosen.shown,
        options=template_options(fields.chat_template_kwargs, reasoning_effort=effort),
        adds_special=bool(fields.add_special_tokens),
        breakpoints=input_breakpoints(fields.input, entries),
        tool_breakpoints=tool_breakpoints(fields.tools or ()),
    )
    is_whole = len(items) == len(entries) and fields.previous_response_id is None
    limits = {"max_output_tokens": fields.max_output_tokens}
    return ResponsesWanted(
        operation="response",
        fields=fields,
        prompts=(conversation.prompt(),) if is_whole else (),
        max_tokens=token_limit(limits, min_tokens=fields.min_tokens),
        logprobs=(fields.top_logprobs or 0) if fields.wants_logprobs else None,
        constraint=constraint_request(fields),
        ignored=(*ignored, *fields.ignored_includes),
        text=text_options(fields),
        tools=chosen.request,
        cache=cache_wish(fields),
        answer_token=token,
        instructions=fields.instructions,
        request=fields,
        entries=entries,
        conversation=conversation,
    )


def _tenant(request: Request) -> str:
    return request_context(request.scope).tenant


def _unknown(response_id: str) -> NotFound:
    """The same for an id that is another key's, that was never given, or that is gone."""
    return NotFound(
        f"Response with id '{response_id[:100]}' not found.",
        code="response_not_found",
        param="response_id",
    )


def _page(items: list[Item], query: QueryParams) -> ItemPage:
    """A part of the list, the newest first unless asked for otherwise.

    Raises: InvalidRequest naming the parameter of the query.
    """
    order, after = query.get("order", "desc"), query.get("after")
    if order not in ("asc", "desc"):
        raise InvalidRequest("Invalid value for 'order': it is 'asc' or 'desc'.", param="order")
    ordered = items if order == "asc" else items[::-1]
    start = 0
    if after is not None:
        places = [index for index, item in enumerate(ordered) if item.id == after]
        if not places:
            raise InvalidRequest("Invalid value for 'after': no such item.", param="after")
        start = places[0] + 1
    data = ordered[start : start + _page_len(query)]
    return ItemPage(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=start + len(data) < len(ordered),
    )


def _page_len(query: QueryParams) -> int:
    given = query.get("limit", str(DEFAULT_PAGE_LEN))
    is_number = given.isascii() and given.isdecimal() and len(given) <= MAX_PAGE_LEN_DIGITS
    if not is_number or not 1 <= int(given) <= MAX_PAGE_LEN:
        raise InvalidRequest(
            f"Invalid value for 'limit': it is a number from 1 to {MAX_PAGE_LEN}.", param="limit"
        )
    return int(given)
