"""Greedy answers with the cache are those without it, over random conversations in float32."""

import pytest

from tests.cached_scripts import Play, TinyExecutor

NUM_SCRIPTS = 1000
MAX_STOPS = 0.01


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyExecutor:
    return TinyExecutor.load(tmp_path_factory.mktemp("tiny") / "model")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.timeout(60)
def test_greedy_answers_with_the_cache_are_those_without_it(tiny: TinyExecutor, seed: int) -> None:
    play = Play.of(tiny, seed=seed)
    verdict = play.run(NUM_SCRIPTS // 4)
    assert verdict.faults == []
    assert verdict.num_answers > NUM_SCRIPTS // 2
    assert verdict.num_stops < MAX_STOPS * verdict.num_answers
    # The scripts did what they are to prove harmless.
    stats = play.driver.stats
    assert stats.cached_tokens > stats.prompt_tokens / 4
    assert stats.evicted_pages > 1000
    assert stats.recomputed_tokens > 0
    assert play.most_pinned > 0
    assert play.num_aborted > 20
