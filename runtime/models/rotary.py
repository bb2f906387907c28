"""Frequencies of rotary positions, with the scalings that models use. Called by the
architectures."""

from runtime.decoder_spec import RotarySpec


def plain_rotary(*, theta: float, head_dim: int) -> RotarySpec:
    """Pair i turns by theta^(-2 i / d) radians a position (RoFormer, arXiv:2104.09864, 3.2.2)."""
    return RotarySpec(tuple(theta ** (-2 * i / head_dim) for i in range(head_dim // 2)))
