"""What servers of one model id that share a Redis agree on. One that differed would find nothing of
the others, and nobody would be told: so the first writes its terms down, the others compare.

The record is a lease that every server that agrees renews; it goes away with the last of them.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from prefix_cache.identity import IDENTITY_VERSION
from prefix_cache.tiers.redis_calls import RedisCalls, RedisUnavailable
from prefix_cache.tiers.resp import Buffer, Refusal

PROTOCOL_VERSION = 1
LEASE_S = 15
_SHOWN_CHARACTERS = 12

# In the order in which they are compared: the root holds the format too, and says less.
_WHAT_TO_DO = {
    "protocol": "run the same version of radixgate everywhere",
    "identity_version": "run the same version of radixgate everywhere",
    "page_size": "run the same version of radixgate everywhere",
    "format": "give all of them the same RADIXGATE_CACHE_FORMAT",
    "secret_check": "give all of them the same RADIXGATE_SERVER_SECRET",
    "root": "give all of them the same files of the model and the same number format"
    " (RADIXGATE_DTYPE, which auto settles by the machine)",
}
_SECRETS = frozenset({"secret_check"})


@dataclass(frozen=True, slots=True)
class Terms:
    """`root` (hex) names model, tokenizer, number format and layout; `secret_check` is a hash of
    the secret behind the namespaces."""

    root: str
    page_size: int
    format: str
    secret_check: str
    protocol: int = PROTOCOL_VERSION
    identity_version: int = IDENTITY_VERSION


class Disagreement(Exception):
    """Another server of this model id has other terms. The message is one line."""

    def __init__(self, model_id: str, field: str, *, ours: object, theirs: object) -> None:
        values = ""
        if field not in _SECRETS:
            values = f" (here {_shorten(ours)}, there {_shorten(theirs)})"
        advice = _WHAT_TO_DO.get(field, _WHAT_TO_DO["protocol"])
        super().__init__(
            f"this server and another one that serves {model_id} with the same"
            f" RADIXGATE_CACHE_REDIS_URL differ in {field}{values}, so that neither would find what"
            f" the other computed: {advice}; or give this one another RADIXGATE_SERVED_MODEL_NAME."
            f" A server that has ended is forgotten after {LEASE_S} s"
        )
        self.field = field


class Agreement:
    """settle() is called at start, and then more often than the lease ends."""

    def __init__(
        self, calls: RedisCalls, terms: Terms, *, model_id: str, lease_ms: int = LEASE_S * 1000
    ) -> None:
        self._calls = calls
        self._terms = terms
        self._model_id = model_id
        self._lease_ms = lease_ms
        self._key = b"radixgate:kv-terms:" + model_id.encode()
        self._value = json.dumps(asdict(terms), sort_keys=True).encode()
        self.is_settled = False
        self.disagreement: Disagreement | None = None

    def settle(self) -> None:
        """Writes our terms down, or compares them with those that are there, and renews the lease.

        Raises: Disagreement, RedisUnavailable. After the latter what was settled before holds.
        """
        expiry = (b"PX", self._lease_ms)
        written, found = self._calls.run(
            [(b"SET", self._key, self._value, b"NX", *expiry), (b"GET", self._key)]
        )
        if not isinstance(found, Buffer):
            reason = written.line if isinstance(written, Refusal) else "they are gone again"
            raise RedisUnavailable("error", f"the terms cannot be written down: {reason}")
        self.disagreement = self._compare(bytes(found))
        self.is_settled = self.disagreement is None
        if self.disagreement is not None:
            raise self.disagreement
        if written is None:  # the record is older than this call
            self._calls.run([(b"PEXPIRE", self._key, self._lease_ms)])

    def _compare(self, found: bytes) -> Disagreement | None:
        if found == self._value:
            return None
        theirs = _read(found)
        ours = asdict(self._terms)
        for field in _WHAT_TO_DO:
            if theirs.get(field) != ours[field]:
                return Disagreement(
                    self._model_id, field, ours=ours[field], theirs=theirs.get(field)
                )
        return None


def _read(found: bytes) -> Mapping[str, Any]:
    """What is no record of ours is one without fields, which differs in the first."""
    try:
        record = json.loads(found)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
