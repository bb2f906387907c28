"""What the engine does with the lower tiers of its cache: pages come back before admission
(promotion.py) and are kept in idle time (write_behind.py).

Owned by the engine, in its thread. Without tiers the engine has NoTiers: nothing is done then.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from prefix_cache import PrefixCache
from prefix_cache.tiers.tier import TierLabel
from runtime.batch import Executor
from runtime.cache_messages import TierUse
from runtime.prefix_uses import PrefixUses
from runtime.promotion import Promotion
from runtime.request import Request
from runtime.step_budget import PrefillEstimate
from runtime.tier_fetch import Fetch
from runtime.tier_threads import TierSet
from runtime.warm_up import WarmUp
from runtime.write_behind import WriteBehind

# How old the figures may be that go with each step's message.
USES_AGE_NS = 200_000_000
# At the end, so long may be spent on pages that no tier has yet.
FLUSH_S = 1.0
WAIT_S = 0.05


class TierLookup(Protocol):
    """What questions about the cache may ask of the lower tiers."""

    def count(
        self, namespace: bytes, token_ids: Sequence[int], *, num_cached_tokens: int
    ) -> Future[dict[TierLabel, int]]:
        """How many pages each tier has, from the one on in which the cached tokens end. None of it
        is waited for."""

    def has_of_other_model(self, namespace: bytes, token_ids: Sequence[int]) -> Future[bool]:
        """Whether a tier has the first page of these tokens as another model computed it."""

    def note_changes(self) -> None:
        """To be called before pages are taken out that `forget` is told of."""

    def forget(self, identities: Sequence[bytes] | None) -> None:
        """Has all tiers forget pages that were taken out of the cache; None = all of this
        model's."""

    def uses(self) -> tuple[TierUse, ...]:
        """Each tier's figures, a moment old."""


class Tiering(TierLookup, Protocol):
    """What the engine asks of its lower tiers."""

    @property
    def num_waiting(self) -> int:
        """Sequences that wait for pages."""

    def hold(self, request: Request) -> bool:
        """Whether the request waits from now on; it comes back by `take_ready`."""

    def take_ready(self) -> list[Request]: ...

    def drop(self, request: Request) -> None: ...

    def has_news(self) -> bool: ...

    def next_deadline_ns(self) -> int | None: ...

    def after_step(self, elapsed_ns: int) -> None:
        """How long the step took: some of that may be spent between two."""

    def between_steps(self) -> None: ...

    def idle(self) -> bool:
        """A piece of work of some milliseconds; whether there is more."""

    def close(self) -> None: ...


class NoTiers:
    """Implements Tiering where no tier is configured."""

    num_waiting = 0

    def count(
        self,
        namespace: bytes,  # noqa: ARG002
        token_ids: Sequence[int],  # noqa: ARG002
        *,
        num_cached_tokens: int,  # noqa: ARG002
    ) -> Future[dict[TierLabel, int]]:
        nothing: Future[dict[TierLabel, int]] = Future()
        nothing.set_result({})
        return nothing

    def has_of_other_model(
        self,
        namespace: bytes,  # noqa: ARG002
        token_ids: Sequence[int],  # noqa: ARG002
    ) -> Future[bool]:
        return _no()

    def note_changes(self) -> None: ...

    def forget(self, identities: Sequence[bytes] | None) -> None: ...

    def uses(self) -> tuple[TierUse, ...]:
        return ()

    def hold(self, request: Request) -> bool:  # noqa: ARG002
        return False

    def take_ready(self) -> list[Request]:
        return []

    def drop(self, request: Request) -> None: ...

    def has_news(self) -> bool:
        return False

    def next_deadline_ns(self) -> int | None:
        return None

    def after_step(self, elapsed_ns: int) -> None: ...

    def between_steps(self) -> None: ...

    def idle(self) -> bool:
        return False

    def close(self) -> None: ...


