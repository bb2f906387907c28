"""What happened to a request before its admission is told at once: after an abort nothing is."""

from telemetry import names
from tests.engine_harness import GATEWAY, PAGE_SIZE, EngineDriver, make_submit
from tests.fake_grammar import scripted
from tests.grammar_harness import MakeHarness
from tests.memory_tier import MemoryTier
from tests.tiered_engine import TieredEngine

PROMPT = [(7 * i + i * i) % 90 for i in range(10 * PAGE_SIZE + 3)]


def told_before_admission(bench: EngineDriver, request_id: str) -> list[str]:
    """Phases that came while the request waited."""
    events = bench.answer(request_id).events
    assert not any(event.admitted for event in events)
    return [phase.name for event in events for phase in event.phases]


def test_a_matcher_that_is_there_while_the_request_waits_for_a_slot(
    make_grammar_harness: MakeHarness,
) -> None:
    bench = make_grammar_harness(max_running=1)
    bench.submit(make_submit("runs", range(40), max_tokens=500))
    bench.step()
    bench.submit(make_submit("waits", range(50, 60), num_choices=2, constraint=scripted([1])))
    bench.wait_for_build()
    bench.step()
    assert told_before_admission(bench, "waits") == [names.SPAN_GRAMMAR_COMPILE]
    assert (GATEWAY, "waits", 1) not in bench.answers
    bench.abort("waits")
    bench.abort("runs")
    bench.run()
    bench.assert_idle()


def test_pages_that_came_while_the_request_waits_for_a_slot() -> None:
    tier = MemoryTier()
    first = TieredEngine((tier,))
    first.ask(make_submit("first", PROMPT))
    first.settle()
    first.close()
    bench = TieredEngine((tier,), max_running=1)
    try:
        bench.submit(make_submit("runs", range(40), max_tokens=500, use_cache=False))
        bench.step()
        bench.submit(make_submit("waits", PROMPT))
        for _ in range(400):
            if (GATEWAY, "waits", 0) not in bench.answers:
                bench.step()
        assert told_before_admission(bench, "waits") == [names.SPAN_CACHE_FETCH]
    finally:
        bench.close()
