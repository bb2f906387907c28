"""Every metric of the server, once: what /metrics shows, what OTLP exports and the table of the
documentation are made of it, and dashboards and alert rules are tested against it.
"""

from telemetry.metric_definition import Label, MetricDefinition

_Metric = MetricDefinition

# Of what is observed (gateway/observation.py); a test compares it with what the server answers to.
ROUTES = (
    "/apply-template",
    "/detokenize",
    "/tokenize",
    "/v1/cache",
    "/v1/cache/explain",
    "/v1/chat/completions",
    "/v1/chat/completions/render",
    "/v1/completions",
    "/v1/detokenize",
    "/v1/embeddings",
    "/v1/models",
    "/v1/models/{id}",
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/responses/{id}",
    "/v1/responses/{id}/cancel",
    "/v1/responses/{id}/input_items",
    "/v1/tokenize",
)
_OPERATIONS = ("chat", "text_completion")
OUTCOMES = ("ok", "aborted", "error", "rejected")
TIERS = ("device", "host", "disk", "redis")
TOKEN_KINDS = ("input", "cached_input", "output")
GOODPUT_RESULTS = ("good", "slow_ttft", "slow_tpot", "failed")
MISS_REASONS = ("grows", "differs", "never_seen", "evicted")
# More than there are codes: refusals of one kind must not hide those of another.
MAX_REASONS = 64
MAX_TENANTS = 256

# The first rows are the buckets that OpenTelemetry's GenAI conventions advise; small models on a
# loaded CPU need the last ones, decode on a GPU the first of the inter-token ones.
TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
INTER_TOKEN_BUCKETS = (
    *(0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    *(5.0, 10.0, 20.0, 40.0, 80.0),
)
DURATION_BUCKETS = tuple(0.01 * 2**i for i in range(16))
QUEUE_BUCKETS = (
    0.0,
    0.001,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
COMPILE_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.15, 0.5, 1.0, 2.0, 5.0, 10.0)
MASK_BUCKETS = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)

_ROUTE = Label("route", bound="templates of what is served", attribute="http.route")
OPERATION = Label("operation", _OPERATIONS, attribute="gen_ai.operation.name")
MISS_REASON = Label("reason", MISS_REASONS)
_OK_OR_ERROR = Label("outcome", ("ok", "error"))
_TIER = Label("tier", TIERS)
_LOWER = Label("tier", TIERS[1:])
_TENANT = Label("tenant", bound=f"hashes of {MAX_TENANTS}, `other`; `none` without keys")
_TOKEN_KIND = Label("kind", TOKEN_KINDS)
_CODE = Label("reason", bound="in code")

# Requests.
REQUESTS = _Metric(
    "radixgate_requests", "counter",
    "Finished requests. A client that left is `aborted`, and `rejected` what was refused with a 4xx"
    " or for overload.",
    "{request}",
    (
        _ROUTE,
        Label("outcome", OUTCOMES),
        Label("status", bound="HTTP statuses", attribute="http.response.status_code"),
    ),
)  # fmt: skip
REQUEST_DURATION = _Metric(
    "radixgate_request_duration_seconds", "histogram",
    "Seconds from a request's acceptance to its last byte.", "s", (_ROUTE,), DURATION_BUCKETS,
    convention="gen_ai.server.request.duration", has_exemplars=True,
)  # fmt: skip
REQUESTS_IN_FLIGHT = _Metric(
    "radixgate_requests_in_flight", "gauge",
    "Requests that this gateway has accepted and not yet ended.", "{request}",
)  # fmt: skip
REJECTED = _Metric(
    "radixgate_rejected", "counter",
    "Requests refused before they reached the engine; what is refused for want of a key is here"
    " only.",
    "{request}", (Label("reason", bound=f"{MAX_REASONS} codes, `other`"),),
)  # fmt: skip
IGNORED = _Metric(
    "radixgate_ignored_parameters", "counter",
    "Parameters of requests that were accepted without effect; those that no table has are"
    " `unknown`.",
    "{parameter}", (Label("name", bound="the table of parameters"),),
)  # fmt: skip
KEY_FILE_READS = _Metric(
    "radixgate_key_file_reads", "counter",
    "Times that a changed key file was read; after an `error` the old keys stay.", "{read}",
    (_OK_OR_ERROR,),
)  # fmt: skip
REDIS_FAILURES = _Metric(
    "radixgate_redis_failures", "counter",
    "Calls to Redis that failed or were not answered in time; counting went on without it.",
    "{call}",
)  # fmt: skip

