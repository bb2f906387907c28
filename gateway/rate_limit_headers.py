"""OpenAI's x-ratelimit-* headers, on every answer to a key that has limits, errors too."""

import math
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.accounts import AccountLimits
from gateway.minute_counters import TOLERANCE, Standing, seconds_until
from gateway.request_context import RequestContext, request_context

LIMIT_HEADERS = tuple(
    f"x-ratelimit-{what}-{kind}"
    for kind in ("requests", "tokens")
    for what in ("limit", "remaining", "reset")
)


class NamesLimits(Protocol):
    """What sets the headers; RateLimits does."""

    async def name_limits(self, context: RequestContext) -> None: ...


class RateLimitMiddleware:
    """Adds the headers to what is answered without them."""

    def __init__(self, app: ASGIApp, *, rates: NamesLimits) -> None:
        self._app = app
        self._rates = rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not request_context(scope).account.limits.are_counted:
            await self._app(scope, receive, send)
            return
        context = request_context(scope)

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._name(context)
            await send(message)

        try:
            await self._app(scope, receive, send_with_limits)
        except Exception:
            await self._name(context)
            raise

    async def _name(self, context: RequestContext) -> None:
        if context.response_headers.keys().isdisjoint(LIMIT_HEADERS):
            await self._rates.name_limits(context)


def limit_headers(limits: AccountLimits, standing: Standing) -> dict[str, str]:
    """Of the limits that are set. `reset` is how long nothing may be used until all is there."""
    return {
        **_headers("requests", limits.requests_per_minute, standing.requests),
        **_headers("tokens", limits.tokens_per_minute, standing.tokens),
    }


def duration(seconds: float) -> str:
    """As Go writes it and OpenAI does: 120ms, 7.66s, 6m0s; rounded up to milliseconds."""
    milliseconds = math.ceil(seconds * 1000 - TOLERANCE)
    if milliseconds <= 0:
        return "0s"
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    shown = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{shown}"
    return f"{minutes}m{shown}" if minutes else shown


def _headers(kind: str, limit: int | None, level: float) -> dict[str, str]:
    if limit is None:
        return {}
    return {
        f"x-ratelimit-limit-{kind}": str(limit),
        f"x-ratelimit-remaining-{kind}": str(max(0, math.floor(limit - level + TOLERANCE))),
        f"x-ratelimit-reset-{kind}": duration(seconds_until(level, limit)),
    }
