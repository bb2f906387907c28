"""Bearer keys: who may call, and which tenant a key is. Keys never leave this module."""

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import Unauthorized
from gateway.http_path import route_path
from gateway.request_context import request_context
from telemetry.metrics import Metrics

# Probes of an orchestrator carry no key. Everything else needs one, unknown paths too.
OPEN_PATHS = frozenset({"/health", "/ready"})


class ApiKeys:
    """The accepted keys as digests. Without keys everyone is the same nameless tenant."""

    def __init__(self, keys: Sequence[str], *, secret: bytes) -> None:
        self._secret = secret
        self._digests = [self._digest(key) for key in keys]

    def tenant_of(self, authorization: str | None) -> str:
        """A short keyed hash of the caller's key, safe to log; "" while no keys are set.

        Raises: Unauthorized.
        """
        if not self._digests:
            return ""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthorized(
                "You didn't provide an API key. Send it as a header: Authorization: Bearer KEY"
            )
        digest = self._digest(key.strip())
        # Every key is compared, so that the time taken says nothing about which one is near.
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            raise Unauthorized("Incorrect API key provided.")
        return digest.hex()[:16]

    def _digest(self, key: str) -> bytes:
        data = key.encode("utf-8", "surrogateescape")
        return hmac.new(self._secret, b"api-key\x00" + data, hashlib.sha256).digest()


class AuthMiddleware:
    """Refuses a request without a key before anything is read or routed."""

    def __init__(self, app: ASGIApp, *, keys: ApiKeys, metrics: Metrics) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and route_path(scope) not in OPEN_PATHS:
            request_context(scope).tenant = self._tenant(Headers(scope=scope))
        await self._app(scope, receive, send)

    def _tenant(self, headers: Headers) -> str:
        """Refusals are counted and not traced: a trace for each would be a stranger's to fill."""
        try:
            return self._keys.tenant_of(headers.get("authorization"))
        except Unauthorized as error:
            self._metrics.rejected(error.code or error.type)
            raise
