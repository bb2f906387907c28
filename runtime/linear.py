"""A linear layer as an object: its weights, and the kernel that fits the number of rows.

Quantized layouts, instruction sets and adapters are further kernels here; models call the layer
and know none of them.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

Kernel = Callable[[Tensor], Tensor]  # [rows, in] -> [rows, out]


class Linear:
    """y = x W^T, without a bias. weight: [out, in]."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def kernel_for(self, num_rows: int) -> Kernel:  # noqa: ARG002  the choice is the seam
        """The kernel for a batch of this many rows; to be asked once a step, not once a row."""
        return self._dense

    def __call__(self, x: Tensor) -> Tensor:
        return self.kernel_for(x.shape[0])(x)

    def _dense(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)
