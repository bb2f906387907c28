"""Answers of /v1/responses: the response as it begins and as it ends, and what is said of one that
is kept. Its items are in response_items.py."""

from typing import Any, Literal

import msgspec

from gateway.errors import GatewayError, RateLimited
from gateway.generation import Usage
from gateway.schemas.answer import AnswerHead
from gateway.schemas.response_items import Item
from gateway.schemas.responses_request import FlatTool, ResponsesRequest

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class InputTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(msgspec.Struct, frozen=True):
    """`retried_tokens` is ours: generated for a checked answer, thrown away, in no other count."""

    reasoning_tokens: int
    retried_tokens: int | msgspec.UnsetType = msgspec.UNSET


class ResponseUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> "ResponseUsage":
        return cls(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=InputTokensDetails(
                cached_tokens=usage.cached_tokens, cache_write_tokens=usage.written_tokens
            ),
            output_tokens=usage.completion_tokens,
            output_tokens_details=OutputTokensDetails(
                reasoning_tokens=usage.reasoning_tokens,
                retried_tokens=usage.retried_tokens or msgspec.UNSET,
            ),
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
        )


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseFault(msgspec.Struct, frozen=True):
    """Why a response failed. Of the codes that the official client's types allow here, few are
    about anything that happens on this server; `type` is that of the error object."""

    code: Literal["server_error", "rate_limit_exceeded"]
    message: str
    type: str
    param: str | None = None

    @classmethod
    def of(cls, error: GatewayError) -> "ResponseFault":
        is_limit = isinstance(error, RateLimited)
        return cls(
            code="rate_limit_exceeded" if is_limit else "server_error",
            message=error.message,
            type=error.type,
            param=error.param,
        )


class ShownTool(msgspec.Struct, frozen=True):
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None
    type: Literal["function"] = "function"

    @classmethod
    def of(cls, tool: FlatTool) -> "ShownTool":
        return cls(tool.name, tool.description, tool.parameters, tool.strict)


class ShownText(msgspec.Struct, frozen=True):
    format: dict[str, Any]


class ShownReasoning(msgspec.Struct, frozen=True):
    effort: str | None
    summary: None = None


class ResponseBody(msgspec.Struct, frozen=True):
    """All keys are always there. What the request left open is shown as it was settled."""

    id: str
    created_at: int
    status: Status
    model: str
    output: list[Item]
    instructions: str | None
    metadata: dict[str, str]
    tools: list[ShownTool]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    temperature: float
    top_p: float
    top_logprobs: int
    max_output_tokens: int | None
    previous_response_id: str | None
    reasoning: ShownReasoning
    text: ShownText
    truncation: Literal["auto", "disabled"]
    store: bool
    service_tier: str
    object: Literal["response"] = "response"
    background: Literal[False] = False
    completed_at: int | None = None
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: ResponseUsage | None = None


class ItemPage(msgspec.Struct, frozen=True):
    """A part of what a request brought."""

    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


class DeletedResponse(msgspec.Struct, frozen=True):
    id: str
    object: str = "response.deleted"
    deleted: bool = True


class InputTokens(msgspec.Struct, frozen=True):
    input_tokens: int
    object: str = "response.input_tokens"


def begun_response(head: AnswerHead, request: ResponsesRequest, *, is_kept: bool) -> ResponseBody:
    """The response before anything was generated."""
    return ResponseBody(
        id=head.id,
        created_at=head.created,
        status="in_progress",
        model=head.model,
        output=[],
        instructions=request.instructions,
        metadata=request.metadata or {},
        tools=[ShownTool.of(tool) for tool in request.tools or ()],
        tool_choice="auto" if request.tool_choice is None else request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_logprobs=request.top_logprobs or 0,
        max_output_tokens=request.max_output_tokens,
        previous_response_id=request.previous_response_id,
        reasoning=ShownReasoning(None if request.reasoning is None else request.reasoning.effort),
        text=ShownText(_shown_format(request)),
        truncation=request.truncation or "disabled",
        store=is_kept,
        service_tier="default",
    )


def _shown_format(request: ResponsesRequest) -> dict[str, Any]:
    if request.text is None or request.text.format is None:
        return {"type": "text"}
    return request.text.format.model_dump(by_alias=True, exclude_none=True)
