"""The dashboard of cache and cost: what is found, in which tier, and what tokens cost."""

from deploy.dashboard_queries import of_runtime, per_second, stat
from deploy.grafana_json import Dashboard, Panel, Query, Row

_HITS = Row(
    "What the cache saves",
    (
        stat("Found, of prompt tokens", "radixgate:cache_hit_ratio:5m", "percentunit"),
        stat(
            "Tokens found",
            "sum(increase(radixgate_cached_tokens_total[$__range]))",
            "short",
        ),
        stat(
            "Tokens computed",
            "max(increase(radixgate_computed_prompt_tokens_total[$__range]))",
            "short",
        ),
        stat(
            "Cost",
            "sum by (currency) (increase(radixgate_cost_total[$__range]))",
            "short",
        ),
        stat(
            "Pool in use",
            'max(radixgate_kv_pages{state="held"}) / max(radixgate_kv_pages_capacity)',
            "percentunit",
        ),
        stat("Pages evicted", "max(increase(radixgate_evicted_pages_total[$__range]))", "short"),
        Panel(
            "Found, of prompt tokens",
            (
                Query("radixgate:cache_hit_ratio:5m", "5 minutes"),
                Query("radixgate:cache_hit_ratio:30m", "30 minutes"),
            ),
            "By tokens. HitRateCollapsed compares the second with its own last hours.",
            unit="percentunit",
            max_value=1,
        ),
        Panel(
            "Where they were",
            (Query(per_second("radixgate_cached_tokens_by_tier_total", "tier"), "{{tier}}"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            "Why there was no more",
            (Query(per_second("radixgate_cache_misses_total", "reason"), "{{reason}}"),),
            "`radixgate cache explain` says it of one request.",
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Prompt tokens",
            (
                Query(per_second("radixgate_cached_tokens_total"), "found"),
                Query(of_runtime("radixgate_computed_prompt_tokens_total"), "computed"),
                Query(of_runtime("radixgate_recomputed_tokens_total"), "computed again"),
                Query(per_second("radixgate_cache_written_tokens_total"), "left in the cache"),
            ),
            unit="cps",
        ),
        Panel(
            "Pages on the device",
            (
                Query("max by (state) (radixgate_kv_pages)", "{{state}}"),
                Query("max(radixgate_kv_pages_locked)", "in use by requests"),
                Query("max(radixgate_kv_pages_pinned)", "pinned"),
            ),
        ),
        Panel(
            "Pages evicted",
            (Query(of_runtime("radixgate_evicted_pages_total"), "evicted"),),
            unit="ops",
        ),
    ),
)

_TIERS = Row(
    "Lower tiers",
    (
        Panel(
            "Up",
            (Query("max by (tier) (radixgate_cache_tier_up)", "{{tier}}"),),
            "0 while a breaker is open.",
            max_value=1,
        ),
        Panel(
            "Filled",
            (
                Query(
                    "max by (tier) (radixgate_cache_tier_bytes)"
                    " / max by (tier) (radixgate_cache_tier_capacity_bytes)",
                    "{{tier}}",
                ),
            ),
            unit="percentunit",
            max_value=1,
        ),
        Panel(
            "Pages looked for",
            (
                Query(
                    of_runtime("radixgate_cache_tier_lookups_total", "tier", "outcome"),
                    "{{tier}}, {{outcome}}",
                ),
            ),
            unit="ops",
        ),
        Panel(
            "Bytes fetched and stored",
            (
                Query(
                    of_runtime("radixgate_cache_tier_bytes_fetched_total", "tier"),
                    "{{tier}}, fetched",
                ),
                Query(
                    of_runtime("radixgate_cache_tier_bytes_stored_total", "tier"),
                    "{{tier}}, stored",
                ),
            ),
            unit="Bps",
        ),
        Panel(
            "Fetches that would have been slower",
            (Query(of_runtime("radixgate_cache_tier_declined_total", "tier"), "{{tier}}"),),
            "Computing was cheaper, by what both were measured to take.",
            unit="ops",
        ),
        Panel(
            "Pages not taken or not written",
            (
                Query(
                    of_runtime("radixgate_cache_tier_pages_rejected_total", "tier", "reason"),
                    "{{tier}}, came back {{reason}}",
                ),
                Query(
                    of_runtime("radixgate_cache_tier_pages_dropped_total", "tier", "reason"),
                    "{{tier}}, not written: {{reason}}",
                ),
            ),
            unit="ops",
        ),
        Panel(
            "Failures",
            (
                Query(of_runtime("radixgate_cache_tier_failures_total", "tier"), "{{tier}}, calls"),
                Query(
                    of_runtime("radixgate_cache_tier_breaker_openings_total", "tier"),
                    "{{tier}}, breaker opened",
                ),
            ),
            unit="ops",
        ),
    ),
)

_COST = Row(
    "Cost",
    (
        Panel(
            "Cost an hour, by kind of token",
            (
                Query(
                    "3600 * " + per_second("radixgate_cost_total", "kind", "currency"),
                    "{{kind}} ({{currency}})",
                ),
            ),
            "By the price file (RADIXGATE_PRICE_FILE).",
            stacked=True,
        ),
        Panel(
            "Cost an hour, by tenant",
            (
                Query(
                    "3600 * topk(10, "
                    + per_second("radixgate_cost_total", "tenant", "currency")
                    + ")",
                    "{{tenant}} ({{currency}})",
                ),
            ),
            "The ten that cost most. Tenants are hashes, as in traces.",
            stacked=True,
        ),
        Panel(
            "Cost of a million generated tokens",
            (
                Query(
                    "1e6 * "
                    + per_second("radixgate_cost_total", "currency")
                    + " / on () group_left () "
                    + per_second("radixgate_generated_tokens_total"),
                    "{{currency}}",
                ),
            ),
            "All that was charged, prompts too.",
        ),
        Panel(
            "Tokens by tenant",
            (
                Query(
                    "topk(10, " + per_second("radixgate_tenant_tokens_total", "tenant") + ")",
                    "{{tenant}}",
                ),
            ),
            unit="cps",
            stacked=True,
        ),
        Panel(
            "Found in the cache, by tenant",
            (
                Query(
                    per_second('radixgate_tenant_tokens_total{kind="cached_input"}', "tenant")
                    + " / "
                    + per_second(
                        'radixgate_tenant_tokens_total{kind=~"input|cached_input"}', "tenant"
                    ),
                    "{{tenant}}",
                ),
            ),
            unit="percentunit",
            max_value=1,
        ),
        Panel(
            "Cost in the range that is shown",
            (
                Query(
                    "sum by (tenant, kind, currency) (increase(radixgate_cost_total[$__range]))",
                    is_instant=True,
                ),
            ),
            kind="table",
        ),
    ),
)

CACHE_AND_COST = Dashboard(
    "radixgate-cache-and-cost",
    "radixgate: cache and cost",
    "What the prefix cache saves, what its tiers do, and what tokens cost.",
    (_HITS, _TIERS, _COST),
)
