"""Makes hints for the runtime's cache of a client's wishes, once the prompt's tokens are known.

Called by Preparation. A wish that cannot be followed is no error: it is named as ignored.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.cache_wish import Breakpoint, CacheWish
from gateway.prompt_positions import PromptMap
from runtime.messages import CacheHints, Pin

MAX_PINS = 4
# Of more breakpoints the latest are looked at, and of a place that is not known the ends of so many
# messages before it: to find one may take as long as to render the conversation.
MAX_LOOKED_AT = 8
MAX_STEPS_BACK = 4
_TTL, _RETENTION = "prompt_cache_options.ttl", "prompt_cache_retention"


@dataclass(frozen=True, slots=True)
class ThoughtCut:
    """Where the next turn of a conversation will go on otherwise than this one does: behind so many
    tokens of the prompt, or at this token of the answer. None = nowhere."""

    keep_len: int | None = None
    dropped_from: int | None = None


NO_CUT = ThoughtCut()


@dataclass(frozen=True, slots=True)
class CachedPrompt:
    """What a plan is for. Of a conversation there are its messages and breakpoints, and where the
    messages are in the tokens, if that is known; `index` is the prompt's place in its request."""

    num_tokens: int
    messages: Sequence[dict[str, Any]] = ()
    breakpoints: Sequence[Breakpoint] = ()
    positions: PromptMap | None = None
    cut: ThoughtCut = NO_CUT
    index: int = 0


@dataclass(frozen=True, slots=True)
class CachePlan:
    """Of one prompt. `ignored` are rows of the table of parameters that have no effect on it."""

    is_used: bool
    hints: CacheHints = CacheHints()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """Up to where the prompt is pinned, None where that is not known. It `is_exact`, or lies before
    the place that was asked for."""

    name: str
    ttl_s: float
    num_tokens: int | None
    is_exact: bool = True


def plan_cache(wish: CacheWish, prompt: CachedPrompt, *, use_cache: bool) -> CachePlan:
    """What the runtime is told of one prompt. Asks `positions`, which may take a while."""
    if not use_cache or (wish.is_explicit and not prompt.breakpoints):
        names = [*_whole_names(wish), *(point.param for point in prompt.breakpoints)]
        hints = CacheHints(owner=wish.owner, quota_bytes=wish.quota_bytes)
        return CachePlan(is_used=False, hints=hints, ignored=tuple(dict.fromkeys(names)))
    places = [_place(point, wish, prompt) for point in prompt.breakpoints[-MAX_LOOKED_AT:]]
    end = prompt.num_tokens
    if wish.is_explicit:
        end = max((place.num_tokens or 0 for place in places), default=0)
    places += _whole_places(wish, end)
    pins = _pins(places, max_ttl_s=wish.max_ttl_s)
    keep_lens = [prompt.cut.keep_len, end if wish.is_explicit else None]
    hints = CacheHints(
        owner=wish.owner,
        quota_bytes=wish.quota_bytes,
        # Each prompt of a request is a family of its own.
        key=f"{wish.key}.{prompt.index}" if wish.key and prompt.index else wish.key,
        pins=pins,
        keep_len=min((one for one in keep_lens if one is not None), default=None),
        dropped_from=prompt.cut.dropped_from,
    )
    ignored = [point.param for point in prompt.breakpoints[:-MAX_LOOKED_AT]]
    pinned = {pin.num_tokens for pin in pins}
    ignored += [one.name for one in places if not one.is_exact or one.num_tokens not in pinned]
    return CachePlan(is_used=True, hints=hints, ignored=tuple(dict.fromkeys(ignored)))


def _whole_names(wish: CacheWish) -> Iterator[str]:
    """What was asked for of the whole prompt."""
    if wish.ttl_s is not None:
        yield _TTL
    if wish.retention_s is not None:
        yield _RETENTION


def _whole_places(wish: CacheWish, end: int) -> Iterator[_Place]:
    """An explicit request's ttl is that of its breakpoints."""
    if wish.ttl_s is not None and not wish.is_explicit:
        yield _Place(_TTL, wish.ttl_s, end)
    if wish.retention_s is not None:
        yield _Place(_RETENTION, wish.retention_s, end)


def _pins(places: Sequence[_Place], *, max_ttl_s: float) -> tuple[Pin, ...]:
    """The longest, each for the longest time it was asked for, the shortest first."""
    times: dict[int, float] = {}
    for place in places:
        ttl_s = min(place.ttl_s, max_ttl_s)
        if place.num_tokens and ttl_s > 0:
            times[place.num_tokens] = max(ttl_s, times.get(place.num_tokens, 0.0))
    return tuple(Pin(num_tokens, times[num_tokens]) for num_tokens in sorted(times)[-MAX_PINS:])


def _place(point: Breakpoint, wish: CacheWish, prompt: CachedPrompt) -> _Place:
    ttl_s = point.ttl_s or wish.ttl_s or point.default_ttl_s
    positions = prompt.positions
    if positions is None:
        return _Place(point.param, ttl_s, None)
    exact = (
        _tools_end(positions, prompt.messages)
        if point.message is None
        else positions.token_end(point.message, point.part)
    )
    if exact is not None:
        return _Place(point.param, ttl_s, exact)
    last = _num_system(prompt.messages) if point.message is None else point.message
    before = range(last - 1, max(last - 1 - MAX_STEPS_BACK, -1), -1)
    ends = (positions.token_end(index) for index in before)
    end = next((one for one in ends if one is not None), None)
    return _Place(point.param, ttl_s, end, is_exact=False)


def _num_system(messages: Sequence[dict[str, Any]]) -> int:
    """How many messages the conversation begins with that are nobody's turn."""
    turns = (i for i, one in enumerate(messages) if one["role"] not in ("system", "developer"))
    return next(turns, len(messages))


def _tools_end(positions: PromptMap, messages: Sequence[dict[str, Any]]) -> int | None:
    """Templates show tools before the first turn's words, wherever that is: beside the system's
    words, or in the turn itself. So the prompt up to these words has all of them."""
    first = _num_system(messages)
    end = positions.token_end(first)
    if end is None:
        return None

    def is_in_turn(token: int) -> bool:
        place = positions.message_at(token)
        return place is not None and (place.kind, place.index) == ("content", first)

    start = bisect_left(range(end), True, key=is_in_turn)
    return start if 0 < start < end and is_in_turn(start) else None
