"""A linear layer as an object: its weights, and the kernel that fits the number of rows.

Quantized layouts, instruction sets and adapters are further kernels here; models call the layer
and know none of them.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

Kernel = Callable[[Tensor], Tensor]  # [rows, in] -> [rows, out]

# Weights of 4 bits in torch's own kernel take, against bfloat16, on one core for 576 to 1,536
# outputs: 0.40 of the time for 1 row, 0.49 for 2, 0.68 for 4, 1.05 for 8.
MAX_FEW_ROWS = 4


class Linear:
    """y = x W^T, without a bias. weight: [out, in]. `few_rows` computes the same from other bits,
    faster for up to MAX_FEW_ROWS rows."""

    def __init__(self, weight: Tensor, *, few_rows: Kernel | None = None) -> None:
        self.weight = weight
        self._few_rows = few_rows

    def kernel_for(self, num_rows: int) -> Kernel:
        """The kernel for a batch of this many rows; to be asked once a step, not once a row."""
        if self._few_rows is not None and num_rows <= MAX_FEW_ROWS:
            return self._few_rows
        return self._dense

    def __call__(self, x: Tensor) -> Tensor:
        return self.kernel_for(x.shape[0])(x)

    def _dense(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)
