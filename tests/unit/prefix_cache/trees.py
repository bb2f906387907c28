"""A tree by itself, as its cache would make it."""

import time
from collections.abc import Callable

from prefix_cache.pins import Pins
from prefix_cache.tree import RadixTree


def make_tree(
    *,
    page_size: int,
    pin_share: float = 1.0,
    num_pool_pages: int = 100,
    clock_ns: Callable[[], int] = time.time_ns,
) -> RadixTree:
    pins = Pins(share=pin_share, num_pool_pages=num_pool_pages)
    return RadixTree(page_size, pins=pins, clock_ns=clock_ns)
