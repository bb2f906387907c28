"""Jump-forward: tokens that are the only way on in a grammar are appended without being sampled.

Their keys and values are computed in one chunk with the next step. Called by the engine, when a
matcher is handed out and after each sampled token.
"""

from itertools import takewhile

from grammar.matcher import Matcher
from runtime.finish_rules import ConstraintFailed, Ending, FinishRules
from runtime.request import Sequence


class JumpForward:
    """`is_on` False: every token is sampled."""

    def __init__(self, rules: FinishRules, *, is_on: bool) -> None:
        self._rules = rules
        self._is_on = is_on

    def open(self, sequence: Sequence) -> None:
        """Appends how the answer has to begin, but for a last token that would complete it: an
        answer comes of a step, so one token at least is sampled.

        Raises: ConstraintFailed where the first of them may not come first, MatcherFailed.
        """
        forced = self._forced(sequence)
        if forced and forced[0] in sequence.request.submit.first_forbidden:
            raise ConstraintFailed(f"the constraint begins with token {forced[0]}, which may not")
        self._append(sequence, forced[: max(0, self._rules.room(sequence) - 1)])
        if sequence.num_output_tokens and _matcher(sequence).is_terminated():
            _matcher(sequence).rollback(1)
            sequence.token_ids.pop()

    def follow(self, sequence: Sequence) -> Ending | None:
        """Appends what has to follow a token that did not end the choice. Raises: MatcherFailed."""
        forced = self._forced(sequence)
        if not forced:
            return None
        self._append(sequence, forced[: self._rules.room(sequence)])
        return self._rules.ending(sequence)

    def _forced(self, sequence: Sequence) -> list[int]:
        """Up to the first token that could stop the choice or that the client does not allow, which
        is for the sampler to find. A token that was not sampled has no log-probability: who wants
        those gets none forced."""
        sampling = sequence.sampling
        if not self._is_on or sequence.matcher is None or sampling.num_logprobs is not None:
            return []
        forced = sequence.matcher.forced_tokens()
        if not forced:
            return []
        stops = self._rules.eos_token_ids.union(sampling.stop_token_ids)
        if (allowed := sequence.request.allowed) is not None:
            forced = list(takewhile(lambda token_id: token_id in allowed, forced))
        return list(takewhile(lambda token_id: token_id not in stops, forced))

    def _append(self, sequence: Sequence, forced: list[int]) -> None:
        if forced:
            num_accepted = _matcher(sequence).accept(forced)
            sequence.token_ids += forced[:num_accepted]


def _matcher(sequence: Sequence) -> Matcher:
    assert sequence.matcher is not None, "only a grammar forces tokens"
    return sequence.matcher
