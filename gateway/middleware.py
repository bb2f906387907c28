"""What happens to every request around its route, as plain ASGI: ids, errors, CORS, body size.

From the outside in: RequestContextMiddleware, Cors, ErrorMiddleware, then (in their own modules)
authentication, observation and disconnect, with BodyLimitMiddleware between the last two.
"""

import logging
import re
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.disconnect import ClientDisconnected
from gateway.errors import BodyTooLarge, GatewayError, InvalidRequest, Overloaded, ServerError
from gateway.rate_limit_headers import LIMIT_HEADERS
from gateway.request_context import REQUEST_ID_HEADER, RequestContext, request_context
from telemetry.logs import stack_of

IGNORED_HEADER = "x-radixgate-ignored"
# What was done about a constraint: enforced or checked, and by which engine.
CONSTRAINT_HEADER = "x-radixgate-constraint"
CONSTRAINT_ENGINE_HEADER = "x-radixgate-constraint-engine"
EXPOSED_HEADERS = (
    REQUEST_ID_HEADER,
    IGNORED_HEADER,
    CONSTRAINT_HEADER,
    CONSTRAINT_ENGINE_HEADER,
    *LIMIT_HEADERS,
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "traceparent",
)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:\-]{1,128}")
_logger = logging.getLogger(__name__)


class JSONBody(Response):
    """Any msgspec-encodable object as a JSON answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def error_response(error: GatewayError, headers: Mapping[str, str] | None = None) -> Response:
    """The error object with its status."""
    return JSONBody(error.body(), error.status, {**(headers or {}), **error.headers()})


class RequestContextMiddleware:
    """Gives the request its id and the path prefix that a proxy publishes the server under, and
    adds the context's headers to whatever is answered."""

    def __init__(self, app: ASGIApp, *, root_path: str = "", shows_content: bool = False) -> None:
        self._app = app
        self._root_path = root_path
        self._shows_content = shows_content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get(REQUEST_ID_HEADER))
        context = RequestContext(
            request_id, {REQUEST_ID_HEADER: request_id}, shows_content=self._shows_content
        )
        context.attach(scope)
        if self._root_path:
            scope["root_path"] = self._root_path

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(k.encode(), v.encode()) for k, v in context.response_headers.items()]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _request_id(offered: str | None) -> str:
    if offered is not None and _REQUEST_ID.fullmatch(offered):
        return offered
    return "req_" + secrets.token_hex(16)


class ErrorMiddleware:
    """Turns what inner parts raise into OpenAI's error object; no stack trace leaves the server."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_started = False

        async def watched_send(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except ClientDisconnected:
            return
        except Exception as error:
            told = to_logged_error(error, request_context(scope))
            if is_started:  # the status is out; the server closes the connection
                raise AnswerBroken from None
            await error_response(told)(scope, receive, send)


class AnswerBroken(Exception):
    """An answer ends after its status and before its end. Why is in the log already, and without
    the words that the server's own line would have."""


def to_logged_error(error: Exception, context: RequestContext) -> GatewayError:
    """What the client is told of an error; the log has it unless the request was turned away."""
    if not isinstance(error, GatewayError):
        fields: dict[str, object] = {**context.log_fields, "error_type": type(error).__name__}
        if context.shows_content:
            _logger.error("a request failed", exc_info=error, extra=fields)
        else:  # whatever it says may be what the client said
            fields["exception"] = stack_of(error)
            _logger.error("a request failed", extra=fields)
        return ServerError(
            f"The server had an error; its log names it under request id {context.request_id}."
        )
    if not error.is_refusal:
        fields = {**context.log_fields, "error_type": error.reason}
        if context.shows_content or not error.quotes_answer:
            fields["error"] = error.message
        _logger.warning("a request failed", extra=fields)
    return error


class Cors(CORSMiddleware):
    """Starlette's CORS rules with refusals in our error shape."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        message = bytes(response.body).decode()
        kept = {
            name: value
            for name, value in response.headers.items()
            if not name.startswith("content-")
        }
        return error_response(InvalidRequest(message, code="cors_refused"), kept)


class BodyLimitMiddleware:
    """Refuses a body that is too large, by its announced length or as soon as it has passed it, and
    any while the bodies of all requests, which come before the limiter, are too large together."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, max_total_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_total_bytes = max_total_bytes
        self._total_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > self._max_bytes:
            raise self._too_large()
        num_bytes = 0

        async def counted_receive() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_new = len(message.get("body", b""))
            num_bytes += num_new
            self._total_bytes += num_new
            if num_bytes > self._max_bytes:
                raise self._too_large()
            if self._total_bytes > self._max_total_bytes and self._total_bytes > num_bytes:
                raise Overloaded(
                    "The server holds too many large requests; try again later.", retry_after_s=1
                )
            return message

        try:
            await self._app(scope, counted_receive, send)
        finally:
            self._total_bytes -= num_bytes

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"The request body is larger than {self._max_bytes} bytes.")
