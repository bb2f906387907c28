"""Decides which engine steps are recorded, and makes a StepSpan of each of these.

The engine tells it of every step and asks it afterwards; a step that is not recorded costs a draw.
"""

import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.messages import MAX_STEP_LINKS, AttributeValue, EngineStats, StepSpan
from runtime.request import Sequence
from runtime.schedule import Schedule
from telemetry import names

_SAMPLED = 1
_MS = 1e6


@dataclass(eq=False, slots=True)
class _Draft:
    """The step that is under way. `requests` are the traceparents of its traced requests."""

    traceparent: str
    schedule: Schedule
    start_ns: int
    requests: list[str]
    gateway: bytes
    mask_time_ns: int
    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    computed_ns: int = 0


class StepRecorder:
    """Of the steps with a traced request in them `share` are recorded, drawn by `draw`.

    begin, computed, sampled, end, take: in this order, for each step. On a device that computes
    while the host goes on, what `computed` measures is how long it took to ask for the forward,
    and the sampling has the wait.
    """

    def __init__(
        self,
        share: float,
        *,
        clock: Callable[[], int],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._share = share
        self._clock = clock
        self._draw = draw
        self._draft: _Draft | None = None
        self._recorded: tuple[bytes, StepSpan] | None = None

    @property
    def traceparent(self) -> str:
        """Of the step that is under way; "" where it is not recorded."""
        return "" if self._draft is None else self._draft.traceparent

    def begin(self, schedule: Schedule, start_ns: int) -> None:
        """A step starts. Whether it is recorded is settled now, as its phases say so."""
        self._draft = None
        if self._share == 0.0 or self._draw() >= self._share:
            return
        traced = [one for one in schedule.sequences if _is_sampled(one)]
        if not traced:
            return
        self._draft = _Draft(
            traceparent=f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-{_SAMPLED:02x}",
            schedule=schedule,
            start_ns=start_ns,
            requests=list(dict.fromkeys(map(_traceparent, traced))),
            gateway=traced[0].request.gateway,
            mask_time_ns=_mask_time_ns(schedule),
        )
        self._draft.attributes |= _shape(schedule)

    def computed(self) -> None:
        """The forward pass is done."""
        if self._draft is not None:
            self._draft.computed_ns = self._clock()

    def sampled(self) -> None:
        """The tokens are chosen."""
        draft = self._draft
        if draft is None:
            return
        mask_time_ns = _mask_time_ns(draft.schedule) - draft.mask_time_ns
        draft.attributes |= {
            names.ATTR_STEP_FORWARD_MS: (draft.computed_ns - draft.start_ns) / _MS,
            names.ATTR_STEP_SAMPLE_MS: (self._clock() - draft.computed_ns) / _MS,
            names.ATTR_MASK_TIME_MS: mask_time_ns / _MS,
        }

    def end(self, stats: Callable[[], EngineStats]) -> None:
        """All that the step gave is noted; `stats` are as of now."""
        draft, self._draft = self._draft, None
        if draft is None:
            return
        now = stats()
        draft.attributes |= {
            names.ATTR_STEP_WAITING: now.num_waiting,
            names.ATTR_STEP_RUNNING: now.num_running,
            names.ATTR_STEP_PAGES_FREE: now.pages_free,
        }
        if num_left_out := len(draft.requests[MAX_STEP_LINKS:]):
            draft.attributes[names.ATTR_STEP_LINKS_LEFT_OUT] = num_left_out
        span = StepSpan(
            traceparent=draft.traceparent,
            start_ns=draft.start_ns,
            end_ns=max(draft.start_ns, self._clock()),
            attributes=draft.attributes,
            requests=draft.requests[:MAX_STEP_LINKS],
        )
        self._recorded = (draft.gateway, span)

    def take(self) -> tuple[bytes, StepSpan] | None:
        """The step, if it was recorded, and the gateway of a traced request in it. Once."""
        recorded, self._recorded = self._recorded, None
        return recorded


def _shape(schedule: Schedule) -> dict[str, AttributeValue]:
    rows = zip(schedule.sequences, schedule.batch.rows, strict=True)
    chunks = [len(row.token_ids) for sequence, row in rows if row.start < sequence.input_len]
    num_rows = len(schedule.batch.rows)
    return {
        names.ATTR_STEP_NUMBER: schedule.batch.step,
        names.ATTR_BATCH_ROWS: num_rows,
        names.ATTR_STEP_DECODE_ROWS: num_rows - len(chunks),
        names.ATTR_STEP_PREFILL_TOKENS: sum(chunks),
    }


def _mask_time_ns(schedule: Schedule) -> int:
    """What masks of its sequences took, in their lives so far."""
    return sum(sequence.phases.mask_time_ns for sequence in schedule.sequences)


def _traceparent(sequence: Sequence) -> str:
    trace = sequence.request.submit.trace
    return "" if trace is None else trace.traceparent


def _is_sampled(sequence: Sequence) -> bool:
    """Whether the request's spans are recorded: the flags end its traceparent, in hexadecimal."""
    try:
        return bool(int(_traceparent(sequence)[-2:], 16) & _SAMPLED)
    except ValueError:
        return False
