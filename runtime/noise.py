"""Gumbel noise as a pure function of (seed, choice, position, token id).

A counter-based hash instead of a stream: a token's noise is the same whatever else is in the
batch, whatever is filtered out, and after a preemption. The mixer is the finalizer of splitmix64
(Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
"""

from torch import Tensor

_WORD = 1 << 64
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_FLOAT_BITS = 24


def noise_key(seed: int, choice: int, position: int) -> int:
    """One 64-bit word for a place in one choice's output; seeds may be any integers."""
    key = 0
    for value in (seed, choice, position):
        key = _mix_word((key ^ (value % _WORD)) + _GOLDEN)
    return _as_signed(key)


def gumbel_noise(keys: Tensor, token_ids: Tensor) -> Tensor:
    """keys: [R, 1] int64, token_ids: broadcastable int64 -> float32 standard Gumbel draws."""
    word = token_ids * _as_signed(_GOLDEN) + keys
    word = (word ^ _shift(word, 30)).mul_(_as_signed(_MIX_1))
    word = (word ^ _shift(word, 27)).mul_(_as_signed(_MIX_2))
    word ^= _shift(word, 31)
    # The top bits, centred in their interval, so that neither 0 nor 1 comes out.
    uniform = _shift(word, 64 - _FLOAT_BITS).float().add_(0.5).mul_(2.0**-_FLOAT_BITS)
    return uniform.log_().neg_().log_().neg_()


def _shift(word: Tensor, num_bits: int) -> Tensor:
    """Logical shift to the right; torch's own keeps the sign."""
    return (word >> num_bits).bitwise_and_((1 << (64 - num_bits)) - 1)


def _mix_word(word: int) -> int:
    word %= _WORD
    word = (word ^ (word >> 30)) * _MIX_1 % _WORD
    word = (word ^ (word >> 27)) * _MIX_2 % _WORD
    return word ^ (word >> 31)


def _as_signed(word: int) -> int:
    return word - _WORD if word >= _WORD // 2 else word
