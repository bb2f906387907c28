"""Counts what sequences found, computed and computed again, and charges tenants for it.

Owned by the scheduler, which tells it of every match and every step.
"""

from runtime.counters import Counters
from runtime.fairness import INPUT_WEIGHT, OUTPUT_WEIGHT, RecomputeCredit, TenantCounters
from runtime.request import Sequence
from runtime.schedule import Schedule


class ServedTokens:
    """Writes a sequence's counts of provided, cached and recomputed tokens."""

    def __init__(
        self, counters: Counters, tenants: TenantCounters, credit: RecomputeCredit
    ) -> None:
        self._counters = counters
        self._tenants = tenants
        self._credit = credit

    def count_match(self, sequence: Sequence, num_matched: int) -> None:
        """So many tokens were found at an admission. Those that were provided before a preemption
        are no hit."""
        self._credit.settle(sequence.key, sequence.num_provided_tokens - num_matched)
        num_hits = min(num_matched, sequence.num_prompt_tokens)
        num_hits = max(0, num_hits - sequence.num_provided_tokens)
        sequence.num_cached_tokens += num_hits
        sequence.num_provided_tokens = max(sequence.num_provided_tokens, num_matched)
        self._counters.cached_tokens += num_hits
        if not sequence.was_admitted:
            self._counters.prompt_tokens += sequence.num_prompt_tokens

    def charge(self, schedule: Schedule) -> None:
        """Counts the step for the tenants; what is computed again counts nothing."""
        served: dict[str, int] = {}
        num_new_in_all = 0
        for sequence, row in zip(schedule.sequences, schedule.batch.rows, strict=True):
            num_tokens = num_new = len(row.token_ids)
            if row.start < sequence.num_provided_tokens:
                num_new = max(0, row.start + num_tokens - sequence.num_provided_tokens)
            num_new_in_all += num_new
            # Behind the input the first of a row was sampled, and counted then; others were forced.
            num_input = num_new if row.start < sequence.input_len else num_tokens - 1
            weighted = INPUT_WEIGHT * num_input + OUTPUT_WEIGHT * len(row.sample_offsets)
            tenant = sequence.request.submit.tenant
            served[tenant] = served.get(tenant, 0) + weighted
        for tenant, weighted in served.items():
            self._tenants.charge(tenant, weighted)
        self._credit.earn(num_new_in_all)

    def count_computed(self, sequence: Sequence, start: int, end: int) -> None:
        """Splits [start, end) at what was provided before: behind it is new, in front a repeat."""
        num_provided = sequence.num_provided_tokens
        if start >= num_provided >= sequence.num_prompt_tokens:
            sequence.num_provided_tokens = end
            return
        num_repeated = max(0, min(end, num_provided) - start)
        num_new_prompt = min(end, sequence.num_prompt_tokens) - max(start, num_provided)
        sequence.num_recomputed_tokens += num_repeated
        sequence.num_provided_tokens = max(num_provided, end)
        self._counters.recomputed_tokens += num_repeated
        self._counters.computed_prompt_tokens += max(0, num_new_prompt)
