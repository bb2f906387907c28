"""Brings pages back from the lower tiers before a request is admitted.

A request whose prompt goes on behind what the tree has waits here, without a slot or a page, until
the pages of the tiers are there or given up. They are put into the tree unlocked; then the request
is queued and hits them as it would any others. Whatever fails: its prompt is computed.

Owned by LowerTiers, in the engine's thread.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefix_cache import PrefixCache
from runtime.page_io import PageIo
from runtime.phases import QueueReason
from runtime.request import Request, RestoredTokens, SequenceState
from runtime.restorer import Restoration, Restorer
from runtime.step_budget import PrefillEstimate
from runtime.tier_fetch import Decision, Fetch, TierReport
from runtime.tier_threads import MAX_FETCH_BYTES, TierSet
from telemetry import names

if TYPE_CHECKING:
    from runtime.messages import AttributeValue

# Nobody waits for longer than computing the pages would take, nor than this; and so long at least,
# as an estimate of next to nothing comes from a step that computed next to nothing.
MAX_WAIT_NS = 2_000_000_000
MIN_WAIT_NS = 20_000_000
# A step may wait so long for fetches that were begun just before it: most of those of prompts that
# no tier knows end sooner, and need not wait for the step.
GRACE_S = 0.001
# Between two steps pages are written to the device for so long: running requests wait meanwhile.
PIECE_NS = 5_000_000


@dataclass(eq=False, slots=True)
class Waiting:
    """The requests that wait for one fetch, each with the time since when it waits for pages."""

    restoration: Restoration
    until_ns: int
    requests: list[tuple[Request, int]] = field(default_factory=list)
    is_new: bool = True

    @property
    def fetch(self) -> Fetch:
        return self.restoration.fetch


class Promotion:
    """`on_restored` is told which pages have entered the tree from a tier."""

    def __init__(
        self,
        cache: PrefixCache,
        tiers: TierSet,
        *,
        page_io: Callable[[], PageIo | None],
        prefill: Callable[[], PrefillEstimate | None],
        on_restored: Callable[[Collection[bytes]], None],
        clock: Callable[[], int],
    ) -> None:
        self._cache = cache
        self._tiers = tiers
        self._page_io = page_io
        self._prefill = prefill
        self._restorer = Restorer(
            cache, page_io=page_io, on_restored=on_restored, give_back=tiers.give_back
        )
        self._clock = clock
        self._waiting: list[Waiting] = []

    @property
    def num_waiting(self) -> int:
        """Sequences."""
        return sum(
            len(request.live_sequences) for one in self._waiting for request, _ in one.requests
        )

    def hold(self, request: Request) -> bool:
        """Whether the request waits for pages from now on."""
        fetch = self._wanted(request)
        return fetch is not None and self._wait(request, fetch, since_ns=self._clock())

    def has_news(self) -> bool:
        now_ns = self._clock()
        return any(
            one.fetch.is_done or one.fetch.chunks or one.until_ns <= now_ns for one in self._waiting
        )

    def next_deadline_ns(self) -> int | None:
        """When somebody has waited long enough."""
        return min((one.until_ns for one in self._waiting), default=None)

    def take_ready(self) -> list[Request]:
        """Those that wait no longer; what came for them is in the tree. What has come meanwhile
        for others is put there for PIECE_NS."""
        if not self._waiting:
            return []
        self._grant_grace()
        left_ns = PIECE_NS
        for one in self._waiting:
            left_ns -= self._restorer.restore(one.restoration, budget_ns=left_ns)
        now_ns = self._clock()
        over = [one for one in self._waiting if _is_over(one, now_ns)]
        self._waiting = [one for one in self._waiting if one not in over]
        ready: list[Request] = []
        for one in over:
            self._end(one, now_ns)
            ready += [
                request
                for request, since_ns in one.requests
                if not self._goes_on(request, one.fetch, since_ns=since_ns)
            ]
        return ready

    def drop(self, request: Request) -> None:
        """The request has ended; a fetch that nobody waits for any more is given up."""
        for one in self._waiting:
            one.requests = [entry for entry in one.requests if entry[0] is not request]
            one.fetch.is_cancelled |= not one.requests
        self._waiting = [one for one in self._waiting if one.requests]

    def cancel_all(self) -> list[Request]:
        """Nothing that is on its way is taken any more; who waits for it is returned."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.fetch.is_cancelled = True
        return [request for one in waiting for request, _ in one.requests]

    def _wanted(self, request: Request) -> Fetch | None:
        """The full pages of the input that the tree lacks; None where there are none of use."""
        submit = request.submit
        has_scores = submit.num_prompt_logprobs is not None
        if not submit.use_cache or has_scores or not self._tiers.may_have_pages():
            return None
        sequence = request.live_sequences[0]
        end_page = sequence.num_matchable_tokens // self._cache.page_size
        num_cached = self._cache.peek(submit.namespace, sequence.token_ids)
        start_page = num_cached // self._cache.page_size
        if start_page >= end_page or self._page_io() is None:
            return None
        return Fetch(
            namespace=submit.namespace,
            owner=submit.cache.owner,
            token_ids=sequence.token_ids[: end_page * self._cache.page_size],
            start_page=start_page,
            end_page=end_page,
            page_size=self._cache.page_size,
            prefill=self._prefill(),
        )

    def _wait(self, request: Request, fetch: Fetch, *, since_ns: int) -> bool:
        """Joins a fetch that begins alike, or begins one; False where neither is of use."""
        waiting = self._begun_alike(fetch) or self._begin(request, fetch, since_ns=since_ns)
        if waiting is None:
            return False
        waiting.requests.append((request, since_ns))
        for sequence in request.live_sequences:
            sequence.state = SequenceState.FETCHING
            sequence.phases.hold(QueueReason.TIER)
        return True

    def _begun_alike(self, fetch: Fetch) -> Waiting | None:
        """One that brings the first of these pages at least."""
        for one in self._waiting:
            num_common = one.fetch.num_common_pages(fetch.namespace, fetch.token_ids)
            if num_common > fetch.start_page >= one.fetch.start_page:
                return one
        return None

    def _begin(self, request: Request, fetch: Fetch, *, since_ns: int) -> Waiting | None:
        compute_ns = fetch.compute_ns(fetch.start_page, fetch.num_pages)
        refusal = self._tiers.refusal(compute_ns)
        if refusal is not None:
            self._note(request, refusal, start_ns=since_ns)
            self._tiers.probe(fetch)
            return None
        refusal = self._tiers.busy() if self._has_enough(fetch) else self._tiers.start(fetch)
        if refusal is not None:
            self._note(request, refusal, start_ns=since_ns)
            return None
        wait_ns = MAX_WAIT_NS if compute_ns is None else min(MAX_WAIT_NS, round(compute_ns))
        restoration = Restoration(fetch, next_page=fetch.start_page)
        waiting = Waiting(restoration, until_ns=since_ns + max(MIN_WAIT_NS, wait_ns))
        self._waiting.append(waiting)
        return waiting

    def _has_enough(self, fetch: Fetch) -> bool:
        """Whether with these pages too many were on their way, or waited to be written."""
        num_pages = sum(one.fetch.num_pages for one in self._waiting)
        num_bytes = (num_pages + fetch.num_pages) * self._tiers.page_bytes
        return num_pages > 0 and num_bytes > MAX_FETCH_BYTES

    def _grant_grace(self) -> None:
        """Waits a moment for what was begun since the last step."""
        new = [one for one in self._waiting if one.is_new]
        for one in new:
            one.is_new = False
        if new:
            new[-1].fetch.wait(GRACE_S)

    def _end(self, waiting: Waiting, now_ns: int) -> None:
        """Puts what came into the tree, and tells those that waited."""
        fetch = waiting.fetch
        reports = list(fetch.reports)
        if not fetch.is_done:
            fetch.is_cancelled = True
            reports.append(self._tiers.timed_out(fetch))
        self._restorer.restore(waiting.restoration, budget_ns=None)
        for request, since_ns in waiting.requests:
            self._note_restored(request, waiting.restoration)
            start_ns = since_ns
            for report in reports:
                is_over = report.decision is Decision.TIMED_OUT
                end_ns = now_ns if is_over else start_ns + report.elapsed_ns
                self._note(request, report, start_ns=start_ns, end_ns=end_ns)
                start_ns = end_ns

    def _note_restored(self, request: Request, restoration: Restoration) -> None:
        """As far as the request begins as the fetch does."""
        if request.is_finished or not restoration.runs:
            return
        token_ids = request.live_sequences[0].token_ids
        num_common = restoration.fetch.num_common_pages(request.submit.namespace, token_ids)
        num_tokens = num_common * self._cache.page_size
        request.restored += [
            RestoredTokens(run.tier, run.start, min(run.end, num_tokens))
            for run in restoration.runs
            if run.start < num_tokens
        ]

    def _note(
        self, request: Request, report: TierReport, *, start_ns: int, end_ns: int | None = None
    ) -> None:
        """What was decided becomes a phase of the request's first choice."""
        attributes: dict[str, AttributeValue] = {
            names.ATTR_CACHE_TIER: report.tier,
            names.ATTR_FETCH_DECISION: report.decision.value,
            names.ATTR_FETCH_TOKENS: report.num_pages * self._cache.page_size,
            names.ATTR_FETCH_BYTES: report.num_bytes,
            names.ATTR_FETCH_ESTIMATE_MS: report.estimate_ns / 1e6,
        }
        if report.compute_ns is not None:
            attributes[names.ATTR_FETCH_COMPUTE_MS] = report.compute_ns / 1e6
        for sequence in request.live_sequences[:1]:
            sequence.phases.fetched(start_ns, end_ns or start_ns, attributes=attributes)

    def _goes_on(self, request: Request, fetch: Fetch, *, since_ns: int) -> bool:
        """Whether the request, which joined another's fetch that gave all, waits for more."""
        if request.is_finished or fetch.num_fetched < fetch.num_pages:
            return False
        if self._clock() - since_ns >= MAX_WAIT_NS:
            return False
        rest = self._wanted(request)
        if rest is None or rest.start_page < fetch.end_page:
            return False
        return self._wait(request, rest, since_ns=since_ns)


def _is_over(waiting: Waiting, now_ns: int) -> bool:
    fetch = waiting.fetch
    return (fetch.is_done and not fetch.chunks) or waiting.until_ns <= now_ns
