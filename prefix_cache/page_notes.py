"""What lower tiers are told: which full pages entered the tree and which left it.

Only kept where the cache was given an identity root; bounded, as nobody may come for them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredNote:
    """A full page that entered the tree. It still holds that as long as the generation is current.

    `tokens` are the page's, packed as big-endian unsigned 32-bit numbers.
    """

    page_id: int
    generation: int
    identity: bytes
    tokens: bytes
    namespace: bytes
