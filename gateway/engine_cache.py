"""What a TokenEngine says of its prefix cache, in text: the ServedCache of a TokenGenerator.

Asks the runtime and makes texts of tokens; which owners may be shown is decided by the asker.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import TypeVar

from gateway.cache_texts import CacheTexts, explanation_of, time_of
from gateway.engine_faults import RETRY_AFTER_S
from gateway.errors import DeadlineExceeded, Overloaded, ServerError
from gateway.generation import CacheAsker, ChatPrompt, PreparedGeneration
from gateway.preparation import Preparation
from gateway.prompt_part import wants_scores
from gateway.schemas.cache_response import (
    CacheExplanation,
    CacheFlush,
    CacheState,
    HitRate,
    HotPrefixState,
    OwnerState,
    PoolState,
    Reason,
    TierState,
    TreeNode,
    TreeState,
)
from gateway.tokenizer import Tokenizer
from runtime.cache_messages import (
    CachedEdge,
    CacheDescription,
    CacheFault,
    CacheFlushed,
    CacheQuery,
    DescribeCache,
    ExplainCache,
    FlushCache,
    HitWindow,
    HotPrefix,
    TierUse,
)
from runtime.cache_messages import CacheExplanation as RuntimeExplanation
from runtime.token_engine import EngineUnavailable, TokenEngine

AnswerT = TypeVar("AnswerT")


class EngineCache:
    """Implements gateway.generation.ServedCache."""

    def __init__(self, engine: TokenEngine, tokenizer: Tokenizer, preparation: Preparation) -> None:
        self._engine = engine
        self._texts = CacheTexts(tokenizer)
        self._preparation = preparation

    async def explain(
        self, prepared: PreparedGeneration, asker: CacheAsker, *, model: str
    ) -> tuple[CacheExplanation, ...]:
        explanations = []
        try:
            async with asyncio.timeout(_left_s(prepared.request.deadline_ns)):
                # One by one: all at once would take the runtime's places for questions from others.
                for index in range(len(prepared.prompt_token_ids)):
                    explanations.append(
                        await self._explain(prepared, index, asker=asker, model=model)
                    )
        except TimeoutError:
            raise DeadlineExceeded(
                "The request's deadline passed while its prompts were explained."
            ) from None
        return tuple(explanations)

    async def describe(self, asker: CacheAsker, *, model: str, max_nodes: int) -> CacheState:
        own = await self._description(asker.owner, max_nodes)
        seen = await self._description(None, max_nodes) if asker.sees_all else own
        return CacheState(
            model=model,
            scope="all" if asker.sees_all else "own",
            page_size=seen.page_size,
            page_bytes=seen.page_bytes,
            pool=_pool(seen, sees_all=asker.sees_all),
            tiers=tuple(_tier(tier, sees_all=asker.sees_all) for tier in seen.tiers),
            hit_rates=tuple(map(_hit_rate, seen.windows)),
            owners=_owners(seen, own=asker.owner),
            hottest=tuple(map(self._hot_prefix, own.hottest)),
            tree=self._tree(own, seen, owner=asker.owner, max_nodes=max_nodes),
        )

    async def flush(self, *, model: str) -> CacheFlush:
        flushed = await self._ask(FlushCache(_new_id()), CacheFlushed)
        return CacheFlush(model=model, pages=flushed.num_pages)

    async def _explain(
        self,
        prepared: PreparedGeneration,
        index: int,
        *,
        asker: CacheAsker,
        model: str,
    ) -> CacheExplanation:
        prompt, token_ids = prepared.request.prompts[index], prepared.prompt_token_ids[index]
        barred = _barred(prepared, index)
        if barred is not None:
            return explanation_of(len(token_ids), barred, model=model)
        query = ExplainCache(
            request_id=_new_id(),
            prompt_token_ids=list(token_ids),
            namespace=prepared.request.namespace,
            owner=asker.owner,
            sees_all=asker.sees_all,
        )
        found = await self._ask(query, RuntimeExplanation)
        difference = self._texts.difference(token_ids, found)
        if difference is not None and isinstance(prompt, ChatPrompt):
            positions = await self._preparation.locate(prompt, token_ids)
            # The template may have to be run some times more.
            place = await asyncio.to_thread(positions.message_at, difference.index)
            difference = self._texts.placed(difference, place)
        return explanation_of(
            len(token_ids),
            found.reason,
            model=model,
            found=found,
            difference=difference,
            sees_all=asker.sees_all,
        )

    async def _description(self, owner: str | None, max_nodes: int) -> CacheDescription:
        return await self._ask(DescribeCache(_new_id(), owner, max_nodes), CacheDescription)

    async def _ask(self, query: CacheQuery, expected: type[AnswerT]) -> AnswerT:
        try:
            answer = await self._engine.ask(query)
        except EngineUnavailable as error:
            raise Overloaded(str(error), retry_after_s=RETRY_AFTER_S) from error
        if isinstance(answer, CacheFault):
            if answer.is_busy:
                raise Overloaded(answer.reason, retry_after_s=RETRY_AFTER_S)
            raise ServerError(f"The prefix cache did not answer: {answer.reason}")
        assert isinstance(answer, expected), "an answer to another question"
        return answer

    def _hot_prefix(self, hot: HotPrefix) -> HotPrefixState:
        return HotPrefixState(
            tokens=hot.num_tokens,
            hits=hot.num_hits,
            last_used_at=time_of(hot.last_used_ns),
            starts_with=self._texts.of(hot.first_ids),
            ends_with=self._texts.of(hot.last_ids) if hot.last_ids else None,
        )

    def _tree(
        self, own: CacheDescription, seen: CacheDescription, *, owner: str, max_nodes: int
    ) -> TreeState:
        """The own edges, which have their tokens, then those of others as far as there is room."""
        others = [edge for edge in seen.edges if edge.owner != owner] if seen is not own else []
        nodes = self._nodes(own.edges, first_id=0)
        nodes += self._nodes(others, first_id=len(nodes))
        kept = tuple(nodes[:max_nodes])
        num_all = len(seen.edges) + seen.num_left_out
        return TreeState(kept, left_out=max(num_all - len(kept), 0))

    def _nodes(self, edges: Sequence[CachedEdge], *, first_id: int) -> list[TreeNode]:
        """Parents before their children, numbered on from `first_id`."""
        ordered = sorted(edges, key=lambda edge: edge.start)
        ids = {edge.id: first_id + index for index, edge in enumerate(ordered)}
        return [
            TreeNode(
                id=ids[edge.id],
                parent=None if edge.parent is None else ids[edge.parent],
                owner=edge.owner,
                start=edge.start,
                tokens=edge.num_tokens,
                pages=edge.num_pages,
                hits=edge.num_hits,
                last_used_at=time_of(edge.last_used_ns),
                pinned_until=time_of(edge.pinned_until_ns),
                in_use=edge.is_locked,
                text=self._texts.of(edge.token_ids) if edge.token_ids else None,
            )
            for edge in ordered
        ]


def _left_s(deadline_ns: int) -> float | None:
    """None = for as long as it takes."""
    return (deadline_ns - time.time_ns()) / 1e9 if deadline_ns else None


def _new_id() -> str:
    return f"cache-{secrets.token_hex(16)}"


def _barred(prepared: PreparedGeneration, index: int) -> Reason | None:
    """What keeps the request from taking anything of the cache, whatever is in it."""
    if not prepared.request.use_cache:
        return "cache_prompt_false"
    if not prepared.cache_of(index).is_used:
        return "no_breakpoint"
    return "prompt_scored" if wants_scores(prepared.request) else None


def _pool(seen: CacheDescription, *, sees_all: bool) -> PoolState:
    pages, num_bytes = seen.pages_total, seen.pages_total * seen.page_bytes
    if not sees_all:
        return PoolState(pages, num_bytes)
    return PoolState(
        pages,
        num_bytes,
        free_pages=seen.pages_free,
        cached_pages=seen.pages_cached,
        locked_pages=seen.pages_locked,
        held_pages=seen.pages_held,
        evicted_pages=seen.num_evicted_pages,
    )


def _tier(tier: TierUse, *, sees_all: bool) -> TierState:
    if not sees_all:
        return TierState(tier.name, tier.is_up, tier.max_bytes)
    return TierState(
        tier.name,
        tier.is_up,
        tier.max_bytes,
        pages=tier.num_pages,
        bytes=tier.num_bytes,
        found=tier.num_found,
        missing=tier.num_missing,
        fetched=tier.num_fetched,
        stored=tier.num_stored,
        declined=tier.num_declined,
        failures=tier.num_failures,
        rejected=tier.num_rejected,
        dropped=tier.num_dropped,
    )


def _owners(seen: CacheDescription, *, own: str) -> tuple[OwnerState, ...]:
    """The own first, then those with the most pages."""
    uses = sorted(seen.owners, key=lambda use: (use.owner != own, -use.num_pages, use.owner))
    return tuple(
        OwnerState(
            owner=use.owner,
            is_own=use.owner == own,
            pages=use.num_pages,
            bytes=use.num_pages * seen.page_bytes,
            pinned_pages=use.num_pinned_pages,
            quota_pages=use.quota_pages,
            hit_rates=tuple(map(_hit_rate, use.windows)),
        )
        for use in uses
    )


def _hit_rate(window: HitWindow) -> HitRate:
    share = window.cached_tokens / window.prompt_tokens if window.prompt_tokens else None
    return HitRate(
        window.window_s,
        window.num_requests,
        window.prompt_tokens,
        window.cached_tokens,
        None if share is None else round(share, 4),
    )
