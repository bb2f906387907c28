"""Gumbel noise: the right distribution, and a function of its place alone."""

import math

import torch

from runtime.noise import gumbel_noise, noise_key

IDS = torch.arange(50_000, dtype=torch.int32)


def noise(seed: int, choice: int = 0, position: int = 0) -> torch.Tensor:
    key = torch.tensor([noise_key(seed, choice, position)], dtype=torch.int32)
    return gumbel_noise(key, IDS)[0]


def test_draws_have_the_gumbel_distribution() -> None:
    drawn = noise(1)
    assert torch.isfinite(drawn).all()
    assert abs(float(drawn.mean()) - 0.5772) < 0.03
    assert abs(float(drawn.var()) - math.pi**2 / 6) < 0.06
    for quantile in (0.01, 0.1, 0.5, 0.9, 0.99):
        below = float((drawn < -math.log(-math.log(quantile))).float().mean())
        assert abs(below - quantile) < 0.01


def test_neighbouring_places_are_independent() -> None:
    pairs = [
        (noise(1), noise(2)),
        (noise(1, choice=0), noise(1, choice=1)),
        (noise(1, position=0), noise(1, position=1)),
        (noise(1)[:-1], noise(1)[1:]),
    ]
    for first, second in pairs:
        assert abs(float(torch.corrcoef(torch.stack((first, second)))[0, 1])) < 0.02


def test_the_winner_over_many_places_is_uniform_for_equal_tokens() -> None:
    keys = torch.tensor([noise_key(3, 0, position) for position in range(20_000)]).int()
    winners = gumbel_noise(keys, IDS[:8]).argmax(-1)
    shares = torch.bincount(winners, minlength=8) / 20_000
    assert (shares - 1 / 8).abs().max() < 0.012


def test_a_tokens_noise_depends_on_its_id_and_not_on_the_other_tokens() -> None:
    key = torch.tensor([noise_key(9, 1, 4)], dtype=torch.int32)
    some = torch.tensor([40_000, 7, 123], dtype=torch.int32)
    assert torch.equal(gumbel_noise(key, some)[0], noise(9, 1, 4)[some.long()])


def test_the_largest_noise_is_finite() -> None:
    # A key that gives one of these tokens the largest of the 2**23 values.
    drawn = gumbel_noise(torch.tensor([[142, 5]], dtype=torch.int32), IDS)
    assert torch.isfinite(drawn).all()
    assert float(drawn.max()) > 16.0
