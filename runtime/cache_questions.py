"""Answers what gateways ask about the prefix cache. Held by the engine, asked between two steps."""

from typing import assert_never

from prefix_cache import PrefixCache
from runtime.cache_messages import (
    CacheAnswer,
    CacheDescription,
    CacheExplanation,
    CacheFlushed,
    CacheQuery,
    DescribeCache,
    ExplainCache,
    FlushCache,
)
from runtime.messages import EngineInfo


class CacheQuestions:
    """Reads one cache; only a FlushCache changes anything."""

    def __init__(self, cache: PrefixCache, info: EngineInfo) -> None:
        self._cache = cache
        self._info = info

    def answer(self, query: CacheQuery) -> CacheAnswer:
        match query:
            case ExplainCache():
                return self._explain(query)
            case DescribeCache():
                return self._describe(query)
            case FlushCache():
                return CacheFlushed(query.request_id, self._cache.flush())
            case _:
                assert_never(query)

    def _explain(self, query: ExplainCache) -> CacheExplanation:
        token_ids = query.prompt_token_ids
        return CacheExplanation(
            request_id=query.request_id,
            num_tokens=len(token_ids),
            matched_tokens=self._cache.peek(query.namespace, token_ids),
        )

    def _describe(self, query: DescribeCache) -> CacheDescription:
        pages = self._cache.counts()
        return CacheDescription(
            request_id=query.request_id,
            page_size=self._cache.page_size,
            page_bytes=self._info.page_bytes,
            pages_free=pages.free,
            pages_cached=pages.cached,
            pages_locked=pages.locked,
            pages_held=pages.held,
            pages_total=pages.total,
            num_evicted_pages=self._cache.num_evicted_pages,
            owners=[],
        )
