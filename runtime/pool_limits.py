"""The sizes that executor, page pool and engine must agree on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """`max_model_len`: tokens of the longest sequence that is accepted."""

    num_pages: int
    page_size: int
    max_model_len: int
