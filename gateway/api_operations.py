"""The one list of what the server answers to, for its OpenAPI document: a row a method and path.

A test compares it with the routes of the app.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from pydantic import BaseModel

from gateway.parameter_table import Endpoint
from gateway.routes.cache import CACHE, EXPLAIN, MAX_NODES
from gateway.routes.render import APPLY_TEMPLATE, RENDER
from gateway.routes.responses import MAX_PAGE_LEN
from gateway.routes.ui import MAX_NUMBER, UI, UI_DATA
from gateway.schemas.cache_response import (
    CacheExplanation,
    CacheExplanations,
    CacheFlush,
    CacheState,
)
from gateway.schemas.chat_request import ChatCompletionRequest
from gateway.schemas.chat_response import ChatCompletion
from gateway.schemas.completion_request import CompletionRequest
from gateway.schemas.completion_response import Completion
from gateway.schemas.embeddings_request import EmbeddingsRequest
from gateway.schemas.live_response import LiveState
from gateway.schemas.models_response import ModelCard, ModelList
from gateway.schemas.responses_request import ResponsesRequest
from gateway.schemas.responses_response import DeletedResponse, InputTokens, ItemPage, ResponseBody
from gateway.schemas.tokenize_request import DetokenizeRequest, TokenizeRequest
from gateway.schemas.tokenize_response import Detokenized, Rendered, Tokenized

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `answer` is the body of a 200: a struct's JSON, or text of a media
    type; None where there never is one. `endpoint` is whose rows of the parameter table hold for
    `request`. The body may be one of `other_requests` instead, which have operations of their own;
    `other_answers` are what a 200 has for some requests. `query` are its parameters, each with a
    schema."""

    method: Literal["get", "post", "delete"]
    path: str
    summary: str
    answer: type[msgspec.Struct] | str | None
    request: type[BaseModel] | None = None
    endpoint: Endpoint | None = None
    other_requests: tuple[type[BaseModel], ...] = ()
    other_answers: tuple[type[msgspec.Struct], ...] = ()
    streams: bool = False
    query: dict[str, Schema] = field(default_factory=dict)
    needs_key: bool = True


_CHAT = (ChatCompletionRequest, Endpoint.CHAT)
_RESPONSES = (ResponsesRequest, Endpoint.RESPONSES)
_TOKENIZE = (TokenizeRequest, Endpoint.TOKENIZE)
_DETOKENIZE = (DetokenizeRequest, Endpoint.DETOKENIZE)
_RESPONSE = "/v1/responses/{response_id}"
_PAGE: dict[str, Schema] = {
    "order": {"type": "string", "enum": ["asc", "desc"]},
    "after": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_LEN},
}

OPERATIONS: tuple[Operation, ...] = (
    Operation("post", Endpoint.CHAT, "Answer a conversation", ChatCompletion, *_CHAT, streams=True),
    Operation("post", RENDER, "What a conversation is to the model", Rendered, *_CHAT),
    Operation("post", APPLY_TEMPLATE, "The same under llama.cpp's name", Rendered, *_CHAT),
    Operation(
        "post",
        Endpoint.COMPLETIONS,
        "Continue a text",
        Completion,
        CompletionRequest,
        Endpoint.COMPLETIONS,
        streams=True,
    ),
    Operation(
        "post", Endpoint.RESPONSES, "Create a response", ResponseBody, *_RESPONSES, streams=True
    ),
    Operation(
        "post", "/v1/responses/input_tokens", "Count the tokens of an input", InputTokens,
        *_RESPONSES,
    ),
    Operation("post", "/v1/responses/compact", "Not served", None),
    Operation(
        "get", _RESPONSE, "A response that was kept", ResponseBody,
        query={"stream": {"type": "string", "pattern": "^([Ff][Aa][Ll][Ss][Ee]|0)$"}},
    ),
    Operation("delete", _RESPONSE, "Forget a response", DeletedResponse),
    Operation("get", _RESPONSE + "/input_items", "What it answered", ItemPage, query=_PAGE),
    Operation("post", _RESPONSE + "/cancel", "Never possible: none runs in the background", None),
    Operation(
        "post",
        Endpoint.EMBEDDINGS,
        "Read and refused: no model makes vectors",
        None,
        EmbeddingsRequest,
        Endpoint.EMBEDDINGS,
    ),
    Operation("post", "/tokenize", "The tokens of a text or conversation", Tokenized, *_TOKENIZE),
    Operation("post", "/v1/tokenize", "The same", Tokenized, *_TOKENIZE),
    Operation("post", "/detokenize", "The text of tokens", Detokenized, *_DETOKENIZE),
    Operation("post", "/v1/detokenize", "The same", Detokenized, *_DETOKENIZE),
    Operation(
        "post",
        EXPLAIN,
        "How much of a request's prompt is cached, and why not more",
        CacheExplanation,
        *_CHAT,
        other_requests=(CompletionRequest, ResponsesRequest),
        other_answers=(CacheExplanations,),
    ),
    Operation(
        "get", CACHE, "What the prefix cache holds", CacheState,
        query={
            "model": {"type": "string"},
            "max_nodes": {"type": "integer", "minimum": 1, "maximum": MAX_NODES},
        },
    ),
    Operation(
        "delete", CACHE, "Forget what no request uses", CacheFlush,
        query={"model": {"type": "string"}},
    ),
    Operation("get", "/v1/models", "The names of what is served", ModelList),
    Operation("get", "/v1/models/{model}", "One of them", ModelCard),
    Operation("get", "/health", "Whether it lives", "application/json", needs_key=False),
    Operation("get", "/ready", "Whether it answers", "application/json", needs_key=False),
    Operation("get", "/version", "Its version", "application/json"),
    Operation("get", "/metrics", "Its metrics, for Prometheus", "text/plain"),
    Operation("get", UI, "A page to look at", "text/html", needs_key=False),
    Operation(
        "get", UI_DATA, "What it does now, and what it did lately", LiveState,
        query={"since": {"type": "integer", "minimum": 0, "maximum": MAX_NUMBER}},
    ),
    Operation("get", "/openapi.json", "This document", "application/json"),
)  # fmt: skip