# Latency of answers.
TTFT = _Metric(
    "radixgate_time_to_first_token_seconds", "histogram",
    "TTFT: seconds from a request's start to its first token, of any choice.", "s", (OPERATION,),
    TTFT_BUCKETS, convention="gen_ai.server.time_to_first_token", has_exemplars=True,
)  # fmt: skip
TPOT = _Metric(
    "radixgate_time_per_output_token_seconds", "histogram",
    "TPOT: of each request with more than one token, the seconds from its first to its"
    " last over the number of tokens after the first.",
    "s", (OPERATION,), INTER_TOKEN_BUCKETS, convention="gen_ai.server.time_per_output_token",
    has_exemplars=True,
)  # fmt: skip
INTER_TOKEN = _Metric(
    "radixgate_inter_token_seconds", "histogram",
    "ITL: seconds between two tokens of one answer, one observation for each token.", "s", (),
    INTER_TOKEN_BUCKETS, has_exemplars=True,
)  # fmt: skip
QUEUE = _Metric(
    "radixgate_queue_seconds", "histogram",
    "Seconds from a request's acceptance by the engine to its admission, or to its end where it"
    " was never admitted; of several choices the longest.",
    "s", (), QUEUE_BUCKETS,
)  # fmt: skip

# Tokens of requests.
PROMPT_TOKENS = _Metric(
    "radixgate_prompt_tokens", "counter",
    "Prompt tokens of requests that left the queue, cached ones included.", "{token}",
)  # fmt: skip
CACHED_TOKENS = _Metric(
    "radixgate_cached_tokens", "counter",
    "Prompt tokens whose computation was found in the cache.", "{token}",
)  # fmt: skip
CACHED_TOKENS_BY_TIER = _Metric(
    "radixgate_cached_tokens_by_tier", "counter",
    "The cached tokens by where they were; those of tiers below the device were fetched for the"
    " request or for one beside it.",
    "{token}", (_TIER,),
)  # fmt: skip
CACHE_WRITTEN_TOKENS = _Metric(
    "radixgate_cache_written_tokens", "counter",
    "Prompt tokens that were computed and left in the cache.", "{token}",
)  # fmt: skip
CACHE_MISSES = _Metric(
    "radixgate_cache_misses", "counter",
    "Prompts of which the cache had no more than it had, by why.", "{prompt}",
    (MISS_REASON,),
)  # fmt: skip
GENERATED_TOKENS = _Metric(
    "radixgate_generated_tokens", "counter", "Tokens generated for answers.", "{token}"
)
FORCED_TOKENS = _Metric(
    "radixgate_forced_tokens", "counter",
    "Generated tokens that a grammar left no choice about, so that they were not sampled; of"
    " choices that the runtime ended.",
    "{token}",
)  # fmt: skip

# Constraints.
CONSTRAINTS = _Metric(
    "radixgate_constraints", "counter",
    "Constrained requests; of those with tools the kind is `tool_calls`.", "{request}",
    (
        Label("class", ("enforced", "checked", "partial")),
        Label("engine", bound="engines that there are"),
        Label("kind", bound="kinds that there are"),
    ),
)  # fmt: skip
GRAMMAR_COMPILE = _Metric(
    "radixgate_grammar_compile_seconds", "histogram",
    "Seconds from a new constraint to its first mask, in the probe's child.", "s", (),
    COMPILE_BUCKETS,
)  # fmt: skip
MASK = _Metric(
    "radixgate_mask_seconds", "histogram",
    "Seconds that the masks of one constrained request took, over all its steps.", "s", (),
    MASK_BUCKETS,
)  # fmt: skip
CONSTRAINT_VIOLATIONS = _Metric(
    "radixgate_constraint_violations", "counter",
    "Complete answers that did not fit their constraint and were not given; stays 0.", "{answer}",
)  # fmt: skip
CONSTRAINT_RETRIES = _Metric(
    "radixgate_constraint_retries", "counter",
    "Times that a part of a checked answer was generated anew.", "{retry}",
)  # fmt: skip
RETRIED_TOKENS = _Metric(
    "radixgate_retried_tokens", "counter",
    "Tokens of checked answers that were thrown away; they cost nothing.", "{token}",
)  # fmt: skip

