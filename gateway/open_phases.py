"""What one choice is in the midst of, as far as its events say: closed here when the runtime does
not do so, because the client left, the runtime died, or a stop string came.
"""

import math

from runtime.messages import AttributeValue, Phase, TokenEvent
from telemetry import names


class OpenPhases:
    """Told of each event that has phases, or the first tokens. A choice waits, computes its input
    or decodes; after a preemption it waits, or computes again, in the midst of decoding."""

    def __init__(self, submitted_ns: int) -> None:
        self._since_ns = submitted_ns
        self._queued_ns: int | None = submitted_ns
        self._decode_ns: int | None = None
        # Until a match has said.
        self._num_uncomputed = math.inf
        self._num_preemptions = 0
        self.has_decoded = False

    def note(self, event: TokenEvent, *, now_ns: int) -> None:
        for phase in event.phases:
            self._since_ns = max(self._since_ns, phase.end_ns)
            self._note_phase(phase)
        if event.admitted or event.token_ids:
            self._queued_ns = None
        has_input = self._queued_ns is None and self._num_uncomputed <= 0
        # Where tokens are held back until the answer is checked, only its phases tell.
        if self._decode_ns is None and (event.token_ids or (has_input and event.phases)):
            self._decode_ns = self._since_ns if event.phases else now_ns
        self.has_decoded = self.has_decoded or self._decode_ns is not None

    def _note_phase(self, phase: Phase) -> None:
        match phase.name:
            case names.SPAN_QUEUE:
                self._queued_ns = None
            case names.EVENT_PREEMPTED:
                self._queued_ns = phase.end_ns
                self._num_preemptions += 1
            case names.SPAN_CACHE_MATCH:
                left = phase.attributes.get(names.ATTR_COMPUTED_TOKENS, math.inf)
                self._num_uncomputed = float(left)
            case names.SPAN_PREFILL:
                self._num_uncomputed -= int(phase.attributes.get(names.ATTR_TOKENS, 0))
            case names.SPAN_DECODE:
                # A checked answer may go on, with a part that has to wait first.
                self._decode_ns, self._queued_ns = None, phase.end_ns

    def close(
        self, choice: int, *, now_ns: int, num_tokens: int, reason: str | None = None
    ) -> list[Phase]:
        """They end now; so many tokens have come."""
        closed = []
        if self._queued_ns is not None:
            waited: dict[str, AttributeValue] = {}
            if self._num_preemptions:
                waited[names.ATTR_PREEMPTIONS] = self._num_preemptions
            closed.append(_phase(names.SPAN_QUEUE, self._queued_ns, now_ns, choice, waited))
        elif self._decode_ns is None:
            closed.append(_phase(names.SPAN_PREFILL, self._since_ns, now_ns, choice, {}))
        if self._decode_ns is not None:
            decoded: dict[str, AttributeValue] = {}
            if num_tokens:
                decoded[names.ATTR_TOKENS] = num_tokens
            if self._num_preemptions:
                decoded[names.ATTR_PREEMPTIONS] = self._num_preemptions
            if reason is not None:
                decoded[names.ATTR_FINISH_REASON] = reason
            closed.append(_phase(names.SPAN_DECODE, self._decode_ns, now_ns, choice, decoded))
        return closed


def _phase(
    name: str, start_ns: int, now_ns: int, choice: int, attributes: dict[str, AttributeValue]
) -> Phase:
    # The clocks of two processes may differ by a moment.
    return Phase(
        name, min(start_ns, now_ns), now_ns, attributes={names.ATTR_CHOICE: choice, **attributes}
    )
