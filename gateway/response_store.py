"""Responses that are kept, so that they can be asked for again and gone on with: in Redis where
there is one, else in memory. One key's responses do not exist for another key."""

import logging
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from gateway.errors import Overloaded
from gateway.kept_bytes import KeepLimits, KeptBytes
from gateway.redis_link import RedisLink, RedisUnavailable
from gateway.schemas.response_items import Item
from gateway.settings import Settings

if TYPE_CHECKING:
    from redis.asyncio import Redis

# Nothing else becomes a key of Redis.
_ID = re.compile(r"resp_[0-9a-f]{32}")
# A response of megabytes takes longer than a counter.
REDIS_TIMEOUT_S = 0.5
RETRY_AFTER_S = 5
# Of what is kept; another one never reads this.
_FORMAT = "1"
_MIB = 1024 * 1024

_log = logging.getLogger(__name__)


class StoredResponse(msgspec.Struct, frozen=True):
    """The response object as the client got it, the items that went into it, and the id of the
    response that it goes on with."""

    response: msgspec.Raw
    input: msgspec.Raw
    previous: str | None = None

    @classmethod
    def of(
        cls, response: msgspec.Struct, items: Sequence[Item], *, previous: str | None
    ) -> "StoredResponse":
        return cls(
            msgspec.Raw(msgspec.json.encode(response)),
            msgspec.Raw(msgspec.json.encode(items)),
            previous,
        )

    @property
    def num_bytes(self) -> int:
        return memoryview(self.response).nbytes + memoryview(self.input).nbytes

    def input_items(self) -> list[Item]:
        return msgspec.json.decode(self.input, type=list[Item])

    def items(self) -> list[Item]:
        """Input and output."""
        output = msgspec.json.decode(self.response, type=_Output).output
        return [*self.input_items(), *output]


class _Output(msgspec.Struct):
    output: list[Item]


_decoder = msgspec.json.Decoder(StoredResponse)


class RedisResponses:
    """The values of KeptBytes in a Redis that servers share; their bounds are its own."""

    def __init__(self, link: RedisLink, *, ttl_s: float) -> None:
        self._link = link
        self._ttl_ms = max(1, int(ttl_s * 1000))

    async def put(self, tenant: str, response_id: str, value: bytes) -> None:
        """Raises: RedisUnavailable, as all three."""
        key = _key(tenant, response_id)

        async def command(redis: "Redis") -> object:
            return await redis.set(key, value, px=self._ttl_ms)

        await self._link.call(command, timeout_s=REDIS_TIMEOUT_S)

    async def get(self, tenant: str, response_id: str) -> bytes | None:
        from redis.exceptions import ResponseError

        key = _key(tenant, response_id)

        async def command(redis: "Redis") -> object:
            try:
                return await redis.getex(key, px=self._ttl_ms)
            except ResponseError as error:
                if "WRONGTYPE" not in str(error):
                    raise
                return None  # none of our servers wrote it

        value = await self._link.call(command, timeout_s=REDIS_TIMEOUT_S)
        return value if isinstance(value, bytes) else None

    async def pop(self, tenant: str, response_id: str) -> bool:
        key = _key(tenant, response_id)

        async def command(redis: "Redis") -> object:
            return await redis.delete(key)

        return bool(await self._link.call(command, timeout_s=REDIS_TIMEOUT_S))


class ResponseStore:
    """What Redis did not take is in memory, and is looked for there as well."""

    def __init__(self, memory: KeptBytes, redis: RedisResponses | None = None) -> None:
        """Where the memory takes no value nothing is kept at all."""
        self._memory = memory
        self._redis = redis if memory.is_on else None
        self.is_on = memory.is_on

    async def put(
        self,
        tenant: str,
        response_id: str,
        stored: StoredResponse,
        *,
        log_fields: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Never fails: the answer that it belongs to is complete. `log_fields` name its request."""
        value = msgspec.json.encode(stored)
        if self._redis is not None:
            try:
                await self._redis.put(tenant, response_id, value)
                return
            except RedisUnavailable as error:
                _log.debug("a response is kept in memory: %s", error, extra=dict(log_fields))
        if not self._memory.put(tenant, response_id, value):
            _log.warning(
                "there is no room to keep a response of %d bytes",
                len(value),
                extra=dict(log_fields),
            )

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """None for what is not known, not of this tenant, deleted, or too long ago.

        Raises: Overloaded when it may be in a Redis that does not answer.
        """
        if not _ID.fullmatch(response_id):
            return None
        value = self._memory.get(tenant, response_id)
        if value is not None:
            return _decoder.decode(value)
        if self._redis is None:
            return None
        try:
            value = await self._redis.get(tenant, response_id)
        except RedisUnavailable as error:
            raise _out_of_reach() from error
        return None if value is None else _decoded(value)

    async def pop(self, tenant: str, response_id: str) -> bool:
        """Whether there was such a response. Raises: as get()."""
        if not _ID.fullmatch(response_id):
            return False
        was_known = self._memory.pop(tenant, response_id)
        if self._redis is None:
            return was_known
        try:
            # It may be in both: Redis can take what it says too late that it took.
            return await self._redis.pop(tenant, response_id) or was_known
        except RedisUnavailable as error:
            if was_known:
                return True
            raise _out_of_reach() from error


def open_store(settings: Settings, link: RedisLink | None) -> ResponseStore:
    """As the settings say."""
    limits = KeepLimits(
        max_values=settings.response_store_max,
        max_bytes=int(settings.response_store_mb * _MIB),
        ttl_s=settings.response_store_ttl_s,
    )
    redis = None if link is None else RedisResponses(link, ttl_s=limits.ttl_s)
    return ResponseStore(KeptBytes(limits), redis)


def _key(tenant: str, response_id: str) -> str:
    return RedisLink.key("response", _FORMAT, tenant, response_id)


def _decoded(value: bytes) -> StoredResponse | None:
    """None for what none of our servers has written."""
    try:
        stored = _decoder.decode(value)
        stored.items()
    except (msgspec.MsgspecError, RecursionError) as error:
        _log.warning("what Redis holds is no response: %s", error)
        return None
    return stored


def _out_of_reach() -> Overloaded:
    return Overloaded(
        "The store of responses cannot be reached; try again later.", retry_after_s=RETRY_AFTER_S
    )
