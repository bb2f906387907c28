"""What requests say of the prefix cache: OpenAI's prompt_cache_* and Anthropic's cache_control."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from gateway.cache_wish import Breakpoint, CacheWish
from gateway.schemas.fields import WireModel, refusal

MAX_KEY_CHARS = 64
DAY_S = 86_400.0
# What the two APIs keep where nothing is said.
OPENAI_TTL_S, ANTHROPIC_TTL_S = 1_800.0, 300.0
_TTL_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,3})?[smh]$"
_TTL = re.compile(_TTL_PATTERN)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0}


def _seconds(value: Any) -> Any:
    if not isinstance(value, str) or not _TTL.fullmatch(value):
        raise refusal("invalid_value", "a time is a number and s, m or h, such as 30m")
    seconds = float(value[:-1]) * _UNITS[value[-1]]
    if not seconds:
        raise refusal("invalid_value", "it must be more than 0")
    return seconds


Ttl = Annotated[
    float,
    BeforeValidator(_seconds),
    WithJsonSchema({"type": "string", "pattern": _TTL_PATTERN, "examples": ["30m", "12h"]}),
]


class CacheOptions(WireModel):
    """Of all of a request. A `ttl` is that of the whole prompt and of breakpoints without one."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: Ttl | None = None


class CacheBreakpoint(WireModel):
    mode: Literal["explicit"]
    ttl: Ttl | None = None


class CacheControl(WireModel):
    type: Literal["ephemeral"]
    ttl: Ttl | None = None


class Controlled(WireModel):
    """What Anthropic's clients mark. Templates see none of it."""

    cache_control: CacheControl | None = Field(default=None, exclude=True)


class ControlledPart(Controlled):
    """A piece of text, which OpenAI's clients mark as well."""

    prompt_cache_breakpoint: CacheBreakpoint | None = Field(default=None, exclude=True)


class CachingFields(WireModel):
    """Of all requests that generate."""

    prompt_cache_key: str | None = Field(None, min_length=1, max_length=MAX_KEY_CHARS)
    prompt_cache_options: CacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None


def cache_wish(fields: CachingFields) -> CacheWish:
    """What the request says of all of itself; whose cache it is the server knows."""
    options = fields.prompt_cache_options or CacheOptions()
    return CacheWish(
        key=fields.prompt_cache_key or "",
        is_explicit=options.mode == "explicit",
        ttl_s=options.ttl,
        retention_s=DAY_S if fields.prompt_cache_retention == "24h" else None,
    )


def breakpoints_of(
    marked: Controlled, param: str, *, message: int | None = None, part: int | None = None
) -> list[Breakpoint]:
    """Those that stand with one thing; `param` is its path in the table of parameters."""
    found: list[Breakpoint] = []
    control = marked.cache_control
    if control is not None:
        name = f"{param}.cache_control"
        found.append(Breakpoint(name, ANTHROPIC_TTL_S, control.ttl, message, part))
    point = marked.prompt_cache_breakpoint if isinstance(marked, ControlledPart) else None
    if point is not None:
        name = f"{param}.prompt_cache_breakpoint"
        found.append(Breakpoint(name, OPENAI_TTL_S, point.ttl, message, part))
    return found
