"""Attention that reads exactly the pages which a FlexAttention block mask lists.

Uncompiled FlexAttention looks at the mask function alone and a GPU's kernel at the lists first, so
the two together test both.
"""

import torch
from torch import Tensor


def attend_listed_pages(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    blocks: tuple[Tensor, Tensor],
    visible: tuple[Tensor, Tensor, Tensor],
    page_size: int,
    scale: float,
    softcap: float | None,
) -> Tensor:
    """Implements runtime.flex_attention.Attend."""
    positions, logical_pages = blocks
    oldest, pages, num_pages = visible
    offsets = torch.arange(page_size)
    slots = pages.long()[:, :, None] * page_size + offsets
    places = logical_pages.gather(1, pages.long())[:, :, None] * page_size + offsets
    listed = (torch.arange(pages.shape[1]) < num_pages[:, None])[:, :, None].expand_as(places)
    in_time = (places.flatten(1)[:, None] <= positions[:, :, None]) & (
        places.flatten(1)[:, None] >= oldest[:, :, None]
    )
    seen = listed.flatten(1)[:, None] & in_time  # [B, Q, W * page_size]
    group_size = q.shape[1] // keys.shape[1]
    own_keys, own_values = (
        store[0][:, slots.flatten(1)].transpose(0, 1).repeat_interleave(group_size, dim=1)
        for store in (keys, values)
    )
    scores = torch.matmul(q, own_keys.transpose(-1, -2)).float() * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    weights = scores.masked_fill(~seen[:, None], float("-inf")).softmax(-1)
    return torch.matmul(weights.to(values.dtype), own_values)
