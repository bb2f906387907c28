"""The same counters as minute_counters.py, in Redis, for servers that share their tenants.

One script does all of a step, so that no two servers grant the same room. Times are those of Redis.
A server that dies takes its held tokens with it when their lease ends.
"""

from typing import Any

from gateway.accounts import AccountLimits
from gateway.minute_counters import (
    NOTHING_ASKED,
    NOTHING_SETTLED,
    TOLERANCE,
    Asked,
    Settled,
    Standing,
)
from gateway.redis_link import RedisLink

# KEYS: the buckets {r = requests, t = tokens, at}, and the held tokens, "amount:id" by the time
# their lease ends. ARGV: limits a minute (0 = none), what is asked for, the lease in seconds, what
# is settled.
_SCRIPT = """
local buckets, holds = KEYS[1], KEYS[2]
local request_limit, token_limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local requests_asked, tokens_asked = tonumber(ARGV[3]), tonumber(ARGV[4])
local hold_id, lease = ARGV[5], tonumber(ARGV[6])
local settled_hold, tokens_used, requests_back = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])

-- What none of our servers wrote counts as nothing: it would fail this script each time.
local function keep_only(kind, key)
  if redis.call('TYPE', key).ok ~= kind then redis.call('DEL', key) end
end
local function amount(text)
  local value = tonumber(text)
  return value and value >= 0 and value < 1e14 and value or 0
end
keep_only('hash', buckets)
keep_only('zset', holds)

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local stored = redis.call('HMGET', buckets, 'r', 't', 'at')
local elapsed = math.max(0, now - amount(stored[3]))

local function drained(level, limit)
  if limit == 0 then return 0 end
  return math.max(0, amount(level) - limit / 60 * elapsed)
end
local function fits(level, amount, limit)
  return limit == 0 or amount == 0 or level + amount <= limit + tonumber(ARGV[10])
end

local requests = drained(stored[1], request_limit)
local tokens = drained(stored[2], token_limit)
if settled_hold ~= '' then
  redis.call('ZREM', holds, settled_hold)
end
requests = math.max(0, requests - requests_back)
tokens = tokens + tokens_used

redis.call('ZREMRANGEBYSCORE', holds, '-inf', now)
local held = 0
for _, member in ipairs(redis.call('ZRANGE', holds, 0, -1)) do
  held = held + amount(string.match(member, '^%d+'))
end

local granted = 0
if fits(requests, requests_asked, request_limit)
    and fits(tokens + held, tokens_asked, token_limit) then
  granted = 1
  requests = requests + requests_asked
  if tokens_asked > 0 then
    redis.call('ZADD', holds, now + lease, string.format('%d:%s', tokens_asked, hold_id))
    redis.call('EXPIRE', holds, math.ceil(lease) + 60)
    held = held + tokens_asked
  end
end

local function emptied_in(level, limit)
  return limit == 0 and 0 or level * 60 / limit
end
local life = math.max(emptied_in(requests, request_limit), emptied_in(tokens, token_limit))
redis.call('HSET', buckets, 'r', string.format('%.6f', requests),
  't', string.format('%.6f', tokens), 'at', string.format('%.6f', now))
redis.call('EXPIRE', buckets, math.ceil(life) + 60)
return {granted, string.format('%.6f', requests), string.format('%.6f', tokens + held)}
"""


class RedisCounters:
    """Used by all servers that have the same key file. `lease_s` is longer than a request lives."""

    def __init__(self, link: RedisLink, *, lease_s: float) -> None:
        self._link = link
        self._lease_s = lease_s
        self._script = link.script(_SCRIPT)

    async def take(self, tenant: str, limits: AccountLimits, asked: Asked) -> Standing:
        """Grants what was asked for, or changes nothing. Raises: RedisUnavailable."""
        return await self._run(tenant, limits, asked=asked)

    async def settle(
        self, tenant: str, limits: AccountLimits, settled: Settled, *, held_tokens: int
    ) -> None:
        """Counts what was used instead of the held tokens. Raises: RedisUnavailable."""
        await self._run(tenant, limits, settled=settled, held_tokens=held_tokens)

    async def _run(
        self,
        tenant: str,
        limits: AccountLimits,
        *,
        asked: Asked = NOTHING_ASKED,
        settled: Settled = NOTHING_SETTLED,
        held_tokens: int = 0,
    ) -> Standing:
        # Braces: in a cluster both keys lie on one node.
        keys = [self._link.key("rate", f"{{{tenant}}}", part) for part in ("buckets", "holds")]
        arguments: list[Any] = [
            limits.requests_per_minute or 0,
            limits.tokens_per_minute or 0,
            asked.requests,
            asked.tokens,
            asked.hold_id,
            self._lease_s,
            f"{held_tokens}:{settled.hold_id}" if settled.hold_id else "",
            settled.used_tokens,
            settled.returned_requests,
            TOLERANCE,
        ]
        granted, requests, tokens = await self._link.call(
            lambda _: self._script(keys=keys, args=arguments)
        )
        return Standing(bool(granted), float(requests), float(tokens))
