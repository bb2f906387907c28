"""The answer of GET /ui/data: what the server does now and did lately. Times are milliseconds,
those of phases since their request's start; moments are ISO 8601."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from gateway.schemas.cache_response import TierState

State = Literal[
    "preparing", "queued", "prefilling", "decoding", "ok", "aborted", "error", "rejected"
]
Value = str | int | float | bool


class ServerShown(msgspec.Struct, frozen=True):
    """`started_at` is another one after each start. What the engine says of itself is null until it
    has loaded the model."""

    version: str
    started_at: str
    uptime_s: float
    models: list[str]
    engine: str
    incarnation: str | None = None
    architecture: str | None = None
    dtype: str | None = None
    device: str | None = None
    max_model_len: int | None = None


class NowShown(msgspec.Struct, frozen=True):
    """`in_flight` are this server's requests; `running` and `queued` the engine's sequences, null
    while it takes none. The others are of the last `window_s` seconds, null where nothing was."""

    in_flight: int
    running: int | None
    queued: int | None
    window_s: float
    requests: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    tpot_p50_ms: float | None
    tpot_p95_ms: float | None
    output_tok_s: float
    tokens_by_second: Sequence[int]
    prompt_tokens: int
    cached_tokens: int
    hit_rate: float | None


class PagesShown(msgspec.Struct, frozen=True):
    """free + cached + held = total; of the cached ones some are locked or pinned."""

    total: int
    free: int
    cached: int
    held: int
    locked: int
    pinned: int
    page_bytes: int


class PhaseShown(msgspec.Struct, frozen=True):
    """`end_ms` is null for the phase that the request is in."""

    name: str
    start_ms: float
    end_ms: float | None
    attributes: Mapping[str, Value] = {}


class RequestShown(msgspec.Struct, frozen=True):
    """A request under way has no `number`, and a duration up to now."""

    number: int | None
    id: str
    trace_id: str
    tenant: str
    route: str
    model: str
    state: State
    choices: int
    started_at: str
    duration_ms: float
    status: int | None
    error: str | None
    finish_reasons: Sequence[str]
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int
    ttft_ms: float | None
    tpot_ms: float | None
    phases: Sequence[PhaseShown]


class ErrorShown(msgspec.Struct, frozen=True):
    number: int
    at: str
    request_id: str
    trace_id: str
    route: str
    status: int
    code: str


class LiveState(msgspec.Struct, frozen=True):
    """`finished` and `errors` are those with a number above the one asked for; `latest` is the
    number to ask for next. Of the requests under way `left_out` more came later than these."""

    server: ServerShown
    now: NowShown
    pages: PagesShown | None
    tiers: Sequence[TierState]
    requests: Sequence[RequestShown]
    left_out: int
    finished: Sequence[RequestShown]
    errors: Sequence[ErrorShown]
    latest: int
    object: Literal["live"] = "live"
