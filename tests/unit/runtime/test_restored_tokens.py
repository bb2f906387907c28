"""Of the tokens that a choice found in the cache, which came from lower tiers."""

from runtime.messages import ChoiceUsage
from runtime.request import RestoredTokens
from tests.engine_harness import make_sequence


def usage(*restored: RestoredTokens, num_cached: int) -> ChoiceUsage:
    sequence = make_sequence(range(90))
    sequence.request.restored += restored
    sequence.num_cached_tokens = num_cached
    return sequence.usage()


def test_only_what_was_found_in_the_end_counts() -> None:
    """The rest may have been evicted before the request was admitted."""
    run = RestoredTokens("disk", 16, 80)
    assert usage(run, num_cached=80).tier_tokens == {"disk": 64}
    assert usage(run, num_cached=40).tier_tokens == {"disk": 24}
    assert usage(run, num_cached=10).tier_tokens == {}


def test_runs_of_one_tier_are_added_and_tiers_told_apart() -> None:
    runs = [
        RestoredTokens("disk", 0, 16),
        RestoredTokens("redis", 16, 48),
        RestoredTokens("disk", 48, 80),
    ]
    assert usage(*runs, num_cached=85).tier_tokens == {"disk": 48, "redis": 32}
