"""Frequencies of rotary positions, with the scalings that models use.

Called by the architectures, with what a config.json or the metadata of a GGUF file says.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.decoder_spec import RotarySpec
from runtime.errors import ModelError
from runtime.models.blueprint import Sizes
from runtime.models.gguf_metadata import GgufMetadata

_YARN_BETA_FAST, _YARN_BETA_SLOW = 32.0, 1.0  # rotations; YaRN, arXiv:2309.00071, 3.2


def plain_rotary(*, theta: float, head_dim: int) -> RotarySpec:
    """Pair i turns by theta^(-2 i / d) radians a position (RoFormer, arXiv:2104.09864, 3.2.2).

    Raises: ValueError for a base that is no positive number.
    """
    if not 0 < theta < math.inf:
        raise ValueError(f"the base of rotary positions must be a positive number, it is {theta}")
    return RotarySpec(tuple(theta ** (-2 * i / head_dim) for i in range(head_dim // 2)))


def divided(rotary: RotarySpec, divisors: float | tuple[float, ...]) -> RotarySpec:
    """Frequencies divided by one factor, or by one a pair."""
    if not isinstance(divisors, tuple):
        divisors = (divisors,) * len(rotary.inverse_frequencies)
    if len(divisors) != len(rotary.inverse_frequencies):
        raise ValueError(
            f"{len(divisors)} rotary factors are given, {len(rotary.inverse_frequencies)} expected"
        )
    pairs = zip(rotary.inverse_frequencies, divisors, strict=True)
    return replace(rotary, inverse_frequencies=tuple(f / divisor for f, divisor in pairs))


def config_rotary(rope: Mapping[str, Any], *, head_dim: int) -> RotarySpec:
    """What the rotary parameters of a config.json (`ModelConfig.rope`) mean.

    Raises: ValueError for a scaling that is not implemented or lacks a parameter.
    """
    if rope.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise ValueError(
            f"partial_rotary_factor = {rope['partial_rotary_factor']!r} is not supported"
        )
    kind, theta = rope["rope_type"], rope_number(rope, "rope_theta")
    rotary = plain_rotary(theta=theta, head_dim=head_dim)
    if kind == "default":
        return rotary
    if kind == "linear":
        return divided(rotary, rope_number(rope, "factor"))
    if kind == "llama3":
        return _llama3(rotary, rope)
    if kind == "yarn":
        _refuse_yarn_variants(rope)
        return _yarn(
            theta=theta,
            head_dim=head_dim,
            factor=rope_number(rope, "factor"),
            trained_len=rope_number(rope, "original_max_position_embeddings"),
            rotations=(
                rope_number(rope, "beta_fast", _YARN_BETA_FAST),
                rope_number(rope, "beta_slow", _YARN_BETA_SLOW),
            ),
            magnitude=rope.get("attention_factor"),
        )
    raise ValueError(f"rope scaling of type {kind!r} is not supported")


def gguf_rotary(metadata: GgufMetadata, sizes: Sizes) -> RotarySpec:
    """What the metadata says, with the divisors in the tensor `rope_freqs.weight` if it is there.

    Raises: ModelError for a scaling that is not implemented.
    """
    metadata.expect_head_dim("rope.dimension_count", sizes.head_dim)
    theta = metadata.number(metadata.own("rope.freq_base"), 10_000.0)
    rotary = plain_rotary(theta=theta, head_dim=sizes.head_dim)
    kind = metadata.string(metadata.own("rope.scaling.type"), "none")
    factor = metadata.number(
        metadata.own("rope.scaling.factor"), metadata.number(metadata.own("rope.scale_linear"), 1.0)
    )
    if kind == "yarn":
        rotary = _gguf_yarn(metadata, sizes, theta=theta, factor=factor)
    elif kind not in ("none", "linear"):
        raise ModelError(
            f"{metadata.file.path}: {metadata.own('rope.scaling.type')} = {kind!r} is not supported"
        )
    elif factor not in (0.0, 1.0):
        rotary = divided(rotary, factor)
    divisors = metadata.factors("rope_freqs.weight", length=sizes.head_dim // 2)
    return rotary if divisors is None else divided(rotary, divisors)


def rope_number(rope: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """One of the rotary parameters. Raises: ValueError where it is missing or no number."""
    value = default if rope.get(key) is None else rope[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"the rotary parameter {key} must be a positive number, it is {value!r}")
    return float(value)


def _llama3(rotary: RotarySpec, rope: Mapping[str, Any]) -> RotarySpec:
    """Llama 3.1: long waves are stretched by `factor`, short ones are not, between two wavelengths
    the one passes into the other."""
    factor, low, high, trained_len = (
        rope_number(rope, key)
        for key in (
            "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
        )
    )  # fmt: skip

    def scaled(frequency: float) -> float:
        num_turns = trained_len * frequency / (2 * math.pi)
        if num_turns < low:
            return frequency / factor
        if num_turns > high:
            return frequency
        share = (num_turns - low) / (high - low)
        return (1 - share) * frequency / factor + share * frequency

    return replace(rotary, inverse_frequencies=tuple(map(scaled, rotary.inverse_frequencies)))


def _yarn(
    *,
    theta: float,
    head_dim: int,
    factor: float,
    trained_len: float,
    rotations: tuple[float, float],
    magnitude: float | None,
) -> RotarySpec:
    """YaRN: pairs that turn often within the trained length keep their frequency, those that turn
    seldom are stretched by `factor`, with a ramp over the pairs between."""

    def pair_of(num_rotations: float) -> float:
        return (
            head_dim * math.log(trained_len / (num_rotations * 2 * math.pi)) / (2 * math.log(theta))
        )

    first = max(math.floor(pair_of(rotations[0])), 0)
    last = min(math.ceil(pair_of(rotations[1])), head_dim - 1)
    frequencies = []
    for pair, frequency in enumerate(
        plain_rotary(theta=theta, head_dim=head_dim).inverse_frequencies
    ):
        ramp = min(max((pair - first) / max(last - first, 0.001), 0.0), 1.0)
        frequencies.append(frequency * (1 - ramp) + frequency / factor * ramp)
    if magnitude is None:
        magnitude = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
    return RotarySpec(tuple(frequencies), float(magnitude))


def _refuse_yarn_variants(rope: Mapping[str, Any]) -> None:
    for key, plain in (("mscale", None), ("mscale_all_dim", None), ("truncate", True)):
        if rope.get(key, plain) != plain:
            raise ValueError(f"rope scaling of type 'yarn' with {key} is not supported")


def _gguf_yarn(metadata: GgufMetadata, sizes: Sizes, *, theta: float, factor: float) -> RotarySpec:
    def number(suffix: str, default: float | None = None) -> float:
        return metadata.number(metadata.own(f"rope.scaling.{suffix}"), default)

    plain = {"attn_factor": 1.0, "yarn_log_multiplier": 0.0, "yarn_ext_factor": 1.0}
    for suffix, value in plain.items():
        if number(suffix, value) != value:
            raise ModelError(
                f"{metadata.file.path}: {metadata.own('rope.scaling.' + suffix)} ="
                f" {number(suffix)} is not supported"
            )
    return _yarn(
        theta=theta,
        head_dim=sizes.head_dim,
        factor=factor,
        trained_len=number("original_context_length"),
        rotations=(
            number("yarn_beta_fast", _YARN_BETA_FAST),
            number("yarn_beta_slow", _YARN_BETA_SLOW),
        ),
        magnitude=None,
    )
