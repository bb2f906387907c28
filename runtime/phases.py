"""The phase records of one sequence, from its submission to its end; they become spans elsewhere.

Times are wall-clock nanoseconds given by the caller. Nothing here reads a clock.
"""

import enum
from dataclasses import dataclass, field

from runtime.messages import AttributeValue, Phase
from telemetry import names
from telemetry.duration_sketch import DurationSketch


class QueueReason(enum.StrEnum):
    """What kept a sequence in the queue the last time it was looked at."""

    BUDGET = "budget"
    MEMORY = "memory"
    SLOTS = "slots"
    GRAMMAR = "grammar"
    PREFIX = "prefix"
    TIER = "tier"


class PreemptionReason(enum.StrEnum):
    """What a sequence gave up its pages for."""

    MEMORY = "memory"
    FAIRNESS = "fairness"


@dataclass(eq=False, slots=True)
class PhaseLog:
    """Finished phases wait in `ready` for the next event; open ones are closed by `end`.

    A sequence that is preempted queues, matches and prefills once more, each with phases of
    its own, and each preemption and resumption is a moment; decode is one phase from the first
    token to the last. `mask_time_ns` is what all its masks took, which the planner counts.
    """

    choice: int
    queued_since_ns: int | None
    queue_reason: QueueReason | None = None
    num_preemptions: int = 0
    mask_time_ns: int = 0
    _position: int | None = None
    _decode_start_ns: int | None = None
    _decoded_ns: int = 0
    _num_decoded_tokens: int = 0
    _num_decode_steps: int = 0
    _noted_mask_ns: int = 0
    _gaps: DurationSketch = field(default_factory=DurationSketch)
    _masks: DurationSketch = field(default_factory=DurationSketch)
    _ready: list[Phase] = field(default_factory=list)

    @property
    def has_ready(self) -> bool:
        """Whether `take` would give any."""
        return bool(self._ready)

    def take(self) -> list[Phase]:
        """The finished phases since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def compiled(self, start_ns: int, end_ns: int, *, engine: str, is_cached: bool) -> None:
        """The matcher is there, built now or found in the builder's cache."""
        attributes: dict[str, AttributeValue] = {
            names.ATTR_GRAMMAR_ENGINE: engine,
            names.ATTR_GRAMMAR_WHERE: "runtime",
            names.ATTR_COMPILE_CACHED: is_cached,
        }
        self._add(names.SPAN_GRAMMAR_COMPILE, start_ns, end_ns, attributes=attributes)

    def hold(self, reason: QueueReason) -> None:
        """The sequence was looked at and has to wait."""
        self.queue_reason = reason

    def joined(self, position: int) -> None:
        """The sequence joined the queue, where so many waited already."""
        self._position = position

    def preempted(self, now_ns: int, reason: PreemptionReason, *, num_computed: int) -> None:
        """Back in the queue: the pages of so many tokens were given up."""
        self.num_preemptions += 1
        self.queued_since_ns = now_ns
        self.queue_reason = QueueReason.MEMORY
        attributes: dict[str, AttributeValue] = {
            names.ATTR_PREEMPTION_REASON: reason.value,
            names.ATTR_TOKENS: num_computed,
        }
        self._add(names.EVENT_PREEMPTED, now_ns, now_ns, attributes=attributes)

    def admitted(self, now_ns: int) -> None:
        """The wait is over."""
        self._close_queue(now_ns)

    def matched(self, start_ns: int, end_ns: int, *, num_cached: int, num_to_compute: int) -> None:
        """The prefix cache was asked: this much is there, the rest is computed."""
        attributes: dict[str, AttributeValue] = {
            names.ATTR_CACHED_TOKENS: num_cached,
            names.ATTR_COMPUTED_TOKENS: num_to_compute,
        }
        self._add(names.SPAN_CACHE_MATCH, start_ns, end_ns, attributes=attributes)
        if self.num_preemptions:
            found: dict[str, AttributeValue] = {names.ATTR_CACHED_TOKENS: num_cached}
            self._add(names.EVENT_RESUMED, end_ns, end_ns, attributes=found)

    def missed(self, reason: str) -> None:
        """Why the match before had no more; says nothing where an event has taken it already.
        Matches are exact to the token: where others go on differently, they do so behind it."""
        for phase in reversed(self._ready):
            if phase.name == names.SPAN_CACHE_MATCH:
                phase.attributes[names.ATTR_MISS_REASON] = reason
                if reason == "differs":
                    num_cached = phase.attributes[names.ATTR_CACHED_TOKENS]
                    phase.attributes[names.ATTR_DIFFERS_AT] = num_cached
                return

    def fetched(self, start_ns: int, end_ns: int, *, attributes: dict[str, AttributeValue]) -> None:
        """A lower tier was asked for pages, or it was decided not to ask."""
        self._add(names.SPAN_CACHE_FETCH, start_ns, end_ns, attributes=attributes)

    def prefilled(
        self,
        start_ns: int,
        end_ns: int,
        *,
        num_tokens: int,
        num_rows: int,
        num_recomputed: int,
        step: str = "",
    ) -> None:
        """One chunk of the input was computed in a step of `num_rows` rows, whose traceparent is
        `step` where it is recorded."""
        attributes: dict[str, AttributeValue] = {
            names.ATTR_TOKENS: num_tokens,
            names.ATTR_BATCH_ROWS: num_rows,
        }
        if num_recomputed:
            attributes[names.ATTR_RECOMPUTED_TOKENS] = num_recomputed
        self._add(names.SPAN_PREFILL, start_ns, end_ns, attributes=attributes, step=step)

    def decoded(self, now_ns: int, *, num_tokens: int) -> None:
        """A step gave this many tokens; the first of them opens the decode phase. A gap before k
        tokens counts as k of a k-th, as in telemetry.timing."""
        if self._decode_start_ns is None:
            self._decode_start_ns = now_ns
        else:
            self._gaps.add((now_ns - self._decoded_ns) // num_tokens, num_tokens)
        self._decoded_ns = now_ns
        self._num_decoded_tokens += num_tokens
        self._num_decode_steps += 1
        if self.mask_time_ns != self._noted_mask_ns:
            self._masks.add(self.mask_time_ns - self._noted_mask_ns)
            self._noted_mask_ns = self.mask_time_ns

    def end(self, now_ns: int, *, num_recomputed: int, finish_reason: str | None = None) -> None:
        """Closes what is open: the wait in the queue, decode, or both after a preemption."""
        self._close_queue(now_ns)
        if self._decode_start_ns is None:
            return
        attributes: dict[str, AttributeValue] = {
            names.ATTR_TOKENS: self._num_decoded_tokens,
            names.ATTR_STEPS: self._num_decode_steps,
            # A step samples one token of a choice; the others had no alternative.
            names.ATTR_FORCED_TOKENS: self._num_decoded_tokens - self._num_decode_steps,
            names.ATTR_MASK_TIME_MS: self.mask_time_ns / 1e6,
            names.ATTR_PREEMPTIONS: self.num_preemptions,
            names.ATTR_RECOMPUTED_TOKENS: num_recomputed,
            **self._quantiles(),
        }
        if finish_reason is not None:
            attributes[names.ATTR_FINISH_REASON] = finish_reason
        self._add(names.SPAN_DECODE, self._decode_start_ns, now_ns, attributes=attributes)
        self._decode_start_ns = None

    def _quantiles(self) -> dict[str, AttributeValue]:
        found = {
            names.ATTR_TPOT_P50_MS: self._gaps.quantile_ms(0.5),
            names.ATTR_TPOT_P99_MS: self._gaps.quantile_ms(0.99),
            names.ATTR_MASKS: self._masks.count or None,
            names.ATTR_MASK_P99_MS: self._masks.quantile_ms(0.99),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _close_queue(self, now_ns: int) -> None:
        if self.queued_since_ns is None:
            return
        attributes: dict[str, AttributeValue] = {}
        if self._position is not None:
            attributes[names.ATTR_QUEUE_POSITION] = self._position
        if self.queue_reason is not None:
            attributes[names.ATTR_QUEUE_REASON] = self.queue_reason.value
        if self.num_preemptions:
            attributes[names.ATTR_PREEMPTIONS] = self.num_preemptions
        self._add(names.SPAN_QUEUE, self.queued_since_ns, now_ns, attributes=attributes)
        self.queued_since_ns = None
        self.queue_reason = self._position = None

    def _add(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        attributes: dict[str, AttributeValue],
        step: str = "",
    ) -> None:
        # The wall clock may be set back between two readings; a span never ends before it starts.
        phase = Phase(
            name=name,
            start_ns=start_ns,
            end_ns=max(start_ns, end_ns),
            attributes={names.ATTR_CHOICE: self.choice, **attributes},
            step=step,
        )
        self._ready.append(phase)
