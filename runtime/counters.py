"""The engine's counters since its start: tokens, preemptions, steps. Written by the engine loop."""

from dataclasses import dataclass

from prefix_cache import PrefixCache
from runtime.cache_messages import TierUse
from runtime.messages import EngineStats


@dataclass(eq=False, slots=True)
class Counters:
    """For every sequence that was admitted and ran to its end, cached + computed_prompt = prompt;
    what is computed again after a preemption is in `recomputed` alone."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_prompt_tokens: int = 0
    recomputed_tokens: int = 0
    generated_tokens: int = 0
    forced_tokens: int = 0
    preemptions: int = 0
    fair_preemptions: int = 0
    steps: int = 0

    def stats(
        self,
        cache: PrefixCache,
        *,
        num_waiting: int,
        num_running: int,
        tiers: tuple[TierUse, ...] = (),
    ) -> EngineStats:
        """These counters and the cache's pages as one frozen snapshot."""
        pages = cache.counts()
        return EngineStats(
            num_waiting=num_waiting,
            num_running=num_running,
            pages_free=pages.free,
            pages_cached=pages.cached,
            pages_locked=pages.locked,
            pages_held=pages.held,
            pages_total=pages.total,
            pages_pinned=pages.pinned,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            computed_prompt_tokens=self.computed_prompt_tokens,
            recomputed_tokens=self.recomputed_tokens,
            generated_tokens=self.generated_tokens,
            forced_tokens=self.forced_tokens,
            preemptions=self.preemptions,
            fair_preemptions=self.fair_preemptions,
            evicted_pages=cache.num_evicted_pages,
            steps=self.steps,
            tiers=tiers,
        )
