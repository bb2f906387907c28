"""Where the system gives no memory and no threads, the native step says so and goes on."""

import subprocess
import sys

import pytest

from runtime.worker_process import environment
from tests.native_library import HAS_COMPILER, NO_COMPILER, built_library, runnable_sets

pytestmark = [
    pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER),
    pytest.mark.skipif(sys.platform != "linux", reason="limits the address space as Linux does"),
    pytest.mark.timeout(300),  # the first test builds the library
]

LIMIT = """
import resource
from pathlib import Path

def leave(num_bytes):
    size = next(l for l in Path("/proc/self/status").read_text().splitlines() if "VmSize" in l)
    limit = int(size.split()[1]) * 1024 + num_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""


def run(program: str) -> str:
    """What it prints. It must end by itself."""
    built_library(runnable_sets()[0])
    done = subprocess.run(
        [sys.executable, "-c", LIMIT + program],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def test_too_few_threads_are_an_answer() -> None:
    """Each thread has a stack of some megabytes: some of them begin before the memory is full."""
    assert run("""
import ctypes
from runtime.native.library import Model
from tests.native_library import built_library, runnable_sets
library = built_library(runnable_sets()[0])
leave(100_000_000)
print(library.rg_create(ctypes.byref(Model(num_heads=1, num_kv_heads=1)), 2000))
""") == ("None\n")


def test_after_a_step_that_was_too_large_the_next_is_computed() -> None:
    assert run("""
import torch
from runtime.batch import PageId, RowKey, ScheduledBatch, ScheduledRow
from runtime.native.native_decoder import NativeDecoder
from runtime.pool_limits import PoolLimits
from tests.native_library import built_library, runnable_sets
from tests.unit.runtime.native.test_native_decoder import make_spec, random_weights
spec = make_spec(1, 1, 16)
limits = PoolLimits(num_pages=13_000, page_size=16, max_model_len=200_000)
library = built_library(runnable_sets()[0])
decoder = NativeDecoder(library, spec, random_weights(spec), limits, num_threads=1)

def step(num_tokens):
    pages = tuple(PageId(page) for page in range(13_000))
    row = ScheduledRow(RowKey(0), (1,) * num_tokens, 0, pages, (num_tokens - 1,))
    return decoder.step(ScheduledBatch(0, (row,))).clone()

first = step(20)
leave(48_000_000)  # less than the 51 MB of the hidden states alone
try:
    step(200_000)
except MemoryError as error:
    print(error)
print(torch.equal(step(20), first))
""") == ("the native step ran out of memory\nTrue\n")


def test_too_many_candidates_are_an_answer() -> None:
    """A nucleus of eight million equal tokens, of eight bytes each."""
    assert run("""
import ctypes
import numpy as np
from runtime.native.library import Choice
from tests.native_library import built_library, runnable_sets
library = built_library(runnable_sets()[0])
scores, token, best = (np.zeros(size, np.float32) for size in (1 << 23, 1, 1))
choice = Choice(temperature=1.0, top_p=0.9)
leave(50_000_000)
print(library.rg_choose(scores.ctypes.data, 1, len(scores), ctypes.byref(choice),
                        token.ctypes.data, best.ctypes.data))
""") == ("0\n")
