"""A Redis tier as a runtime has it, without its thread: upkeep() is called by the test."""

from collections.abc import Iterator
from contextlib import contextmanager

from prefix_cache.tiers.agreement import Agreement, Terms
from prefix_cache.tiers.breaker import Breaker
from prefix_cache.tiers.directory import Directory
from prefix_cache.tiers.redis_calls import RedisCalls, RedisUnavailable
from prefix_cache.tiers.redis_tier import RedisTier
from tests.tier_pages import root_of

ROOT = root_of("model")
# No test of something else shall fail as its machine is busy.
PATIENT_S = 5.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def terms_of(root: bytes = ROOT, *, secret_check: str = "check", format: str = "raw") -> Terms:
    return Terms(root=root.hex(), page_size=16, format=format, secret_check=secret_check)


@contextmanager
def open_calls(
    url: str, *, clock: Clock | None = None, timeout_s: float = PATIENT_S
) -> Iterator[RedisCalls]:
    calls = RedisCalls(
        url, breaker=Breaker("Redis", clock=clock) if clock else None, timeout_s=timeout_s
    )
    try:
        yield calls
    finally:
        calls.close()


@contextmanager
def open_tier(
    url: str,
    *,
    clock: Clock | None = None,
    timeout_s: float = PATIENT_S,
    ttl_s: int = 600,
    holder: str = "one",
    root: bytes = ROOT,
) -> Iterator[RedisTier]:
    clock = clock or Clock()
    with open_calls(url, clock=clock, timeout_s=timeout_s) as calls:
        agreement = Agreement(calls, terms_of(root), model_id="model")
        try:
            agreement.settle()
        except RedisUnavailable:
            pass
        tier = RedisTier(
            calls,
            root=root,
            ttl_s=ttl_s,
            agreement=agreement,
            directory=Directory(calls, root=root, holder=holder),
            clock=clock,
        )
        try:
            yield tier
        finally:
            tier.close()
