"""Pages leave the engine for a lower tier and come back, also to another engine after a restart."""

from collections.abc import Callable, Iterator

import pytest

from prefix_cache.tiers.tier import PageTier
from runtime.messages import Phase
from telemetry import names
from tests.engine_harness import PAGE_SIZE, alone, make_submit
from tests.memory_tier import MemoryTier
from tests.tiered_engine import TieredEngine

Start = Callable[..., TieredEngine]
PROMPT = [(7 * i + i * i) % 90 for i in range(10 * PAGE_SIZE + 3)]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts engines over tiers; they end with the test."""
    engines: list[TieredEngine] = []

    def make(*tiers: PageTier, **options: object) -> TieredEngine:
        engines.append(TieredEngine(tiers, **options))  # type: ignore[arg-type]
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def fetches(phases: list[Phase]) -> list[tuple[object, object, object]]:
    """Tier, decision and tokens of each."""
    keys = (names.ATTR_CACHE_TIER, names.ATTR_FETCH_DECISION, names.ATTR_FETCH_TOKENS)
    found = [one.attributes for one in phases if one.name == names.SPAN_CACHE_FETCH]
    return [(one[keys[0]], one[keys[1]], one[keys[2]]) for one in found]


def fill(start: Start, tier: MemoryTier, prompt: list[int] = PROMPT) -> list[int]:
    """Another engine has answered the prompt and kept it; what it said."""
    engine = start(tier)
    answer = engine.ask(make_submit("first", prompt))
    engine.settle()
    return answer.token_ids


def test_a_restarted_engine_hits_what_the_one_before_computed(start: Start) -> None:
    tier = MemoryTier()
    first = fill(start, tier)
    assert tier.num_pages == (len(PROMPT) + 8) // PAGE_SIZE
    engine = start(tier)
    answer = engine.ask(make_submit("again", PROMPT))
    assert answer.token_ids == first == alone(make_submit("first", PROMPT))
    assert answer.last.usage is not None
    assert answer.last.usage.cached_tokens == 10 * PAGE_SIZE
    assert answer.last.usage.tier_tokens == {"disk": 10 * PAGE_SIZE}
    assert engine.executor.num_computed_tokens == 3 + 7
    assert fetches(answer.phases) == [("disk", "fetched", 10 * PAGE_SIZE)]


def test_the_next_turn_finds_the_answer_too(start: Start) -> None:
    tier = MemoryTier()
    said = fill(start, tier)
    turn = [*PROMPT, *said, 1, 2, 3]
    answer = start(tier).ask(make_submit("next", turn))
    assert answer.last.usage is not None
    assert answer.last.usage.cached_tokens == (len(PROMPT) + 7) // PAGE_SIZE * PAGE_SIZE
    assert answer.token_ids == alone(make_submit("next", turn))
