"""What the rounds of the fairness bench come to."""

import itertools

import pytest

from tests.bench.fairness import FLOOD_TOKENS, Ratios, Round, endless_bodies
from tests.bench.servers import Endpoint


def measured(alone_ms: list[float], beside_ms: list[float]) -> Round:
    return Round(tuple(alone_ms), tuple(beside_ms), flood_tok_s=700.0, num_preemptions=3)


def test_the_ratios_are_medians_over_the_rounds() -> None:
    rounds = [
        measured([100.0] * 20, [150.0] * 19 + [900.0]),
        measured([50.0] * 20, [100.0] * 20),
        measured([10.0] * 20, [500.0] * 20),
    ]
    ratios = Ratios.of(rounds)
    assert ratios.p50 == pytest.approx(2.0)
    assert ratios.p95 == pytest.approx(2.0)
    assert Ratios.of(rounds[:1]).p50 == pytest.approx(1.5)


def test_a_slow_tail_alone_misses_the_target() -> None:
    one = measured([100.0] * 10, [110.0] * 8 + [300.0] * 2)
    assert Ratios.of([one]).worst == pytest.approx(3.0)


def test_a_round_is_described_in_a_line() -> None:
    text = measured([100.0] * 9 + [300.0], [150.0] * 10).describe()
    assert "alone 100 / 300 ms" in text
    assert "beside the flood 150 / 150 ms (10 requests)" in text
    assert "the flood 700 tok/s" in text
    assert "\n" not in text


def test_the_flood_never_sends_the_same_prompt_again() -> None:
    endpoint = Endpoint("http://127.0.0.1:1/v1", "model", None)
    bodies = list(
        itertools.islice(endless_bodies(endpoint, max_tokens=FLOOD_TOKENS, seed="a"), 120)
    )
    assert len({str(body["messages"]) for body in bodies}) == 120
    assert {body["max_tokens"] for body in bodies} == {FLOOD_TOKENS}
