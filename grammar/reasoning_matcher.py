"""The Matcher of a model that reasons before its answer: free text first, then the grammar.

Wraps the matcher of any engine; the runtime's builder makes it where a constraint says so.
"""

from collections.abc import Sequence
from enum import Enum, auto

from grammar.ending_matcher import VocabularyBits
from grammar.matcher import MaskRow, Matcher
from grammar.spec import Reasoning


class _Phase(Enum):
    OPENING = auto()  # the block may begin, or the answer
    REASONING = auto()
    ANSWER = auto()


class ReasoningMatcher:
    """A Matcher (grammar.matcher). Inside the block everything but end-of-sequence is allowed,
    until its end marker was generated; the answer is `inner`'s, from its initial state on.

    Owns `inner`. While the block may still begin, a token that begins both counts for both.
    """

    def __init__(self, inner: Matcher, reasoning: Reasoning, bits: VocabularyBits) -> None:
        self._inner = inner
        self._reasoning = reasoning
        self._bits = bits
        self._tokens: list[int] = []
        self._num_inner = 0  # of `_tokens`, how many `inner` has accepted
        self._block_start = 0
        self._phase = self._first_phase()

    def fill(self, mask_row: MaskRow) -> None:
        """See Matcher.fill."""
        if self._phase is _Phase.REASONING:
            mask_row.fill(-1)
            self._bits.keep_text(mask_row)
            return
        if self._is_inner_alive():
            self._inner.fill(mask_row)
        else:
            mask_row.fill(0)
        if self._phase is _Phase.OPENING:
            self._bits.allow(mask_row, self._reasoning.start_ids[len(self._tokens)])

    def accept(self, token_ids: Sequence[int]) -> int:
        """See Matcher.accept."""
        for num_accepted, token_id in enumerate(token_ids):
            if self._phase is _Phase.ANSWER:
                return num_accepted + self._accept_answer(token_ids[num_accepted:])
            if not self._step(token_id):
                return num_accepted
        return len(token_ids)

    def rollback(self, num_tokens: int) -> None:
        """Raises: ValueError for more tokens than were accepted; the state stays as it is."""
        if not 0 <= num_tokens <= len(self._tokens):
            raise ValueError(
                f"cannot roll back {num_tokens} tokens: {len(self._tokens)} were accepted"
            )
        kept = self._tokens[: len(self._tokens) - num_tokens]
        if self._phase is _Phase.ANSWER and len(kept) > self._answer_start():
            self._inner.rollback(num_tokens)
            self._num_inner -= num_tokens
            self._tokens = kept
            return
        if self._phase is _Phase.REASONING and len(kept) >= self._block_start:
            self._tokens = kept
            return
        self._inner.rollback(self._num_inner)
        self._tokens, self._num_inner, self._block_start = [], 0, 0
        self._phase = self._first_phase()
        self.accept(kept)

    def fork(self) -> "ReasoningMatcher":
        twin = ReasoningMatcher(self._inner.fork(), self._reasoning, self._bits)
        twin._tokens = list(self._tokens)
        twin._num_inner = self._num_inner
        twin._block_start = self._block_start
        twin._phase = self._phase
        return twin

    def forced_tokens(self) -> list[int]:
        """See Matcher.forced_tokens."""
        if self._phase is _Phase.ANSWER:
            return self._inner.forced_tokens()
        if self._phase is _Phase.OPENING and not self._is_inner_alive():
            return list(self._reasoning.start_ids[len(self._tokens) :])
        return []

    def is_accepting(self) -> bool:
        if self._phase is _Phase.REASONING:
            return False
        return self._is_inner_alive() and self._inner.is_accepting()

    def is_terminated(self) -> bool:
        return self._phase is _Phase.ANSWER and self._inner.is_terminated()

    def _first_phase(self) -> _Phase:
        if self._reasoning.is_open:
            return _Phase.REASONING
        return _Phase.OPENING if self._reasoning.start_ids else _Phase.ANSWER

    def _answer_start(self) -> int:
        return len(self._tokens) - self._num_inner

    def _is_inner_alive(self) -> bool:
        return self._phase is _Phase.ANSWER or self._num_inner == len(self._tokens)

    def _step(self, token_id: int) -> bool:
        if self._phase is _Phase.REASONING:
            return self._reason(token_id)
        start_ids = self._reasoning.start_ids
        is_start = token_id == start_ids[len(self._tokens)]
        if is_start and len(self._tokens) + 1 == len(start_ids):
            self._inner.rollback(self._num_inner)
            self._num_inner = 0
            self._block_start = len(start_ids)
            self._phase = _Phase.REASONING
        else:
            is_answer = self._is_inner_alive() and self._inner.accept([token_id]) == 1
            if not is_start and not is_answer:
                return False
            self._num_inner += is_answer
            self._phase = _Phase.OPENING if is_start else _Phase.ANSWER
        self._tokens.append(token_id)
        return True

    def _reason(self, token_id: int) -> bool:
        if token_id in self._bits.eos_token_ids:
            return False
        self._tokens.append(token_id)
        end_ids = self._reasoning.end_ids
        first = len(self._tokens) - len(end_ids)
        if first >= self._block_start and tuple(self._tokens[first:]) == end_ids:
            self._phase = _Phase.ANSWER
        return True

    def _accept_answer(self, token_ids: Sequence[int]) -> int:
        num_accepted = self._inner.accept(token_ids)
        self._tokens += token_ids[:num_accepted]
        self._num_inner += num_accepted
        return num_accepted
