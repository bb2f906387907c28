"""What a request says of the cache is done: how much of it stays, for whom, and for how long."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from prefix_cache import Lease
from runtime.messages import CacheHints, ChoiceUsage, Pin
from tests.engine_harness import PAGE_SIZE, Answer, EngineHarness, alone, make_submit

PROMPT = [(i * 31) % 90 for i in range(100)]
MARKER = 95


def usage_of(answer: Answer) -> ChoiceUsage:
    assert answer.last.usage is not None
    return answer.last.usage


def num_cached(harness: EngineHarness, prompt: list[int]) -> int:
    """How much of a prompt a later request would find."""
    return harness.cache.peek(b"", prompt)


def thinking_at(place: int) -> Callable[..., int]:
    """An answer whose token `place` is the marker, and no other."""

    def choose(history: tuple[int, ...], _row: Any) -> int:
        return MARKER if len(history) == len(PROMPT) + place else len(history) % 90

    return choose


@pytest.mark.parametrize("keep_len", [0, 1, 16, 50, 99, 100, 104])
@pytest.mark.parametrize("chunk", [7, 512])
def test_of_a_request_only_its_first_tokens_stay(keep_len: int, chunk: int) -> None:
    harness = EngineHarness(max_step_tokens=chunk)
    request = make_submit("a", PROMPT, max_tokens=40, cache=CacheHints(keep_len=keep_len))
    answer = harness.ask(request)
    assert num_cached(harness, PROMPT + answer.token_ids) == keep_len
    assert harness.stats.pages_cached == -(-keep_len // PAGE_SIZE)
    assert usage_of(answer).written_tokens == min(keep_len, len(PROMPT))
    assert answer.token_ids == alone(make_submit("a", PROMPT, max_tokens=40))


def test_what_was_there_before_stays_whatever_a_later_request_leaves() -> None:
    harness = EngineHarness()
    harness.ask(make_submit("a", PROMPT))
    second = harness.ask(make_submit("b", [*PROMPT, 1, 2, 3], cache=CacheHints(keep_len=10)))
    assert usage_of(second).cached_tokens == len(PROMPT)
    assert usage_of(second).written_tokens == 0
    assert num_cached(harness, [*PROMPT, 1, 2, 3]) == len(PROMPT)


@pytest.mark.parametrize("place", [0, 1, 11, 12, 13, 27, 38])
def test_an_answer_is_cut_where_the_next_turn_will_lack_it(place: int) -> None:
    harness = EngineHarness(choose=thinking_at(place))
    hints = CacheHints(dropped_from=MARKER)
    answer = harness.ask(make_submit("a", PROMPT, max_tokens=40, cache=hints))
    assert answer.token_ids.index(MARKER) == place
    kept = len(PROMPT) + place
    assert num_cached(harness, PROMPT + answer.token_ids) == kept
    assert harness.stats.pages_cached == -(-kept // PAGE_SIZE)


def test_a_marker_in_the_prompt_cuts_nothing() -> None:
    harness = EngineHarness(choose=lambda history, _row: len(history) % 90)
    prompt = [*PROMPT[:40], MARKER, *PROMPT[40:]]
    answer = harness.ask(make_submit("a", prompt, cache=CacheHints(dropped_from=MARKER)))
    computed = prompt + answer.token_ids[:-1]
    assert num_cached(harness, computed) == len(computed)


def test_a_marker_in_what_is_gone_on_with_cuts_there() -> None:
    harness = EngineHarness()
    hints = CacheHints(dropped_from=MARKER)
    harness.ask(make_submit("a", PROMPT, output_prefix=[1, MARKER, 2], cache=hints))
    assert num_cached(harness, [*PROMPT, 1, MARKER, 2]) == len(PROMPT) + 1


def test_every_choice_is_cut_at_its_own_place() -> None:
    def choose(history: tuple[int, ...], row: Any) -> int:
        place = len(history) - len(PROMPT)
        return MARKER if place == 3 + 20 * row.choice else (place + 7 * row.choice) % 90

    harness = EngineHarness(choose=choose)
    hints = CacheHints(dropped_from=MARKER)
    harness.submit(make_submit("a", PROMPT, max_tokens=40, num_choices=2, cache=hints))
    harness.run()
    for choice in range(2):
        tokens = PROMPT + harness.answer("a", choice).token_ids
        assert num_cached(harness, tokens) == len(PROMPT) + 3 + 20 * choice


def test_preempted_requests_that_leave_nothing_end_all_the_same() -> None:
    harness = EngineHarness(num_pages=9, watermark=0.0)
    harness.expect_short_answers()
    requests = [
        make_submit(f"r{n}", PROMPT[n : n + 40], max_tokens=60, cache=CacheHints(keep_len=20))
        for n in range(2)
    ]
    for request in requests:
        harness.submit(request)
    harness.run()
    assert harness.stats.preemptions > 0
    for request in requests:
        assert harness.answer(request.request_id).token_ids == alone(request)
    assert harness.stats.pages_cached <= 4


def test_nobody_waits_for_pages_that_a_leader_will_not_share() -> None:
    harness = EngineHarness(max_step_tokens=16)
    harness.submit(make_submit("long", PROMPT * 4, cache=CacheHints(keep_len=32)))
    for _ in range(2):
        harness.step()
    short = make_submit("short", [*PROMPT[:80], 1])
    harness.submit(short)
    harness.step()
    assert harness.stats.num_running == 2
    harness.run()
    assert usage_of(harness.answer("short")).cached_tokens == 32
    assert harness.answer("short").token_ids == alone(short)


def test_cached_and_written_tokens_make_up_a_prompt_that_stays() -> None:
    harness = EngineHarness()
    for number, prompt in enumerate((PROMPT, PROMPT, [*PROMPT, 1, 2], PROMPT[:50])):
        usage = usage_of(harness.ask(make_submit(f"r{number}", prompt)))
        assert usage.cached_tokens + usage.written_tokens == usage.prompt_tokens
    usage = usage_of(harness.ask(make_submit("none", PROMPT, use_cache=False)))
    assert (usage.cached_tokens, usage.written_tokens) == (0, 0)


class Recorder:
    """The cache's pins and quotas as they were asked for."""

    def __init__(self, harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pins: list[tuple[int, int, int, str]] = []
        self.quotas: list[tuple[str, int | None]] = []
        self.owners: list[str] = []
        cache = harness.cache
        acquire, pin = cache.acquire, cache.pin

        def recorded_acquire(*args: Any, owner: str = "", **rest: Any) -> Lease:
            self.owners.append(owner)
            return acquire(*args, owner=owner, **rest)

        def recorded_pin(lease: Lease, num_tokens: int, *, until_ns: int, key: str = "") -> int:
            self.pins.append((num_tokens, until_ns, lease.num_locked_pages, key))
            return pin(lease, num_tokens, until_ns=until_ns, key=key)

        monkeypatch.setattr(cache, "acquire", recorded_acquire)
        monkeypatch.setattr(cache, "pin", recorded_pin)
        monkeypatch.setattr(
            cache, "set_quota", lambda owner, pages: self.quotas.append((owner, pages))
        )


def test_pins_are_set_once_when_the_pages_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness()
    recorder = Recorder(harness, monkeypatch)
    pins = (Pin(16, 300.0), Pin(100, 60.0))
    before_ns = harness.clock.now_ns
    hints = CacheHints(owner="me", key="chat 7", pins=pins)
    harness.submit(make_submit("a", PROMPT, num_choices=3, max_tokens=20, cache=hints))
    harness.run()
    assert [(pin[0], pin[2], pin[3]) for pin in recorder.pins] == [
        (16, 7, "chat 7"),
        (100, 7, "chat 7"),
    ]
    for (_, until_ns, _, _), pin in zip(recorder.pins, pins, strict=True):
        elapsed_ns = until_ns - before_ns - pin.ttl_s * 1e9
        assert 0 < elapsed_ns < 1e9
    assert set(recorder.owners) == {"me"}


def test_an_aborted_request_leaves_its_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness(max_step_tokens=20)
    recorder = Recorder(harness, monkeypatch)
    harness.submit(make_submit("a", PROMPT, cache=CacheHints(pins=(Pin(100, 60.0),))))
    harness.step()
    harness.step()
    harness.abort("a")
    assert [(pin[0], pin[2]) for pin in recorder.pins] == [(100, 2)]


def test_without_the_cache_nothing_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness()
    recorder = Recorder(harness, monkeypatch)
    hints = CacheHints(pins=(Pin(100, 60.0),))
    harness.ask(make_submit("a", PROMPT, use_cache=False, cache=hints))
    assert recorder.pins == []


@pytest.mark.parametrize(
    ("page_bytes", "quota_bytes", "expected"),
    [(1000, 3500, 3), (1000, 0, 0), (1000, None, None), (0, 3500, None)],
)
def test_a_quota_is_so_many_whole_pages(
    monkeypatch: pytest.MonkeyPatch, page_bytes: int, quota_bytes: int | None, expected: int | None
) -> None:
    harness = EngineHarness(page_bytes=page_bytes)
    recorder = Recorder(harness, monkeypatch)
    harness.ask(make_submit("a", PROMPT, cache=CacheHints(owner="me", quota_bytes=quota_bytes)))
    assert set(recorder.quotas) == {("me", expected)}


@pytest.mark.parametrize(
    "hints",
    [
        CacheHints(keep_len=-1),
        CacheHints(quota_bytes=-1),
        CacheHints(pins=(Pin(-1, 1.0),)),
        CacheHints(pins=(Pin(1, -1.0),)),
        CacheHints(pins=(Pin(1, float("inf")),)),
        CacheHints(pins=(Pin(1, float("nan")),)),
        CacheHints(pins=(Pin(1, 1.0),) * 17),
    ],
)
def test_strange_hints_are_refused(hints: CacheHints) -> None:
    harness = EngineHarness()
    answer = harness.ask(make_submit("a", PROMPT, cache=hints))
    assert answer.last.error is not None
    assert "pin" in answer.last.error.message or "keep_len" in answer.last.error.message


def test_hints_cross_the_wire() -> None:
    hints = CacheHints("me", 5, "k", (Pin(3, 1.5),), 7, 9)
    request = make_submit("a", PROMPT, cache=hints)
    encoded = msgspec.msgpack.encode(request)
    assert msgspec.msgpack.decode(encoded, type=type(request)).cache == hints