# Goodput and money.
GOODPUT = _Metric(
    "radixgate_goodput_requests", "counter",
    "Requests for an answer by whether they kept the limits that are set.", "{request}",
    (Label("result", GOODPUT_RESULTS),),
)  # fmt: skip
SLO = _Metric(
    "radixgate_slo_seconds", "gauge", "The limits of goodput; none where none is set.", "s",
    (Label("limit", ("ttft", "tpot")),),
)  # fmt: skip
TENANT_TOKENS = _Metric(
    "radixgate_tenant_tokens", "counter",
    "Tokens by tenant; input and cached_input together are the prompts'.", "{token}",
    (_TENANT, _TOKEN_KIND),
)  # fmt: skip
COST = _Metric(
    "radixgate_cost", "counter", "What these tokens cost by the price file.", "{currency}",
    (_TENANT, _TOKEN_KIND, Label("currency", bound="the price file's")),
)  # fmt: skip

# The engine.
BUILD_INFO = _Metric(
    "radixgate_build_info", "gauge", "1; what is served, once the runtime has said it.", "",
    tuple(Label(name, bound="one") for name in ("version", "model", "dtype", "device")),
)  # fmt: skip
ENGINE_UP = _Metric(
    "radixgate_engine_up", "gauge", "1 while the engine takes requests.", of_runtime=True
)
WAITING = _Metric(
    "radixgate_requests_waiting", "gauge", "Requests in the engine's queue.", "{request}",
    of_runtime=True,
)  # fmt: skip
RUNNING = _Metric(
    "radixgate_requests_running", "gauge", "Requests in the engine's batch.", "{request}",
    of_runtime=True,
)  # fmt: skip
KV_PAGES = _Metric(
    "radixgate_kv_pages", "gauge",
    "KV pages that are free, cached (in the tree) or held (by one running request); together they"
    " are the capacity.",
    "{page}", (Label("state", ("free", "cached", "held")),), of_runtime=True,
)  # fmt: skip
KV_PAGES_LOCKED = _Metric(
    "radixgate_kv_pages_locked", "gauge",
    "Cached pages that running requests use and that cannot be evicted.", "{page}",
    of_runtime=True,
)  # fmt: skip
KV_PAGES_PINNED = _Metric(
    "radixgate_kv_pages_pinned", "gauge",
    "Cached pages that clients have asked to keep, the last to be evicted.", "{page}",
    of_runtime=True,
)  # fmt: skip
KV_PAGES_CAPACITY = _Metric(
    "radixgate_kv_pages_capacity", "gauge", "KV pages in the pool.", "{page}", of_runtime=True
)
COMPUTED_TOKENS = _Metric(
    "radixgate_computed_prompt_tokens", "counter",
    "Prompt tokens that were computed rather than found in the cache.", "{token}", of_runtime=True,
)  # fmt: skip
RECOMPUTED_TOKENS = _Metric(
    "radixgate_recomputed_tokens", "counter", "Tokens computed again after a preemption.",
    "{token}", of_runtime=True,
)  # fmt: skip
PREEMPTIONS = _Metric(
    "radixgate_preemptions", "counter",
    "Running requests that gave their pages to another and were started again.", "{preemption}",
    of_runtime=True,
)  # fmt: skip
FAIR_PREEMPTIONS = _Metric(
    "radixgate_fair_preemptions", "counter",
    "Running requests of a key that had many, started again after one of another key.",
    "{preemption}", of_runtime=True,
)  # fmt: skip
EVICTED_PAGES = _Metric(
    "radixgate_evicted_pages", "counter", "Cached pages given up for new ones.", "{page}",
    of_runtime=True,
)  # fmt: skip
ENGINE_STEPS = _Metric(
    "radixgate_engine_steps", "counter", "Forward passes of the engine.", "{step}", of_runtime=True
)

