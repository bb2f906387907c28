"""Hit rates over windows, by a clock that the test turns."""

from prefix_cache.hit_rates import WINDOWS_S, HitRates

NS = 10**9


class Clock:
    def __init__(self) -> None:
        self.now_s = 10_000.0

    def __call__(self) -> int:
        return int(self.now_s * NS)


def counts(rates: HitRates, owner: str | None) -> dict[int | None, tuple[int, int, int]]:
    return {
        window_s: (count.num_requests, count.prompt_tokens, count.cached_tokens)
        for window_s, count in rates.windows(owner)
    }


def test_each_window_forgets_after_its_time_and_the_total_never() -> None:
    clock = Clock()
    rates = HitRates(clock_ns=clock)
    rates.note("a", num_prompt_tokens=100, num_cached_tokens=60)
    there, gone = (1, 100, 60), (0, 0, 0)
    for later_s, expected in [
        (59, [there, there, there]),
        (66, [gone, there, there]),
        (306, [gone, gone, there]),
        (3700, [gone, gone, gone]),
    ]:
        clock.now_s = 10_000.0 + later_s
        told = counts(rates, "a")
        assert [told[window_s] for window_s in WINDOWS_S] == expected
        assert told[None] == there


def test_owners_are_counted_apart_and_all_together() -> None:
    rates = HitRates(clock_ns=Clock())
    rates.note("a", num_prompt_tokens=10, num_cached_tokens=1)
    rates.note("b", num_prompt_tokens=20, num_cached_tokens=2)
    rates.note("a", num_prompt_tokens=40, num_cached_tokens=4)
    assert counts(rates, "a")[60] == (2, 50, 5)
    assert counts(rates, "b")[None] == (1, 20, 2)
    assert counts(rates, None)[300] == (3, 70, 7)
    assert counts(rates, "nobody")[None] == (0, 0, 0)


def test_the_owner_that_asked_least_recently_is_forgotten_but_counts_in_all() -> None:
    rates = HitRates(clock_ns=Clock(), max_owners=2)
    for owner in ("a", "b", "a", "c"):
        rates.note(owner, num_prompt_tokens=1, num_cached_tokens=0)
    assert [counts(rates, owner)[None][0] for owner in ("a", "b", "c")] == [2, 0, 1]
    assert counts(rates, None)[None][0] == 4


def test_years_of_requests_keep_no_more_buckets_than_the_windows_need() -> None:
    clock = Clock()
    rates = HitRates(clock_ns=clock)
    for _ in range(500):
        clock.now_s += 61
        rates.note("a", num_prompt_tokens=1, num_cached_tokens=1)
    history = rates._owners["a"]
    assert len(history._fine._counts) <= 61
    assert len(history._coarse._counts) <= 61
    assert counts(rates, "a")[3600] == (60, 60, 60)


def test_a_clock_that_is_set_back_harms_nothing() -> None:
    clock = Clock()
    rates = HitRates(clock_ns=clock)
    for _ in range(100):
        clock.now_s += 60
        rates.note("a", num_prompt_tokens=5, num_cached_tokens=5)
    clock.now_s -= 50_000
    rates.note("a", num_prompt_tokens=7, num_cached_tokens=0)
    assert counts(rates, "a")[60] == counts(rates, "a")[3600] == (1, 7, 0)
    assert counts(rates, "a")[None] == (101, 507, 500)
