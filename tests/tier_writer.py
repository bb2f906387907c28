"""`python -m tests.tier_writer FOLDER MAX_BYTES SEED`: stores random pages until killed."""

import random
import sys

from prefix_cache.tiers.disk_tier import DiskTier
from prefix_cache.tiers.tier import StoredPage
from tests.tier_pages import page_of, root_of

ROOT = root_of("killed writer")
NUM_NUMBERS = 48
PAYLOAD_BYTES = 32 * 1024


def killed_page(number: int) -> StoredPage:
    return page_of(number, num_bytes=PAYLOAD_BYTES)


def main() -> None:
    """Says a line when it begins to store."""
    folder, max_bytes, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    pages = [killed_page(number) for number in range(NUM_NUMBERS)]
    rng = random.Random(seed)
    tier = DiskTier(folder, root=ROOT, max_bytes=max_bytes)
    tier.start()
    print("storing", flush=True)  # noqa: T201
    while True:
        tier.store(rng.sample(pages, rng.randint(1, 4)))
        if rng.random() < 0.1:
            tier.forget([rng.choice(pages).key.identity])


if __name__ == "__main__":
    main()
