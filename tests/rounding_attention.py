"""The reference's attention with the rounding of the native step."""

import math

import torch

from runtime.attention import AttentionPlan, PagedAttention


class RoundingAttention(PagedAttention):
    """Rounds what the native step rounds: keys, values and scaled queries to bfloat16."""

    def run(
        self,
        plan: AttentionPlan,
        layer: int,
        *,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> torch.Tensor:
        factor = self._spec.attention_scale * math.log2(math.e)  # its softmax is of base 2
        rounded = (q * factor).bfloat16().float() / factor
        return super().run(plan, layer, q=rounded, k=k.bfloat16().float(), v=v.bfloat16().float())
