"""What a request asks of the prefix cache, in the client's terms; hints for the runtime are made of
it where the prompt's tokens are known (cache_plan.py)."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Up to here the prompt shall stay cached: the end of a message, of one part of its content,
    or (`message` None) of the tools. `param` is its row in the table of parameters. `ttl_s` None =
    the request's, or else `default_ttl_s`."""

    param: str
    default_ttl_s: float
    ttl_s: float | None = None
    message: int | None = None
    part: int | None = None


@dataclass(frozen=True, slots=True)
class CacheWish:
    """`owner` is whose cache it is, `quota_bytes` bounds it. With `is_explicit` nothing behind the
    last breakpoint is left in the cache, and without any breakpoint it is not used at all. The
    whole prompt shall stay for `ttl_s`, and for `retention_s` (None = as long as there is room); no
    wish is followed for more than `max_ttl_s`. `key` names a family of prompts, whose newest
    wishes count."""

    owner: str = ""
    quota_bytes: int | None = None
    key: str = ""
    is_explicit: bool = False
    ttl_s: float | None = None
    retention_s: float | None = None
    max_ttl_s: float = math.inf
