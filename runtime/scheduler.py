"""Decides what each step computes: who runs, with how many tokens, in which pages.

Owns the queues, every sequence's lease and its counts of computed tokens. Knows neither tensors
nor text. Called by the engine loop only: schedule, (the step runs), advance.
"""

from collections.abc import Callable
from dataclasses import dataclass

from prefix_cache import Lease, OutOfPages, PrefixCache
from runtime.counters import Counters
from runtime.phases import QueueReason
from runtime.request import Sequence, SequenceState
from runtime.schedule import Schedule, ScheduleDraft
from runtime.step_budget import PrefillAllowance, StepBudget, StepShape
from runtime.waiting import PrefixFollowing, WaitingQueue


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """`max_step_tokens` is the budget of one step; `num_watermark_pages` stay free when a
    sequence is admitted beside others."""

    page_size: int
    max_running: int
    max_step_tokens: int
    num_watermark_pages: int


class Scheduler:
    """One path for chunks, decode and recomputation: computed tokens chase known tokens.

    Decode rows take from the budget first, then running prefills in the order of admission, then
    the queue; how much those two get beside decode rows is up to StepBudget. A sequence is
    admitted with pages for its whole input. When decode needs a page and there is none, the
    sequence admitted last is preempted and later recomputed.
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
        self._waiting = WaitingQueue()
        self._running: list[Sequence] = []
        self._following = PrefixFollowing(cache, page_size=limits.page_size)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence that has all it needs but a slot and pages."""
        sequence.state = SequenceState.WAITING
        self._waiting.add(sequence)

    def schedule(self) -> Schedule:
        """The next step; changes queues and leases, and nothing else."""
        draft = ScheduleDraft(self._limits.page_size, budget=self._limits.max_step_tokens)
        decoding, prefilling = self._split_running()
        for sequence in decoding:
            self._continue(sequence, draft, max_tokens=draft.budget)
        allowance = self._allow(draft, num_prefilling=len(prefilling))
        for sequence in prefilling:
            self._prefill(sequence, draft, allowance)
        if draft.has_preempted:
            self._hold_all(QueueReason.MEMORY)
        else:
            self._admit(draft, allowance)
        return draft.freeze(self._counters.steps)

    def advance(self, schedule: Schedule, *, elapsed_ns: int) -> None:
        """The step has run, for so long: its tokens are computed, its copies done, its full pages
        shareable."""
        self._counters.steps += 1
        self._step_budget.observe(StepShape.of(schedule.batch), elapsed_ns)
        for sequence, row in zip(schedule.sequences, schedule.batch.rows, strict=True):
            self._note_computed(sequence, row.start, row.start + len(row.token_ids))

    def end(self, sequence: Sequence) -> None:
        """Takes the sequence out wherever it is, its pages with it; idempotent."""
        if sequence.state is SequenceState.WAITING:
            self._waiting.remove(sequence)
        elif sequence.state is SequenceState.RUNNING:
            self._running.remove(sequence)
            self._release(sequence)
        sequence.state = SequenceState.FINISHED

    def _split_running(self) -> tuple[list[Sequence], list[Sequence]]:
        """Decode rows and prefills, each in the order of admission."""
        decoding = [one for one in self._running if one.num_uncomputed_tokens == 1]
        prefilling = [one for one in self._running if one.num_uncomputed_tokens > 1]
        return decoding, prefilling

    def _allow(self, draft: ScheduleDraft, *, num_prefilling: int) -> PrefillAllowance:
        num_slots = self._limits.max_running - len(self._running)
        num_prompts = num_prefilling + min(num_slots, len(self._waiting))
        return self._step_budget.allow(num_decode_rows=draft.num_rows, num_prompts=num_prompts)

    def _prefill(
        self, sequence: Sequence, draft: ScheduleDraft, allowance: PrefillAllowance
    ) -> None:
        """The sequence's next chunk, as long as the step allows."""
        start = sequence.num_computed_tokens
        num_tokens = self._continue(sequence, draft, max_tokens=allowance.num_tokens(start))
        allowance.spend(num_tokens, start)

    def _continue(self, sequence: Sequence, draft: ScheduleDraft, *, max_tokens: int) -> int:
        """Places a running sequence; for pages, later ones have to go. Returns how many of its
        tokens the step computes."""
        num_tokens = min(sequence.num_uncomputed_tokens, draft.budget, max_tokens)
        if num_tokens == 0 or sequence.state is not SequenceState.RUNNING:
            return 0
        while not self._has_pages(sequence, sequence.num_computed_tokens + num_tokens):
            victim = self._running[-1]
            self._preempt(victim, draft)
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

    def _preempt(self, sequence: Sequence, draft: ScheduleDraft) -> None:
        """Back to the head of the queue; what it computed stays in the tree until evicted."""
        draft.discard(sequence)
        self._running.remove(sequence)
        self._release(sequence)
        self._counters.preemptions += 1
        sequence.num_computed_tokens = 0
        sequence.phases.preempted(self._clock())
        self.add(sequence)

    def _admit(self, draft: ScheduleDraft, allowance: PrefillAllowance) -> None:
        """Lets in what fits, in order. Followers are passed over; whoever lacks a slot, budget or
        memory blocks those behind, so that a large request is not overtaken for ever."""
        blocked: QueueReason | None = None
        for sequence in self._waiting:
            blocked = blocked or self._shortage(draft, allowance)
            if blocked is not None:
                self._hold(sequence, blocked)
            elif self._following.must_wait(sequence, self._running, now_ns=self._clock()):
                sequence.phases.hold(QueueReason.PREFIX)
            elif not self._enter(sequence, draft, allowance):
                blocked = self._refuse(sequence, draft)

    def _shortage(self, draft: ScheduleDraft, allowance: PrefillAllowance) -> QueueReason | None:
        if len(self._running) >= self._limits.max_running:
            return QueueReason.SLOTS
        is_spent = draft.budget == 0 or allowance.num_tokens(0) == 0
        return QueueReason.BUDGET if is_spent else None

    def _refuse(self, sequence: Sequence, draft: ScheduleDraft) -> QueueReason | None:
        """Waits for pages that others hold; where there are no others it can never run."""
        if self._running:
            sequence.phases.hold(QueueReason.MEMORY)
            return QueueReason.MEMORY
        draft.unfit.append(sequence)
        return None

    def _enter(self, sequence: Sequence, draft: ScheduleDraft, allowance: PrefillAllowance) -> bool:
        """Admits the sequence if its whole input fits."""
        start_ns = self._clock()
        lease = self._acquire(sequence)
        if lease is None:
            return False
        self._waiting.remove(sequence)
        self._running.append(sequence)
        self._note_admitted(sequence, lease)
        sequence.phases.admitted(start_ns)
        sequence.phases.matched(
            start_ns,
            self._clock(),
            num_cached=lease.num_cached_tokens,
            num_to_compute=sequence.num_uncomputed_tokens,
        )
        if not sequence.was_admitted:
            sequence.was_admitted = True
            draft.admitted.append(sequence)
        self._prefill(sequence, draft, allowance)
        return True

    def _acquire(self, sequence: Sequence) -> Lease | None:
        """A lease with pages for the whole input, or None and nothing changed. The last token is
        never matched: its logits are wanted. Alone, a sequence may use the watermark too."""
        lease = self._match(sequence, len(sequence.token_ids) - 1)
        num_missing = self._num_pages(len(sequence.token_ids)) - len(lease.page_ids)
        num_spare = self._limits.num_watermark_pages if self._running else 0
        if self._cache.num_available() < num_missing + num_spare:
            self._cache.release(lease, None)
            return None
        self._cache.extend(lease, num_missing)
        return lease

    def _match(self, sequence: Sequence, max_tokens: int) -> Lease:
        submit = sequence.request.submit
        if not submit.use_cache:
            return self._cache.acquire_none()
        return self._cache.acquire(submit.namespace, sequence.token_ids, max_tokens=max_tokens)

    def _note_admitted(self, sequence: Sequence, lease: Lease) -> None:
        """Counts the match. Tokens that were provided before a preemption are no hit."""
        sequence.state = SequenceState.RUNNING
        sequence.lease = lease
        sequence.input_len = len(sequence.token_ids)
        sequence.num_computed_tokens = lease.num_cached_tokens
        num_hits = min(lease.num_cached_tokens, sequence.num_prompt_tokens)
        num_hits = max(0, num_hits - sequence.num_provided_tokens)
        sequence.num_cached_tokens += num_hits
        sequence.num_provided_tokens = max(sequence.num_provided_tokens, lease.num_cached_tokens)
        self._counters.cached_tokens += num_hits
        if not sequence.was_admitted:
            self._counters.prompt_tokens += sequence.num_prompt_tokens

    def _note_computed(self, sequence: Sequence, start: int, end: int) -> None:
        """[start, end) is computed: frees the tail's source, shares pages that became full."""
        assert sequence.lease is not None
        sequence.num_computed_tokens = end
        self._count_computed(sequence, start, end)
        if sequence.has_tail_copy:
            self._cache.release_tail(sequence.lease)
        page_size = self._limits.page_size
        if sequence.request.submit.use_cache and end // page_size > start // page_size:
            self._cache.publish(sequence.lease, sequence.token_ids[:end])

    def _count_computed(self, sequence: Sequence, start: int, end: int) -> None:
        """Splits [start, end) at what was provided before: behind it is new, in front a repeat."""
        num_provided = sequence.num_provided_tokens
        num_repeated = max(0, min(end, num_provided) - start)
        num_new_prompt = min(end, sequence.num_prompt_tokens) - max(start, num_provided)
        sequence.num_recomputed_tokens += num_repeated
        sequence.num_provided_tokens = max(num_provided, end)
        self._counters.recomputed_tokens += num_repeated
        self._counters.computed_prompt_tokens += max(0, num_new_prompt)

    def _release(self, sequence: Sequence) -> None:
        assert sequence.lease is not None
        self._cache.release(sequence.lease, sequence.cacheable_ids())
        sequence.lease = None

    def _hold(self, sequence: Sequence, reason: QueueReason) -> None:
        """A budget that is spent delays by a step: it does not hide what took longer."""
        if reason is not QueueReason.BUDGET or sequence.phases.queue_reason is None:
            sequence.phases.hold(reason)

    def _hold_all(self, reason: QueueReason) -> None:
        for sequence in self._waiting:
            sequence.phases.hold(reason)

    def _num_pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self._limits.page_size)
