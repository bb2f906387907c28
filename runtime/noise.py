"""Gumbel noise as a pure function of (seed, choice, position, token id).

A counter-based hash instead of a stream: a token's noise is the same whatever else is in the
batch, whatever is filtered out, and after a preemption. The key is mixed by the finalizer of
splitmix64 (Steele, Lea, Flood, 2014); the tokens by a 32-bit mixer with the constants of lowbias32
(Wellons, Prospecting for Hash Functions, 2018), as 64-bit products are five times slower here.
"""

from torch import Tensor

_WORD64 = 1 << 64
_WORD32 = 1 << 32
_GOLDEN64, _MIX64_1, _MIX64_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GOLDEN32, _MIX32_1, _MIX32_2 = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
# One bit less than float32 holds: half a unit added to 24 bits rounds up to 1, whose noise is
# infinite and wins over every score and mask.
_FLOAT_BITS = 23

NoiseKey = tuple[int, int]  # two signed 32-bit words


def noise_key(seed: int, choice: int, position: int) -> NoiseKey:
    """Names a place in one choice's output; seeds may be any 64-bit integers."""
    word = 0
    for value in (seed, choice, position):
        word = _mix64((word ^ (value % _WORD64)) + _GOLDEN64)
    return _signed32(word >> 32), _signed32(word % _WORD32)


def gumbel_noise(keys: Tensor, token_ids: Tensor) -> Tensor:
    """keys: [R, 2] int32, token_ids: [K] int32 -> [R, K] float32 standard Gumbel draws."""
    first, second = keys[:, :1], keys[:, 1:]
    word = token_ids * _signed32(_GOLDEN32) + first
    word ^= _shift(word, 16)
    word *= _signed32(_MIX32_1)
    word += second
    word ^= _shift(word, 15)
    word *= _signed32(_MIX32_2)
    word ^= _shift(word, 16)
    # The top bits, centred in their interval, so that neither 0 nor 1 comes out.
    uniform = _shift(word, 32 - _FLOAT_BITS).float().add_(0.5).mul_(2.0**-_FLOAT_BITS)
    return uniform.log_().neg_().log_().neg_()


def _shift(word: Tensor, num_bits: int) -> Tensor:
    """Logical shift to the right; torch's own keeps the sign."""
    return (word >> num_bits).bitwise_and_((1 << (32 - num_bits)) - 1)


def _mix64(word: int) -> int:
    word %= _WORD64
    word = (word ^ (word >> 30)) * _MIX64_1 % _WORD64
    word = (word ^ (word >> 27)) * _MIX64_2 % _WORD64
    return word ^ (word >> 31)


def _signed32(word: int) -> int:
    return word - _WORD32 if word >= _WORD32 // 2 else word