class LowerTiers:
    """Implements Tiering."""

    def __init__(
        self,
        cache: PrefixCache,
        tiers: TierSet,
        *,
        executor: Executor,
        prefill: Callable[[], PrefillEstimate | None],
        clock: Callable[[], int],
    ) -> None:
        self._cache = cache
        self._tiers = tiers
        self._warm_up = WarmUp(cache, page_io=lambda: executor.page_io)
        self._write_behind = WriteBehind(cache, tiers, page_io=lambda: executor.page_io)
        self._promotion = Promotion(
            cache,
            tiers,
            page_io=lambda: executor.page_io,
            prefill=prefill,
            on_restored=lambda identities: self._write_behind.take_notes(restored=identities),
            clock=clock,
        )
        self._prefix_uses = PrefixUses(tiers, page_size=cache.page_size)
        self._uses: tuple[TierUse, ...] = ()
        self._uses_ns: int | None = None
        self._given_up: list[Request] = []

    @property
    def num_waiting(self) -> int:
        return self._promotion.num_waiting

    def count(
        self, namespace: bytes, token_ids: Sequence[int], *, num_cached_tokens: int
    ) -> Future[dict[TierLabel, int]]:
        page_size = self._cache.page_size
        start_page = num_cached_tokens // page_size
        fetch = Fetch(
            namespace=namespace,
            owner="",
            token_ids=token_ids,
            start_page=start_page,
            end_page=max(start_page, len(token_ids) // page_size),
            page_size=page_size,
            prefill=None,
        )
        return self._tiers.count(fetch)

    def has_of_other_model(self, namespace: bytes, token_ids: Sequence[int]) -> Future[bool]:
        page_size = self._cache.page_size
        if len(token_ids) < page_size:
            return _no()
        return self._tiers.has_of_other_model(namespace, token_ids[:page_size])

    def note_changes(self) -> None:
        self._write_behind.take_notes()

    def forget(self, identities: Sequence[bytes] | None) -> None:
        """What is on its way, in either direction, is not kept either."""
        self._given_up += self._promotion.cancel_all()
        self._write_behind.note_removed(identities or ())
        self._write_behind.forget()
        self._tiers.forget(identities)

    def uses(self) -> tuple[TierUse, ...]:
        now_ns = time.monotonic_ns()
        if self._uses_ns is None or now_ns - self._uses_ns > USES_AGE_NS:
            self._uses, self._uses_ns = self._tiers.uses(), now_ns
        return self._uses

    def hold(self, request: Request) -> bool:
        return self._promotion.hold(request)

    def take_ready(self) -> list[Request]:
        given_up, self._given_up = self._given_up, []
        return given_up + self._promotion.take_ready()

    def drop(self, request: Request) -> None:
        self._promotion.drop(request)
        submit, first = request.submit, request.sequences[0]
        if submit.use_cache:
            self._prefix_uses.note(
                submit.namespace, first.token_ids, num_cached_tokens=first.num_cached_tokens
            )

    def has_news(self) -> bool:
        return bool(self._given_up) or self._promotion.has_news()

    def next_deadline_ns(self) -> int | None:
        return self._promotion.next_deadline_ns()

    def after_step(self, elapsed_ns: int) -> None:
        self._write_behind.after_step(elapsed_ns)

    def between_steps(self) -> None:
        self._write_behind.between_steps()

    def idle(self) -> bool:
        return self._warm_up.idle() or self._write_behind.idle()

    def close(self) -> None:
        """Pages that no tier has yet are written for FLUSH_S at most."""
        until_ns = time.monotonic_ns() + round(FLUSH_S * 1e9)
        self._write_behind.take_notes()
        while self._write_behind.num_waiting and time.monotonic_ns() < until_ns:
            if not self._write_behind.idle() and not self._write_behind.wait_for_room(WAIT_S):
                break
        left_s = (until_ns - time.monotonic_ns()) / 1e9
        self._tiers.close(timeout_s=max(0.0, left_s))


def _no() -> Future[bool]:
    answer: Future[bool] = Future()
    answer.set_result(False)
    return answer
