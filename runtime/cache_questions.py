"""Answers what gateways ask about the prefix cache, and keeps what the answers are made of.

Held by the engine, in its thread, and asked between two steps.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import assert_never

import msgspec

from prefix_cache import PrefixCache
from prefix_cache.evicted_log import EvictedLog
from prefix_cache.explain import CacheExplainer
from prefix_cache.hit_rates import HitRates
from prefix_cache.tiers.tier import TierLabel
from runtime.cache_description import CacheDescriber
from runtime.cache_messages import (
    CacheAnswer,
    CacheExplanation,
    CacheFault,
    CacheFlushed,
    CacheQuery,
    DescribeCache,
    ExplainCache,
    FlushCache,
    TierName,
)
from runtime.lower_tiers import TierLookup
from runtime.messages import EngineInfo
from runtime.question_queue import AnswerOrFuture
from runtime.request import Sequence


class CacheQuestions:
    """`evicted` is the cache's observer."""

    def __init__(
        self,
        cache: PrefixCache,
        info: EngineInfo,
        *,
        evicted: EvictedLog,
        tiers: TierLookup,
        clock: Callable[[], int],
    ) -> None:
        self._cache = cache
        self._vocab_size = info.vocab_size
        self._tiers = tiers
        self._rates = HitRates(clock_ns=clock)
        self._explainer = CacheExplainer(cache, evicted)
        self._describer = CacheDescriber(cache, self._rates, page_bytes=info.page_bytes)

    def admitted(self, sequence: Sequence) -> None:
        """A sequence was let in for the first time: counts what it found, says why not more."""
        submit = sequence.request.submit
        if sequence.choice == 0:  # the others of a request find what the first one computed
            self._rates.note(
                submit.cache.owner,
                num_prompt_tokens=sequence.num_prompt_tokens,
                num_cached_tokens=sequence.num_cached_tokens,
            )
        if sequence.takes_prefix and sequence.lease is not None:
            reason = self._explainer.reason_of(sequence.lease, sequence.token_ids)
            if reason is not None:
                sequence.phases.missed(reason)

    def answer(self, query: CacheQuery) -> AnswerOrFuture:
        """One answer, at once or when lower tiers have been asked."""
        match query:
            case ExplainCache():
                return self._explain(query)
            case DescribeCache():
                return self._describer.describe(query, self._tiers.uses())
            case FlushCache():
                return self._flush(query)
            case _:
                assert_never(query)

    def _flush(self, query: FlushCache) -> CacheFlushed:
        self._tiers.note_changes()
        self._cache.take_removed()  # of before: those that follow are what the flush takes out
        num_pages = self._cache.flush(query.owner)
        if query.tiers:
            is_all = query.owner is None
            self._tiers.forget(None if is_all else self._cache.take_removed())
        return CacheFlushed(query.request_id, num_pages)

    def _explain(self, query: ExplainCache) -> AnswerOrFuture:
        token_ids = query.prompt_token_ids
        if any(not 0 <= token_id < self._vocab_size for token_id in token_ids):
            reason = f"prompt_token_ids must be in [0, {self._vocab_size})"
            return CacheFault(query.request_id, reason)
        told = self._explainer.explain(
            query.namespace, token_ids, owner=query.owner, sees_all=query.sees_all
        )
        explanation = CacheExplanation(
            request_id=query.request_id,
            num_tokens=len(token_ids),
            matched_tokens=told.matched_tokens,
            reason=told.reason,
            cached_ids=told.cached_ids,
            evicted_at_ns=told.evicted.at_ns if told.evicted is not None else None,
            evicted_for=told.evicted.cause if told.evicted is not None else None,
        )
        if told.reason is None:
            return explanation
        # The last token is computed in any case.
        found = self._tiers.count(
            query.namespace, token_ids[:-1], num_cached_tokens=told.matched_tokens
        )
        other = None
        if told.reason == "never_seen":
            other = self._tiers.has_of_other_model(query.namespace, token_ids[:-1])
        return self._with_tiers(explanation, found, other)

    def _with_tiers(
        self,
        explanation: CacheExplanation,
        found: Future[dict[TierLabel, int]],
        other: Future[bool] | None,
    ) -> Future[CacheAnswer]:
        """The explanation for when lower tiers have told what they have."""
        answer: Future[CacheAnswer] = Future()

        def complete(_: Future[bool] | Future[dict[TierLabel, int]]) -> None:
            try:
                told = _completed(explanation, found.result(), self._cache.page_size)
                if told.reason == "never_seen" and other is not None and other.result():
                    told = msgspec.structs.replace(told, reason="model_changed")
            except Exception as error:
                answer.set_exception(error)
            else:
                answer.set_result(told)

        if other is None:
            found.add_done_callback(complete)
        else:
            found.add_done_callback(lambda _: other.add_done_callback(complete))
        return answer


def _completed(
    explanation: CacheExplanation, num_pages: Mapping[TierLabel, int], page_size: int
) -> CacheExplanation:
    """Lower tiers have whole pages only, from the one on in which the match ends. Where these are
    all that there are of the prompt, nothing is missing. How it goes on behind them they do not
    say: what the device's nearest sequence says is of another place then."""
    matched = explanation.matched_tokens
    tokens: dict[TierName, int] = {}
    start, end = matched, matched // page_size * page_size
    for label, count in num_pages.items():
        end += count * page_size
        tokens[label], start = end - start, end
    if not tokens:
        return explanation
    num_whole = (explanation.num_tokens - 1) // page_size * page_size
    found = msgspec.structs.replace(explanation, tier_tokens=tokens, cached_ids=[])
    if end >= num_whole:
        return msgspec.structs.replace(found, reason=None, evicted_at_ns=None, evicted_for=None)
    if found.reason in ("never_seen", "differs"):
        return msgspec.structs.replace(found, reason="grows")
    return found
