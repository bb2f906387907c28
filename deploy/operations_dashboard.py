"""The dashboard of operations: whether users wait or fail, and where the time goes."""

from deploy.dashboard_queries import limit, of_runtime, per_second, quantiles, stat
from deploy.grafana_json import Dashboard, Panel, Query, Row

_NOW = Row(
    "Now",
    (
        stat("First token, p95", "radixgate:ttft_seconds:p95_5m", "s", steps=(1, 2)),
        stat("Per token, p95", "radixgate:tpot_seconds:p95_5m", "s", steps=(0.05, 0.1)),
        stat("Good requests", "radixgate:goodput_ratio:5m", "percentunit", steps=(0.95, 0.8)),
        stat("Requests that fail", "radixgate:error_ratio:5m", "percentunit", steps=(0.01, 0.05)),
        stat("In flight", "sum(radixgate_requests_in_flight)", "short"),
        stat("Tokens generated", per_second("radixgate_generated_tokens_total"), "cps"),
        Panel("Alerts", kind="alertlist", width=24, height=5),
    ),
)

_LATENCY = Row(
    "How long it takes",
    (
        Panel(
            "Time to first token",
            (
                *quantiles("radixgate_time_to_first_token_seconds", has_exemplars=True),
                limit("ttft"),
            ),
            "From a request's start to its first token. A point leads to the trace of a request.",
            unit="s",
        ),
        Panel(
            "Time per output token",
            (
                *quantiles("radixgate_time_per_output_token_seconds", has_exemplars=True),
                limit("tpot"),
            ),
            "Of each request with more than one token: its time after the first, over its tokens.",
            unit="s",
        ),
        Panel(
            "Whole request",
            quantiles("radixgate_request_duration_seconds", has_exemplars=True),
            "From acceptance to the last byte.",
            unit="s",
        ),
        Panel(
            "Between two tokens",
            quantiles("radixgate_inter_token_seconds"),
            "One observation for each token: what a reader sees stutter.",
            unit="s",
        ),
        Panel(
            "In the queue",
            quantiles("radixgate_queue_seconds"),
            "From acceptance by the engine to admission.",
            unit="s",
        ),
        Panel(
            "Requests by whether they kept the limits",
            (Query(per_second("radixgate_goodput_requests_total", "result"), "{{result}}"),),
            "The limits are RADIXGATE_SLO_TTFT_MS and RADIXGATE_SLO_TPOT_MS.",
            unit="reqps",
            stacked=True,
        ),
    ),
)

_LOAD = Row(
    "What is asked",
    (
        Panel(
            "Requests by outcome",
            (Query(per_second("radixgate_requests_total", "outcome"), "{{outcome}}"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Requests by route",
            (Query(per_second("radixgate_requests_total", "route"), "{{route}}"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Refused before the engine",
            (Query(per_second("radixgate_rejected_total", "reason"), "{{reason}}"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Tokens",
            (
                Query(per_second("radixgate_prompt_tokens_total"), "prompt"),
                Query(per_second("radixgate_cached_tokens_total"), "of these found in the cache"),
                Query(per_second("radixgate_generated_tokens_total"), "generated"),
            ),
            unit="cps",
        ),
        Panel(
            "Running and waiting",
            (
                Query("max(radixgate_requests_running)", "running"),
                Query("max(radixgate_requests_waiting)", "waiting"),
                Query("sum(radixgate_requests_in_flight)", "accepted by the gateways"),
            ),
        ),
        Panel(
            "In flight by gateway",
            (Query("sum by (instance) (radixgate_requests_in_flight)", "{{instance}}"),),
            stacked=True,
        ),
    ),
)

_ENGINE = Row(
    "The engine",
    (
        Panel(
            "KV pages",
            (Query("max by (state) (radixgate_kv_pages)", "{{state}}"),),
            "Free, cached and held add up to the pool.",
            stacked=True,
        ),
        Panel(
            "Steps",
            (Query(of_runtime("radixgate_engine_steps_total"), "steps"),),
            "Forward passes a second.",
            unit="ops",
        ),
        Panel(
            "Engine up",
            (
                Query("max(radixgate_engine_up)", "takes requests"),
                Query('sum(up{job="gateway"})', "gateways that answer"),
            ),
        ),
        Panel(
            "Preemptions",
            (
                Query(of_runtime("radixgate_preemptions_total"), "for want of pages"),
                Query(of_runtime("radixgate_fair_preemptions_total"), "for another key"),
            ),
            unit="ops",
        ),
        Panel(
            "Tokens computed twice",
            (Query(of_runtime("radixgate_recomputed_tokens_total"), "recomputed"),),
            "After a preemption.",
            unit="cps",
        ),
        Panel(
            "What is served",
            (
                Query(
                    "max by (version, model, dtype, device) (radixgate_build_info)",
                    is_instant=True,
                ),
            ),
            kind="table",
        ),
    ),
)

_CONSTRAINTS = Row(
    "Constraints",
    (
        Panel(
            "Constrained requests",
            (
                Query(
                    per_second("radixgate_constraints_total", "kind", "class"),
                    "{{kind}}, {{class}}",
                ),
            ),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Compiling a new constraint",
            quantiles("radixgate_grammar_compile_seconds"),
            unit="s",
        ),
        Panel(
            "Masks of a request",
            quantiles("radixgate_mask_seconds"),
            "All its steps together.",
            unit="s",
        ),
        Panel(
            "Answers that did not fit",
            (
                Query("sum(increase(radixgate_constraint_violations_total[1h]))", "withheld"),
                Query("sum(increase(radixgate_constraint_retries_total[1h]))", "parts made anew"),
            ),
            "In the last hour. The first stays 0.",
        ),
        Panel(
            "Tokens that a grammar decided",
            (
                Query(per_second("radixgate_forced_tokens_total"), "forced"),
                Query(per_second("radixgate_retried_tokens_total"), "thrown away"),
            ),
            unit="cps",
        ),
    ),
)

_ITSELF = Row(
    "Watching and counting",
    (
        Panel(
            "Spans",
            (
                Query(per_second("radixgate_spans_exported_total"), "exported"),
                Query(per_second("radixgate_spans_dropped_total"), "dropped"),
            ),
            unit="ops",
        ),
        Panel(
            "Redis failures",
            (Query(per_second("radixgate_redis_failures_total"), "calls"),),
            "Counting and keeping responses go on without it.",
            unit="ops",
        ),
        Panel(
            "Key file read",
            (
                Query(
                    "sum by (outcome) (increase(radixgate_key_file_reads_total[1h]))",
                    "{{outcome}}",
                ),
            ),
            "In the last hour; after an error the old keys stay.",
        ),
        Panel(
            "Parameters without effect",
            (Query(per_second("radixgate_ignored_parameters_total", "name"), "{{name}}"),),
            unit="ops",
        ),
    ),
)

OPERATIONS = Dashboard(
    "radixgate-operations",
    "radixgate: operations",
    "Whether users wait or fail, and where the time goes.",
    (_NOW, _LATENCY, _LOAD, _ENGINE, _CONSTRAINTS, _ITSELF),
)
