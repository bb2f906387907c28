"""How fast pages come from a Redis on this machine, through the tier and through redis-py's client.

Run as `python -m tests.bench.redis_speed`; prints a table in ms: alone, and beside a thread that
never lets go of the interpreter's lock by itself, as the engine's loop may for a while. Pages are
90 of the size that the default model's have in bfloat16: a prefix of 1,440 tokens.
"""

import argparse
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import redis

from prefix_cache.tiers.open_redis import open_redis_tier
from prefix_cache.tiers.tier import StoredPage
from tests.bench.machine import this_machine
from tests.tier_pages import page_of, root_of
from tests.valkey_server import ValkeyServer

NUM_PAGES = 90
PAGE_BYTES = 360 * 1024
# The target of this project for the fetch, alone.
MAX_FETCH_MS = 60.0
_ROW = "{:32} {:>10} {:>10} {:>10}"


def main() -> int:
    """Returns 0 where the target was reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(this_machine().describe())
    print(shlex.join(["python", "-m", "tests.bench.redis_speed", *sys.argv[1:]]))
    print(_ROW.format("", "median", "lowest", "highest"))
    pages = [page_of(number, num_bytes=PAGE_BYTES) for number in range(NUM_PAGES)]
    server = ValkeyServer()
    server.start()
    try:
        fetch_ms = _measure(server, pages, num_rounds=options.rounds, where="alone")
        with _busy_thread():
            _measure(server, pages, num_rounds=options.rounds, where="beside a busy thread")
    finally:
        server.close()
    return int(fetch_ms > MAX_FETCH_MS)


def _measure(
    server: ValkeyServer, pages: Sequence[StoredPage], *, num_rounds: int, where: str
) -> float:
    """Prints the rows; returns the median of the tier's fetch."""
    keys = [page.key for page in pages]
    names = [b"plain:" + key.identity for key in keys]
    client = redis.Redis(port=server.port)
    client.mset({name: bytes(page.payload) for name, page in zip(names, pages, strict=True)})
    tier = open_redis_tier(
        server.url,
        root=root_of("speed"),
        model_id="speed",
        page_size=16,
        format="raw",
        secret_check="",
        ttl_s=600,
        holder="bench",
    )
    try:
        tier.forget(None)
        _row(f"store, {where}", lambda: tier.store(pages), 1)
        _row(f"look-up, {where}", lambda: tier.count_leading(keys), num_rounds)
        fetch_ms = _row(f"fetch, {where}", lambda: tier.fetch(keys), num_rounds)
        _row(f"redis-py MGET, {where}", lambda: client.mget(names), num_rounds)
        assert tier.counts.num_fetched == NUM_PAGES * num_rounds
    finally:
        tier.close()
        client.close()
    return fetch_ms


def _row(name: str, call: Callable[[], object], num_rounds: int) -> float:
    times = []
    for _ in range(num_rounds):
        started = time.perf_counter()
        call()
        times.append((time.perf_counter() - started) * 1e3)
    shown = (statistics.median(times), min(times), max(times))
    print(_ROW.format(name, *(f"{value:.1f}" for value in shown)), flush=True)
    return shown[0]


@contextmanager
def _busy_thread() -> Iterator[None]:
    has_ended = threading.Event()

    def spin() -> None:
        while not has_ended.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
