"""What crosses the wire between a gateway and a runtime: plain data, msgspec encoded.

A gateway sends `ToRuntime` messages on a DEALER socket, a runtime answers `ToGateway` messages
from its ROUTER socket. Request ids are unique per gateway; N gateways may share one runtime.
Nothing here imports torch. Times are `time.time_ns()` of the process that took them.
"""

import enum
from typing import Literal

import msgspec

from grammar.spec import PreparedConstraint
from runtime.cache_messages import CacheAnswer, CacheQuery, TierName, TierUse

PROTOCOL_VERSION = 5
# Ten years: the end of a pin is still a date, and a number of nanoseconds that fits in a message.
MAX_PIN_S = 315_360_000.0
# The limit of links that OpenTelemetry's specification has for a span.
MAX_STEP_LINKS = 128

AttributeValue = str | int | float | bool
FinishReason = Literal["stop", "length"]


class ErrorCode(enum.StrEnum):
    """Why a request ended without an answer; the gateway maps each to a status."""

    QUEUE_TIMEOUT = "queue_timeout"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    OVERLOADED = "overloaded"
    INVALID_REQUEST = "invalid_request"
    CONSTRAINT_FAILED = "constraint_failed"
    NO_TOKEN_LEFT = "no_token_left"
    ENGINE_DIED = "engine_died"
    INTERNAL = "internal"


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How tokens of one request are chosen. Values are validated by the gateway.

    Penalties: `frequency` and `presence` count generated tokens only; `repetition` (1.0 = off)
    counts prompt and output. `top_k` 0 = off. Noise is a function of (seed, choice, position).
    `num_logprobs` None = none wanted; k = the sampled token's and the k best of the raw
    distribution, before temperature, penalties and masks. Of `allowed_token_ids` (None = all) one
    is chosen, whatever the grammar: end-of-sequence, too, comes only if it is among them. Of
    `bad_words`, each a sequence of tokens, none is completed, unless a grammar leaves nothing else.
    `max_tokens` 0 scores the prompt only.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    seed: int = 0
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    num_logprobs: int | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()


class TraceContext(msgspec.Struct, frozen=True):
    """W3C trace context of the request's span; `request_id` is what its client calls the request
    (the x-request-id header)."""

    traceparent: str
    tracestate: str = ""
    request_id: str = ""

    @property
    def trace_id(self) -> str:
        """As log lines name the trace."""
        return self.traceparent[3:35]


class Pin(msgspec.Struct, frozen=True, array_like=True):
    """The first `num_tokens` of the prompt shall stay cached for `ttl_s` seconds, MAX_PIN_S at the
    most."""

    num_tokens: int
    ttl_s: float


