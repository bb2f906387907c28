"""Bearer keys: who may call, and which account a key is. Keys never leave this module."""

import hashlib
import hmac
from collections.abc import Iterable, Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.accounts import ANONYMOUS, Account, digest_of
from gateway.errors import Unauthorized
from gateway.http_path import route_path
from gateway.key_file import KeyEntry
from gateway.request_context import request_context
from telemetry.metrics import Metrics

# Probes of an orchestrator carry no key, nor does a browser that opens the page, which holds no
# data. Everything else needs one, unknown paths too.
OPEN_PATHS = frozenset({"/health", "/ready", "/ui"})


class DuplicateKey(ValueError):
    """A key of the key file is accepted already, with other rights."""


class ApiKeys:
    """The accepted keys: those of the settings, without limits and each a tenant of its own, and
    those of the key file, which replace() changes. Without either everyone is the same nameless
    account.

    A caller's key is looked up by its HMAC under the server's secret. How long that takes depends
    on bits that nobody outside can choose or foresee, so it says nothing about which keys are near.
    """

    def __init__(
        self,
        keys: Sequence[str],
        *,
        secret: bytes,
        entries: Iterable[KeyEntry] | None = None,
    ) -> None:
        """`entries` None: there is no key file; without any in it nobody may call.

        Raises: DuplicateKey.
        """
        self._secret = secret
        self._is_open = not keys and entries is None
        digests = map(self._of_key, keys)
        self._simple = {digest: Account(tenant=digest.hex()[:16]) for digest in digests}
        self._accounts = self._simple
        self.replace(entries or ())

    def replace(self, entries: Iterable[KeyEntry]) -> None:
        """What the key file says from now on. Requests that are accepted keep their account.

        Raises: DuplicateKey, and nothing has changed then.
        """
        accounts = dict(self._simple)
        for number, entry in enumerate(entries, start=1):
            digest = self._keyed(entry.digest)
            if digest in accounts:
                raise DuplicateKey(f"key {number}, 'hash': the key is in RADIXGATE_API_KEYS too")
            accounts[digest] = self._account(entry)
        self._accounts = accounts

    def account_of(self, authorization: str | None) -> Account:
        """Raises: Unauthorized."""
        if self._is_open:
            return ANONYMOUS
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthorized(
                "You didn't provide an API key. Send it as a header: Authorization: Bearer KEY"
            )
        account = self._accounts.get(self._of_key(key.strip()))
        if account is None:
            raise Unauthorized("Incorrect API key provided.")
        return account

    def _account(self, entry: KeyEntry) -> Account:
        """The tenant's hash is of this server's secret; its counters are common to all servers."""
        name = entry.tenant.encode()
        return Account(
            tenant=self._hmac(b"tenant\x00" + name).hex()[:16],
            counter=hashlib.sha256(b"tenant\x00" + name).hexdigest()[:32],
            role=entry.role,
            models=entry.models,
            limits=entry.limits,
            cache_group=self._group(entry.cache_group),
        )

    def _group(self, name: str | None) -> str:
        """Longer than a tenant's hash, so that none is ever equal to one."""
        if name is None:
            return ""
        return "group-" + self._hmac(b"cache-group\x00" + name.encode()).hex()[:16]

    def _of_key(self, key: str) -> bytes:
        return self._keyed(digest_of(key))

    def _keyed(self, digest: bytes) -> bytes:
        return self._hmac(b"api-key\x00" + digest)

    def _hmac(self, data: bytes) -> bytes:
        return hmac.digest(self._secret, data, "sha256")


class AuthMiddleware:
    """Refuses a request without a key before anything is read or routed."""

    def __init__(self, app: ASGIApp, *, keys: ApiKeys, metrics: Metrics) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and route_path(scope) not in OPEN_PATHS:
            request_context(scope).account = self._account(Headers(scope=scope))
        await self._app(scope, receive, send)

    def _account(self, headers: Headers) -> Account:
        """Refusals are counted and not traced: a trace for each would be a stranger's to fill."""
        try:
            return self._keys.account_of(headers.get("authorization"))
        except Unauthorized as error:
            self._metrics.rejected(error.code or error.type)
            raise
