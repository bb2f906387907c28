"""Decides what each step computes: who runs, with how many tokens, in which pages.

Owns the queues, every sequence's lease and its counts of computed tokens. Knows neither tensors
nor text. Called by the engine loop only: schedule, (the step runs), advance.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prefix_cache import Lease, OutOfPages, PrefixCache
from runtime.counters import Counters
from runtime.fairness import OUTPUT_WEIGHT, Account, FairTurns, RecomputeCredit, TenantCounters
from runtime.growth import Growth, GrowthForecast, OutputLengths
from runtime.phases import PreemptionReason, QueueReason
from runtime.refusal import LastRefusal, Room
from runtime.request import Sequence, SequenceState
from runtime.schedule import Schedule, ScheduleDraft
from runtime.sequence_pages import SequencePages
from runtime.served_tokens import ServedTokens
from runtime.step_budget import PrefillAllowance, StepBudget, StepShape
from runtime.waiting import PrefixFollowing, WaitingQueue, tenant_of

# Tokens that a sequence shall gain, for each that is computed to admit it, before memory may get
# short and take it out again: what is computed twice is at most half of what is generated.
MIN_GAIN = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """`max_step_tokens` is the budget of one step; `num_watermark_pages` stay free when a
    sequence is admitted beside others. `max_model_len` bounds prompt and answer together, and
    nobody is overtaken who has waited for `max_overtaking_ns`. Without `page_bytes` no quota of
    the cache is kept."""

    page_size: int
    max_running: int
    max_step_tokens: int
    num_watermark_pages: int
    max_model_len: int
    max_overtaking_ns: int
    page_bytes: int = 0


class Scheduler:
    """One path for chunks, decode and recomputation: computed tokens chase known tokens.

    Decode rows take from the budget first; how much prefill gets beside them is up to StepBudget,
    and the queue's rule of who comes first holds for all prefill, waiting or running. A sequence
    is admitted with pages for its whole input, and when what all are expected to grow by fits as
    well. When decode needs a page nevertheless and there is none, the sequence admitted last is
    preempted and later recomputed.

    Where several tenants have work, their turns come before that rule (FairTurns), and one that
    is favoured gets a place at once: a sequence of a tenant that has much more is preempted.
    """

    def __init__(
        self,
        cache: PrefixCache,
        limits: SchedulerLimits,
        *,
        step_budget: StepBudget,
        counters: Counters,
        clock: Callable[[], int],
    ) -> None:
        self._cache = cache
        self._limits = limits
        self._step_budget = step_budget
        self._counters = counters
        self._clock = clock
        self._tenants = TenantCounters(max_lead=OUTPUT_WEIGHT * limits.max_model_len)
        self._turns = FairTurns(self._tenants, quantum=limits.max_step_tokens)
        self._credit = RecomputeCredit(limits.max_model_len)
        self._served = ServedTokens(counters, self._tenants, self._credit)
        self._pages = SequencePages(cache, page_bytes=limits.page_bytes, clock=clock)
        self._waiting = WaitingQueue(
            cache,
            counters=self._tenants,
            turns=self._turns,
            max_overtaking_ns=limits.max_overtaking_ns,
        )
        self._running: list[Sequence] = []
        self._output_lens = OutputLengths()
        self._forecast = GrowthForecast(self._output_lens, page_size=limits.page_size)
        self._refusal = LastRefusal()
        # What held up the whole queue last, and who had joined by then.
        self._held: tuple[QueueReason, int] | None = None
        self._following = PrefixFollowing(cache, page_size=limits.page_size)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def accounts(self) -> Mapping[str, Account]:
        """What each tenant with work was served; not to be changed."""
        return self._tenants.active

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence that has all it needs but a slot and pages."""
        sequence.state = SequenceState.WAITING
        sequence.phases.joined(len(self._waiting))
        self._waiting.add(sequence, self._clock())

    def schedule(self) -> Schedule:
        """The next step; changes queues and leases, and nothing else."""
        draft = ScheduleDraft(self._limits.page_size, budget=self._limits.max_step_tokens)
        prefilling = [sequence for sequence in self._running if not sequence.is_decoding]
        self._decode([sequence for sequence in self._running if sequence.is_decoding], draft)
        allowance = self._allow(draft)
        if prefilling or self._waiting:
            self._waiting.refresh()
            self._following.start_step()
            self._prefill_all(prefilling, draft, allowance)
        return draft.freeze(self._counters.steps)

    def advance(self, schedule: Schedule, *, elapsed_ns: int) -> None:
        """The step has run, for so long: its tokens are computed, its copies done, its full pages
        shareable."""
        self._counters.steps += 1
        decoding = {sequence.key for sequence in schedule.sequences if sequence.is_decoding}
        self._step_budget.observe(StepShape.of(schedule.batch, decoding=decoding), elapsed_ns)
        self._served.charge(schedule)
        for sequence, row in zip(schedule.sequences, schedule.batch.rows, strict=True):
            self._note_computed(sequence, row.start, row.start + len(row.token_ids))

    def end(self, sequence: Sequence) -> None:
        """Takes the sequence out wherever it is, its pages with it; idempotent."""
        if sequence.state is SequenceState.WAITING:
            self._waiting.remove(sequence)
            self._credit.settle(sequence.key, 0)
        elif sequence.state is SequenceState.RUNNING:
            self._running.remove(sequence)
            self._release(sequence)
            if sequence.num_output_tokens:
                self._output_lens.observe(sequence.num_output_tokens)
        sequence.state = SequenceState.FINISHED

    def _decode(self, decoding: list[Sequence], draft: ScheduleDraft) -> None:
        """Each with all it has to compute, if that leaves one token for those after it."""
        for num_before, sequence in enumerate(decoding, start=1):
            num_spare = draft.budget - (len(decoding) - num_before)
            self._continue(sequence, draft, max_tokens=max(1, num_spare))

    def _allow(self, draft: ScheduleDraft) -> PrefillAllowance:
        num_decode_rows = draft.num_rows
        num_slots = self._limits.max_running - len(self._running)
        is_refused = self._refusal.is_final(self._room())
        num_waiting = 0 if is_refused else min(num_slots, len(self._waiting))
        num_prompts = len(self._running) - num_decode_rows + num_waiting
        if num_prompts == 0 and any(map(self._turns.is_favoured, self._waiting.tenants)):
            num_prompts = 1
        return self._step_budget.allow(num_decode_rows=num_decode_rows, num_prompts=num_prompts)

    def _prefill_all(
        self, prefilling: list[Sequence], draft: ScheduleDraft, allowance: PrefillAllowance
    ) -> None:
        """Running and waiting prefills in one order; of equals, the running one comes first.

        Followers are passed over; whoever lacks a slot, budget or memory blocks the waiting ones
        behind, so that a large request is not overtaken for ever.
        """
        now_ns = self._clock()
        prefills = self._waiting.in_order(prefilling, now_ns)
        blocked: QueueReason | None = None
        for sequence in prefills:
            if sequence.lease is not None:
                self._prefill(sequence, draft, allowance)
            elif blocked := self._admit(sequence, draft, allowance):
                break
        if blocked is not None:
            for sequence in self._waiting.prefilling_in_order(prefilling, now_ns):
                self._prefill(sequence, draft, allowance)
        self._hold_rest(prefills, blocked)

    def _prefill(
        self, sequence: Sequence, draft: ScheduleDraft, allowance: PrefillAllowance
    ) -> None:
        """The sequence's next chunk, as long as the step allows, if it is not placed already."""
        if draft.has(sequence):
            return
        start = sequence.num_computed_tokens
        is_favoured = self._is_favoured(sequence)
        max_tokens = allowance.num_tokens(start, is_favoured=is_favoured)
        num_tokens = self._continue(sequence, draft, max_tokens=max_tokens)
        allowance.spend(num_tokens, start, is_favoured=is_favoured)

    def _continue(self, sequence: Sequence, draft: ScheduleDraft, *, max_tokens: int) -> int:
        """Places a running sequence; for pages, later ones have to go. Returns how many of its
        tokens the step computes."""
        num_tokens = min(sequence.num_uncomputed_tokens, draft.budget, max_tokens)
        if num_tokens == 0 or sequence.state is not SequenceState.RUNNING:
            return 0
        while not self._has_pages(sequence, sequence.num_computed_tokens + num_tokens):
            victim = self._admitted_last()
            self._counters.preemptions += 1
            self._preempt(victim, draft, QueueReason.MEMORY, reason=PreemptionReason.MEMORY)
            if victim is sequence:
                return 0
        draft.place(sequence, num_tokens)
        return num_tokens

    def _has_pages(self, sequence: Sequence, num_tokens: int) -> bool:
        """Whether the lease covers that many tokens, extended where it does not."""
        assert sequence.lease is not None
        num_missing = self._num_pages(num_tokens) - len(sequence.lease.page_ids)
        try:
            if num_missing > 0:
                self._cache.extend(sequence.lease, num_missing)
        except OutOfPages:
            return False
        return True

    def _admitted_last(self) -> Sequence:
        """Of those that may be preempted for pages: who is favoured keeps his. Never the one that
        runs for longest, unless it is alone: who is favoured runs beside two others."""
        others = (one for one in reversed(self._running) if not self._is_favoured(one))
        return next(others, self._running[-1])

    def _preempt(
        self,
        sequence: Sequence,
        draft: ScheduleDraft,
        lacking: QueueReason,
        *,
        reason: PreemptionReason,
    ) -> None:
        """Back to the head of its queue; what it computed stays in the tree until evicted. Nobody
        comes in by himself in a step that has preempted for want of what was `lacking`."""
        draft.discard(sequence)
        draft.preempted_for = lacking
        draft.preempted.append(sequence)
        self._running.remove(sequence)
        self._release(sequence)
        num_computed, sequence.num_computed_tokens = sequence.num_computed_tokens, 0
        sequence.phases.preempted(self._clock(), reason, num_computed=num_computed)
        _log.debug(
            "a request is preempted (%s); %d tokens are to be found again or computed",
            reason,
            num_computed,
            extra=sequence.request.submit.log_fields,
        )
        sequence.phases.hold(lacking)
        self.add(sequence)

    def _admit(
        self, sequence: Sequence, draft: ScheduleDraft, allowance: PrefillAllowance
    ) -> QueueReason | None:
        """Lets a waiting sequence in, or passes it over, or says what blocks it."""
        blocked = self._shortage(sequence, draft, allowance)
        if blocked is None:
            if self._following.must_wait(sequence, self._running, now_ns=self._clock()):
                sequence.phases.hold(QueueReason.PREFIX)
                return None
            blocked = self._take_place(sequence, draft, allowance)
        if blocked is not None:
            self._hold(sequence, blocked)
        return blocked

    def _shortage(
        self, sequence: Sequence, draft: ScheduleDraft, allowance: PrefillAllowance
    ) -> QueueReason | None:
        if draft.preempted_for is not None:
            return draft.preempted_for
        if self._is_full() and self._victim_for(sequence) is None:
            return QueueReason.SLOTS
        max_tokens = allowance.num_tokens(0, is_favoured=self._is_favoured(sequence))
        is_spent = draft.budget == 0 or max_tokens == 0
        return QueueReason.BUDGET if is_spent else None

    def _is_full(self) -> bool:
        return len(self._running) >= self._limits.max_running

    def _take_place(
        self, sequence: Sequence, draft: ScheduleDraft, allowance: PrefillAllowance
    ) -> QueueReason | None:
        """Lets the sequence in, for another if need be; or says what it lacks nevertheless."""
        if self._is_full():
            self._displace(sequence, draft, QueueReason.SLOTS)
        lacking = self._enter(sequence, draft, allowance)
        if lacking is not None and self._displace(sequence, draft, lacking):
            lacking = self._enter(sequence, draft, allowance)
        return lacking

    def _displace(self, sequence: Sequence, draft: ScheduleDraft, reason: QueueReason) -> bool:
        """Takes a place from a tenant that has much more than the sequence's own, where fairness
        says so; False where it does not. Pages only from one that has more than its even share
        of them: a large request of the other may have to wait for more."""
        victim = self._victim_for(sequence) if draft.preempted_for is None else None
        if victim is None or (reason is QueueReason.MEMORY and not self._is_hoarder(victim)):
            return False
        self._counters.fair_preemptions += 1
        self._credit.spend(victim.key, victim.num_computed_tokens)
        self._preempt(victim, draft, reason, reason=PreemptionReason.FAIRNESS)
        return True

    def _victim_for(self, sequence: Sequence) -> Sequence | None:
        """Of the tenant that has to give a place up: who was preempted least often, then who has
        least to lose. The one that it has run for longest stays, so that it gets on."""
        donor = self._turns.donor(tenant_of(sequence))
        candidates = [one for one in self._running if tenant_of(one) == donor][1:]
        return min(
            (one for one in reversed(candidates) if self._credit.covers(one.num_computed_tokens)),
            key=lambda one: (one.phases.num_preemptions, one.num_computed_tokens),
            default=None,
        )

    def _is_hoarder(self, sequence: Sequence) -> bool:
        """Whether the sequence's tenant has more pages to itself than its even share of all."""
        tenant = tenant_of(sequence)
        num_pages = sum(
            self._num_own_pages(one.lease)
            for one in self._running
            if one.lease is not None and tenant_of(one) == tenant
        )
        return num_pages * len(self._tenants.active) > self._cache.counts().total

    def _is_favoured(self, sequence: Sequence) -> bool:
        return self._turns.is_favoured(tenant_of(sequence))

    def _enter(
        self, sequence: Sequence, draft: ScheduleDraft, allowance: PrefillAllowance
    ) -> QueueReason | None:
        """Admits the sequence if its whole input and what all will grow by fit. If not it waits
        for pages that others hold; where there are no others it can never run."""
        if self._refusal.concerns(sequence, self._room()):
            return QueueReason.MEMORY
        start_ns = self._clock()
        lease = self._acquire(sequence)
        if lease is None and self._running:
            self._refusal.note(sequence, self._room())
            return QueueReason.MEMORY
        if lease is None:
            draft.unfit.append(sequence)
            return None
        num_to_compute = len(sequence.token_ids) - lease.num_cached_tokens
        self._waiting.admit(sequence, num_to_compute, start_ns)
        self._running.append(sequence)
        sequence.state = SequenceState.RUNNING
        sequence.lease = lease
        sequence.input_len = len(sequence.token_ids)
        sequence.num_computed_tokens = lease.num_cached_tokens
        self._served.count_match(sequence, lease.num_cached_tokens)
        sequence.phases.admitted(start_ns)
        num_input = _num_input_tokens(sequence)
        num_cached = min(lease.num_cached_tokens, num_input)
        sequence.phases.matched(
            start_ns, self._clock(), num_cached=num_cached, num_to_compute=num_input - num_cached
        )
        if not sequence.was_admitted:
            sequence.was_admitted = True
            draft.admitted.append(sequence)
        self._prefill(sequence, draft, allowance)
        return None

    def _room(self) -> Room:
        return Room(len(self._running), self._cache.num_available(), self._waiting.num_joined)

    def _acquire(self, sequence: Sequence) -> Lease | None:
        """A lease with pages for the whole input, or None and nothing changed."""
        lease = self._pages.match(sequence)
        num_missing = self._num_pages(len(sequence.token_ids)) - len(lease.page_ids)
        if not self._has_room(sequence, lease, num_missing):
            self._cache.release(lease, None)
            return None
        self._cache.extend(lease, num_missing)
        return lease

    def _has_room(self, sequence: Sequence, lease: Lease, num_missing: int) -> bool:
        """Whether the input fits, and all may grow as expected until the sequence was worth its
        computation. Alone, it may take what there is."""
        num_free = self._cache.num_available() - num_missing
        if not self._running:
            return num_free >= 0
        num_free -= self._limits.num_watermark_pages
        growths = [self._growth(one, one.lease, 0) for one in self._running if one.lease]
        growths.append(self._growth(sequence, lease, num_missing))
        num_to_compute = len(sequence.token_ids) - lease.num_cached_tokens
        return num_free >= 0 and self._forecast.fits(
            growths, num_pages=num_free, num_steps=MIN_GAIN * num_to_compute
        )

    def _growth(self, sequence: Sequence, lease: Lease, num_missing: int) -> Growth:
        num_pages = len(lease.page_ids) + num_missing
        page_size = self._limits.page_size
        return Growth(
            num_tokens=sequence.num_output_tokens,
            max_tokens=min(
                sequence.sampling.max_tokens,
                self._limits.max_model_len - sequence.num_prompt_tokens,
            ),
            num_fitting=num_pages * page_size - len(sequence.token_ids),
            num_pages=num_missing + self._num_own_pages(lease),
        )

    def _note_computed(self, sequence: Sequence, start: int, end: int) -> None:
        """[start, end) is computed."""
        sequence.num_computed_tokens = end
        self._served.count_computed(sequence, start, end)
        self._pages.computed(sequence, start, end)

    def _release(self, sequence: Sequence) -> None:
        self._pages.release(sequence)
        self._tenants.stopped(tenant_of(sequence))

    def _hold(self, sequence: Sequence, reason: QueueReason) -> None:
        """A budget that is spent delays by a step: it does not hide what took longer."""
        if reason is not QueueReason.BUDGET or sequence.phases.queue_reason is None:
            sequence.phases.hold(reason)

    def _hold_rest(self, rest: Iterable[Sequence], blocked: QueueReason | None) -> None:
        """What blocked one holds all behind it; nothing to note where it is so since before."""
        held = (blocked, self._waiting.num_joined) if blocked is not None else None
        if blocked is not None and held != self._held:
            for sequence in rest:
                if sequence.state is SequenceState.WAITING:
                    self._hold(sequence, blocked)
        self._held = held

    def _num_own_pages(self, lease: Lease) -> int:
        """Those that no other has when it ends."""
        return len(lease.page_ids) - lease.num_shared_tokens // self._limits.page_size

    def _num_pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self._limits.page_size)


def _num_input_tokens(sequence: Sequence) -> int:
    """What the cache is asked for: what was given, and after a preemption all that there is. Tokens
    that a grammar forces from the start are computed along with the prompt, but are output."""
    return len(sequence.token_ids) if sequence.was_admitted else sequence.num_given_tokens