class CacheHints(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request asks of the prefix cache, beyond what it does by itself.

    `owner` is whom the pages count for, safe to log: `quota_bytes` bounds what it has in the tree
    (None = no bound), and pins are honoured up to its share. New pins of a `key` take the place of
    the older ones of that key. Of prompt and answer the first `keep_len` tokens are left in the
    cache (None = all that is computed), and of the answer what comes before the token
    `dropped_from`: the next turn will not have what follows.
    """

    owner: str = ""
    quota_bytes: int | None = None
    key: str = ""
    pins: tuple[Pin, ...] = ()
    keep_len: int | None = None
    dropped_from: int | None = None


class Submit(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Everything the runtime needs for one request.

    `namespace` is the tenant's salt: requests share cached pages only inside one. `tenant` is whom
    fairness counts the tokens for. `num_prompt_logprobs` k asks for the log-probabilities of the
    prompt's tokens, each with the k best; None = not wanted.
    `output_prefix` is an answer begun earlier, which is gone on with: input for the model, output
    for penalties, noise, min_tokens and the constraint, and no part of the usage; `max_tokens`
    bounds what is generated now. `first_forbidden` may not be the first token generated now.
    `queue_deadline_ns` and `deadline_ns` are wall clock; 0 = none.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: Sampling
    num_choices: int = 1
    constraint: PreparedConstraint | None = None
    namespace: bytes = b""
    tenant: str = ""
    use_cache: bool = True
    cache: CacheHints = CacheHints()
    num_prompt_logprobs: int | None = None
    queue_deadline_ns: int = 0
    deadline_ns: int = 0
    trace: TraceContext | None = None
    output_prefix: list[int] = []
    first_forbidden: tuple[int, ...] = ()

    @property
    def log_fields(self) -> dict[str, str]:
        """`extra` of a log call about it: the names that the gateway's lines have."""
        if self.trace is None:
            return {"request_id": self.request_id}
        return {
            "request_id": self.trace.request_id or self.request_id,
            "trace_id": self.trace.trace_id,
            "span_id": self.trace.traceparent[36:52],
        }

    def num_written(self, num_cached: int) -> int:
        """How many tokens of the prompt are left in the cache that were not found there, once the
        prompt is computed."""
        if not self.use_cache:
            return 0
        num_tokens, keep_len = len(self.prompt_token_ids), self.cache.keep_len
        num_kept = num_tokens if keep_len is None else min(keep_len, num_tokens)
        return max(0, num_kept - num_cached)


class Abort(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Ends a request, or one choice of it; no further event follows for what it names."""

    request_id: str
    choice: int | None = None


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Heartbeat of a gateway; also its greeting. A silent gateway's requests are freed."""

    protocol_version: int
    gateway_id: str


class Probe(msgspec.Struct, frozen=True, tag=True):
    """Asks whether a runtime turns: it is answered with a Pong, and is no greeting."""

    protocol_version: int


ToRuntime = Submit | Abort | Ping | Probe | CacheQuery


class EngineInfo(msgspec.Struct, frozen=True):
    """What a runtime serves; constant for one incarnation.

    `kv_root` is the digest that starts every page's identity chain (see prefix_cache.identity).
    """

    engine_id: str
    incarnation: str
    model_hash: str
    architecture: str
    dtype: str
    device: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_model_len: int
    page_size: int
    num_pages: int
    max_running: int
    kv_root: bytes
    page_bytes: int = 0


class EngineStats(msgspec.Struct, frozen=True):
    """Gauges and counters of one runtime; counters count from its start. Of the generated tokens
    `forced_tokens` were the only way on and not sampled. `preemptions` were for want of pages,
    `fair_preemptions` for another tenant.

    Pages: free + cached + held = total. `cached` are in the tree (locked or not), `held` belong
    to one running request each.
    """

    num_waiting: int = 0
    num_running: int = 0
    pages_free: int = 0
    pages_cached: int = 0
    pages_locked: int = 0
    pages_held: int = 0
    pages_total: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_prompt_tokens: int = 0
    recomputed_tokens: int = 0
    generated_tokens: int = 0
    forced_tokens: int = 0
    preemptions: int = 0
    fair_preemptions: int = 0
    evicted_pages: int = 0
    steps: int = 0
    pages_pinned: int = 0
    tiers: tuple[TierUse, ...] = ()


class Phase(msgspec.Struct, frozen=True):
    """One finished phase of a request: becomes one span. `name` is in telemetry.names; one of
    PHASE_EVENTS there is a moment, and becomes an event of the request's span. `step` is the
    traceparent of the engine step that computed it, "" where that step is not recorded.
    """

    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, AttributeValue] = {}
    step: str = ""


class StepSpan(msgspec.Struct, frozen=True):
    """One engine step that was chosen to be recorded. It belongs to no request: `requests` are the
    traceparents of those in its batch that are traced, MAX_STEP_LINKS of them at most."""

    traceparent: str
    start_ns: int
    end_ns: int
    attributes: dict[str, AttributeValue] = {}
    requests: list[str] = []


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Raw log-probability of the chosen token, and (token id, log-probability) of the best k."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class EngineFault(msgspec.Struct, frozen=True):
    """An error object: what a request gets instead of the rest of its answer."""

    code: ErrorCode
    message: str


class ChoiceUsage(msgspec.Struct, frozen=True):
    """Final counts of one choice. cached + computed = prompt; recomputation counts apart.
    Completion tokens include the forced ones, which were not sampled. `written_tokens` of the
    prompt were computed and left in the cache; `tier_tokens` of the cached ones came from lower
    tiers."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    recomputed_tokens: int = 0
    forced_tokens: int = 0
    written_tokens: int = 0
    tier_tokens: dict[TierName, int] = {}


class TokenEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """News of one choice from one engine step.

    `seq` counts from 0 per (request, choice). `admitted` is True on the event that says the
    request left the queue (it may carry no token). The last event of a choice has
    `finish_reason` or `error`, and with a finish reason the final `usage`. A token that ended the
    choice (end of sequence or a stop token) is the last of `token_ids` and `stop_token_id` names
    it; it has no text. `prompt_logprobs` are those of the prompt's tokens from the second on, on
    the first event of choice 0 after its prefill.
    """

    request_id: str
    choice: int
    seq: int
    token_ids: list[int] = []
    logprobs: list[TokenLogprob] = []
    prompt_logprobs: list[TokenLogprob] = []
    admitted: bool = False
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    error: EngineFault | None = None
    phases: list[Phase] = []
    usage: ChoiceUsage | None = None

    @property
    def is_last(self) -> bool:
        return self.finish_reason is not None or self.error is not None


class StepOutput(msgspec.Struct, frozen=True, tag=True):
    """All events of one engine step for one gateway, in one message. A recorded step is told to
    one of the gateways that have a request in it."""

    incarnation: str
    step: int
    events: list[TokenEvent]
    stats: EngineStats
    recorded: StepSpan | None = None


class Pong(msgspec.Struct, frozen=True, tag=True):
    """Answer to a Ping, from the engine loop itself, so that a hung loop is silent."""

    protocol_version: int
    info: EngineInfo
    stats: EngineStats


class Goodbye(msgspec.Struct, frozen=True, tag=True):
    """A runtime that refuses to serve says why in one line (wrong protocol, failed load)."""

    reason: str


ToGateway = StepOutput | Pong | Goodbye | CacheAnswer
