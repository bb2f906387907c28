"""The p-values against those of shuffled labels, which assume nothing."""

import random
from collections.abc import Callable, Sequence

import pytest

from tests.bench.rank_tests import kolmogorov_smirnov, mann_whitney

NUM_SHUFFLES = 1000
Test = Callable[[Sequence[float], Sequence[float]], float]


def samples(shift: float, *, seed: int) -> tuple[list[float], list[float]]:
    rng = random.Random(seed)
    left = [rng.gauss(0, 1) for _ in range(50)]
    return left, [rng.gauss(shift, 1) for _ in range(50)]


def share_of_shuffles(test: Test, left: list[float], right: list[float]) -> float:
    """How many random divisions of all values look at least as different."""
    rng, observed, pooled = random.Random(1), test(left, right), left + right
    hits = 0
    for _ in range(NUM_SHUFFLES):
        rng.shuffle(pooled)
        hits += test(pooled[:50], pooled[50:]) <= observed
    return hits / NUM_SHUFFLES


@pytest.mark.parametrize("test", [mann_whitney, kolmogorov_smirnov])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_p_value_is_the_share_of_shuffles_that_look_as_different(test: Test, seed: int) -> None:
    left, right = samples(0.3, seed=seed)
    assert test(left, right) == pytest.approx(share_of_shuffles(test, left, right), abs=0.06)


@pytest.mark.parametrize("test", [mann_whitney, kolmogorov_smirnov])
def test_clearly_different_samples_have_a_tiny_p_value(test: Test) -> None:
    assert test(*samples(3.0, seed=1)) < 1e-9


@pytest.mark.parametrize("test", [mann_whitney, kolmogorov_smirnov])
def test_equal_samples_have_a_p_value_of_one(test: Test) -> None:
    values = [float(number % 7) for number in range(50)]
    assert test(values, list(reversed(values))) == pytest.approx(1.0, abs=0.01)
    assert test([1.0] * 20, [1.0] * 20) == 1.0


def test_many_equal_values_are_allowed_for() -> None:
    """Most are 0, the others all different."""
    left = [0.0] * 40 + [float(number) for number in range(1, 11)]
    right = [0.0] * 34 + [number + 0.5 for number in range(1, 17)]
    expected = share_of_shuffles(mann_whitney, left, right)
    assert mann_whitney(left, right) == pytest.approx(expected, abs=0.04)


def test_only_the_second_test_sees_another_spread() -> None:
    narrow = [float(number) for number in range(-25, 26)]
    wide = [6 * value for value in narrow]
    assert kolmogorov_smirnov(narrow, wide) < 0.001
    assert mann_whitney(narrow, wide) > 0.9
