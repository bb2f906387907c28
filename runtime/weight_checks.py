"""What a half-downloaded or damaged file shows: matrices of zeros where nothing was written, scales
and weights that are no numbers. Called by runtime/weights.py, once for each tensor."""

from collections.abc import Mapping

import torch
from torch import Tensor

from runtime.dequantize import PLAIN_DTYPES

# Where the float16 scales lie in a block, in bytes; of the types whose scales lie so.
_SCALES: Mapping[str, tuple[int, ...]] = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
    "IQ4_NL": (0,), "IQ4_XS": (0,),
}  # fmt: skip
_SAMPLE_STEP = 997  # bytes; a prime, so that no regular pattern hides from the sample


def find_damage(data: Tensor, type_name: str, *, block_bytes: int, is_matrix: bool) -> str | None:
    """data: [num_bytes] uint8 of one tensor -> what is wrong with it, if anything.

    A vector may be all zeros (a bias), a matrix that was written never is.
    """
    if is_matrix and not data[::_SAMPLE_STEP].any() and not data.any():
        return "holds nothing but zeros"
    if type_name in PLAIN_DTYPES:
        return find_wrong_number(data.view(PLAIN_DTYPES[type_name]))
    for start in _SCALES.get(type_name, ()):  # all at even bytes of blocks of even length
        halves = data.view(torch.float16).view(-1, block_bytes // 2)
        if not halves[:, start // 2].isfinite().all():
            return "has a scale that is no number"
    return None


def find_wrong_number(weights: Tensor) -> str | None:
    """As find_damage, for weights that are stored as they are."""
    # A sum is no number where one of its terms is none, and takes one pass without a copy.
    if not weights.sum(dtype=torch.float32).isfinite() and not weights.isfinite().all():
        return "has a weight that is no number"
    return None
