"""How fast pages go to a disk tier and to host memory and come back.

Run as `python -m tests.bench.tier_speed`; prints a table. Pages are of the size that the default
model's have in bfloat16. What is read was written a moment ago: the figures are those of the
system's page cache, of checksums and copies, not of the disk behind it.
"""

import argparse
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from prefix_cache.tiers.disk_tier import DiskTier
from prefix_cache.tiers.host_tier import HostTier
from prefix_cache.tiers.tier import PageTier, StoredPage
from tests.bench.machine import this_machine
from tests.tier_pages import key_of, page_of, payload_of, root_of

PAGE_BYTES = 360 * 1024
MANY_FILES = 10_000
_ROW = "{:6} {:>12} {:>12} {:>14} {:>12} {:>12}"


def main() -> None:
    """A row a tier, and how long a start takes with many pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=256, help="pages a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; absent = a temporary folder")
    options = parser.parse_args()
    print(this_machine().describe())
    print(shlex.join(["python", "-m", "tests.bench.tier_speed", *sys.argv[1:]]))
    print(
        _ROW.format("tier", "store MB/s", "fetch MB/s", "look-up us/page", "store us", "fetch us")
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        pages = [
            # As the codec gives them: memory that changes, so that host memory has to copy it.
            StoredPage(
                key_of(number), memoryview(bytearray(payload_of(number, num_bytes=PAGE_BYTES)))
            )
            for number in range(options.pages)
        ]
        disk = DiskTier(folder, root=root_of("speed"), max_bytes=1 << 36)
        disk.start()
        for tier in (disk, HostTier(max_bytes=1 << 36)):
            print(_row(tier, pages, num_rounds=options.rounds), flush=True)
        for number in range(MANY_FILES - options.pages):
            disk.store([page_of(1_000_000 + number, num_bytes=64)])
        started = time.perf_counter()
        disk.start()
        elapsed_ms = (time.perf_counter() - started) * 1e3
        print(f"start with {disk.num_pages} files: {elapsed_ms:.0f} ms")
        disk.close()


def _row(tier: PageTier, pages: Sequence[StoredPage], *, num_rounds: int) -> str:
    keys = [page.key for page in pages]
    store, look_up, fetch = [], [], []
    for _ in range(num_rounds):
        tier.forget(None)
        store.append(_seconds(lambda: tier.store(pages)))
        look_up.append(_seconds(lambda: tier.count_leading(keys)))
        fetch.append(_seconds(lambda: tier.fetch(keys)))
    num_bytes = len(pages) * PAGE_BYTES
    store_s, look_up_s, fetch_s = map(statistics.median, (store, look_up, fetch))
    return _ROW.format(
        tier.label,
        f"{num_bytes / store_s / 1e6:.0f}",
        f"{num_bytes / fetch_s / 1e6:.0f}",
        f"{look_up_s / len(pages) * 1e6:.1f}",
        f"{store_s / len(pages) * 1e6:.0f}",
        f"{fetch_s / len(pages) * 1e6:.0f}",
    )


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
