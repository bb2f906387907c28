"""Puts the Redis tier of a runtime together, and starts what renews its leases."""

from prefix_cache.tiers.agreement import Agreement, Terms
from prefix_cache.tiers.directory import Directory
from prefix_cache.tiers.redis_calls import RedisCalls, RedisUnavailable
from prefix_cache.tiers.redis_tier import RedisTier

# Well below the leases of agreement.py and directory.py; how soon it is seen that Redis is back.
UPKEEP_S = 1.0


def open_redis_tier(
    url: str,
    *,
    root: bytes,
    model_id: str,
    page_size: int,
    format: str,
    secret_check: str,
    ttl_s: int,
    holder: str,
) -> RedisTier:
    """The tier of a runtime. `root` is that of the pages' identities; `holder` names the runtime's
    incarnation. Where Redis does not answer, it is tried again later.

    Raises: RedisURLError; Disagreement with another server of this model id, a line to end with.
    """
    calls = RedisCalls(url)
    terms = Terms(root=root.hex(), page_size=page_size, format=format, secret_check=secret_check)
    agreement = Agreement(calls, terms, model_id=model_id)
    try:
        agreement.settle()
    except RedisUnavailable:  # the log has it
        pass
    except BaseException:
        calls.close()
        raise
    directory = Directory(calls, root=root, holder=holder)
    tier = RedisTier(calls, root=root, ttl_s=ttl_s, agreement=agreement, directory=directory)
    tier.warm()
    tier.start_upkeep(UPKEEP_S)
    return tier
