"""Samples a step's tokens. A constrained one is tried without its mask first: the token that wins
among all is the one that wins among those allowed, if it is allowed, and asking the grammar for one
token takes 2 us where a mask takes up to 400. Called by the engine after each forward.
"""

from grammar.errors import GrammarError
from grammar.matcher import Matcher
from runtime.batch import Executor, SampledToken
from runtime.messages import Sampling
from runtime.request import Sequence
from runtime.sample_planner import SamplePlanner


class StepSampling:
    """`tries_first` False: masks are filled at once. So it has to be where `forward` returns before
    the device is done, as masks are filled meanwhile and each sampling is a wait."""

    def __init__(self, executor: Executor, planner: SamplePlanner, *, tries_first: bool) -> None:
        self._executor = executor
        self._planner = planner
        self._tries_first = tries_first

    def sample(self, sequences: list[Sequence]) -> tuple[SampledToken, ...]:
        """One outcome each; the matchers are left as they were."""
        tried = {one for one in sequences if self._tries_first and _can_be_tried(one)}
        plan = self._planner.plan(sequences, without_mask=tried)
        sampled = list(self._executor.sample(plan))
        refused = [
            place
            for place, sequence in enumerate(sequences)
            if sequence in tried and not _fits(sequence, sampled[place])
        ]
        if refused:
            again = self._planner.plan([sequences[place] for place in refused], places=refused)
            for place, outcome in zip(refused, self._executor.sample(again), strict=True):
                sampled[place] = outcome
        return tuple(sampled)


def _can_be_tried(sequence: Sequence) -> bool:
    """Filters cut off what is unlikely among the allowed tokens, so they need the mask. Where text
    is forced the mask allows one spelling of it; a matcher would take any."""
    if sequence.matcher is None or _has_filter(sequence.sampling):
        return False
    try:
        return not sequence.matcher.forced_tokens()
    except GrammarError:
        return False  # and then the mask, too, is one that cannot be filled


def _has_filter(sampling: Sampling) -> bool:
    filters = sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0
    return filters and sampling.temperature > 0.0


def _fits(sequence: Sequence, outcome: SampledToken) -> bool:
    assert sequence.matcher is not None
    return outcome.token_id is not None and _is_allowed(sequence.matcher, outcome.token_id)


def _is_allowed(matcher: Matcher, token_id: int) -> bool:
    try:
        if matcher.accept((token_id,)) == 0:
            return False
        matcher.rollback(1)
    except GrammarError:
        return False
    return True