# Tiers of the cache below the device.
TIER_UP = _Metric(
    "radixgate_cache_tier_up", "gauge",
    "1 while the tier is asked for pages; 0 while a breaker is open or a disk cannot be read.", "",
    (_LOWER,), of_runtime=True,
)  # fmt: skip
TIER_PAGES = _Metric(
    "radixgate_cache_tier_pages", "gauge", "Pages in the tier; of Redis all keys.", "{page}",
    (_LOWER,), of_runtime=True,
)  # fmt: skip
TIER_BYTES = _Metric(
    "radixgate_cache_tier_bytes", "gauge", "Bytes that the tier takes up.", "By", (_LOWER,),
    of_runtime=True,
)  # fmt: skip
TIER_CAPACITY = _Metric(
    "radixgate_cache_tier_capacity_bytes", "gauge",
    "Bytes that it may take up; absent where that is unknown.", "By", (_LOWER,), of_runtime=True,
)  # fmt: skip
TIER_LOOKUPS = _Metric(
    "radixgate_cache_tier_lookups", "counter", "Pages that were looked for.", "{page}",
    (_LOWER, Label("outcome", ("found", "missing"))), of_runtime=True,
)  # fmt: skip
TIER_PAGES_FETCHED = _Metric(
    "radixgate_cache_tier_pages_fetched", "counter", "Pages that came back.", "{page}", (_LOWER,),
    of_runtime=True,
)  # fmt: skip
TIER_PAGES_STORED = _Metric(
    "radixgate_cache_tier_pages_stored", "counter", "Pages that were written.", "{page}", (_LOWER,),
    of_runtime=True,
)  # fmt: skip
TIER_BYTES_FETCHED = _Metric(
    "radixgate_cache_tier_bytes_fetched", "counter", "Bytes of pages that came back.", "By",
    (_LOWER,), of_runtime=True,
)  # fmt: skip
TIER_BYTES_STORED = _Metric(
    "radixgate_cache_tier_bytes_stored", "counter", "Bytes of pages that were written.", "By",
    (_LOWER,), of_runtime=True,
)  # fmt: skip
TIER_DECLINED = _Metric(
    "radixgate_cache_tier_declined", "counter",
    "Fetches that computing the pages was cheaper than.", "{fetch}", (_LOWER,), of_runtime=True,
)  # fmt: skip
TIER_FAILURES = _Metric(
    "radixgate_cache_tier_failures", "counter", "Calls that failed or took too long.", "{call}",
    (_LOWER,), of_runtime=True,
)  # fmt: skip
TIER_OPENINGS = _Metric(
    "radixgate_cache_tier_breaker_openings", "counter",
    "Times that nothing was asked of it any more for a while.", "{opening}", (_LOWER,),
    of_runtime=True,
)  # fmt: skip
TIER_REJECTED = _Metric(
    "radixgate_cache_tier_pages_rejected", "counter",
    "Pages that came back and did not fit exactly: they are computed.", "{page}", (_LOWER, _CODE),
    of_runtime=True,
)  # fmt: skip
TIER_DROPPED = _Metric(
    "radixgate_cache_tier_pages_dropped", "counter",
    "Pages that should have been written and were not: `evicted` before their turn, a tier that"
    " was `down`, a `backlog`, `foreign` (torch had a part in them before the native step was"
    " there), `not_ready`, `not_finite`, and the tier's own.",
    "{page}", (_LOWER, _CODE), of_runtime=True,
)  # fmt: skip

# Telemetry of itself.
SPANS_EXPORTED = _Metric(
    "radixgate_spans_exported", "counter", "Spans that a collector accepted.", "{span}"
)
SPANS_DROPPED = _Metric(
    "radixgate_spans_dropped", "counter", "Sampled spans that no collector will get.", "{span}"
)
METRIC_EXPORTS = _Metric(
    "radixgate_metric_exports", "counter",
    "Times that these metrics were sent to a collector, by what came of it.", "{export}",
    (_OK_OR_ERROR,),
)  # fmt: skip

METRICS = tuple(one for one in tuple(globals().values()) if isinstance(one, MetricDefinition))
BY_NAME = {metric.name: metric for metric in METRICS}
