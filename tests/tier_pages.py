"""Made-up pages of lower tiers: what a page holds follows from its number, so that a wrong one is
known wherever it turns up."""

import hashlib
import random
import struct

from prefix_cache.tiers.tier import PageKey, StoredPage

PAGE_SIZE = 16


def root_of(name: str) -> bytes:
    """32 bytes that stand for a model."""
    return hashlib.sha256(b"root " + name.encode()).digest()


def key_of(number: int) -> PageKey:
    tokens = struct.pack(f">{PAGE_SIZE}I", *range(number, number + PAGE_SIZE))
    return PageKey(hashlib.sha256(struct.pack(">Q", number)).digest(), tokens)


def payload_of(number: int, *, num_bytes: int = 256) -> bytes:
    """No two are alike, and none is a part of another."""
    return random.Random(number).randbytes(num_bytes)


def page_of(number: int, *, num_bytes: int = 256) -> StoredPage:
    return StoredPage(key_of(number), payload_of(number, num_bytes=num_bytes))
