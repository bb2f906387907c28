"""`python -m tests.soak schemas`: many damaged schemas through the compile service.

What went wrong is named by its number, and `--only NUMBER` prints that schema. It runs in a process
of its own, so that a crash of what stands for the runtime is seen as what it is.
"""

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from grammar.bench_file import read_cases
from grammar.spec import EngineChoice
from tests.maskbench_file import maskbench_path
from tests.small_vocabulary import small_vocabulary
from tests.soak.compile_service import CompileServiceSoak, SoakReport
from tests.soak.mutations import schema_texts

PROGRESS_S = 5.0
MAX_SAMPLE_CHARS = 20_000


def run_schemas(options: argparse.Namespace) -> int:
    """Prints one JSON object; returns the exit code."""
    samples = real_schemas()
    texts = itertools.islice(schema_texts(options.seed, samples=samples), options.schemas)
    if options.only is not None:
        sys.stdout.write(next(itertools.islice(texts, options.only, None)) + "\n")
        return 0
    started = time.monotonic()
    report = asyncio.run(_run(_told(texts, options.schemas), options))
    for number, text, fault in report.faults:
        sys.stderr.write(f"schema {number} of seed {options.seed}: {fault}\n  {text}\n")
    summary = {
        "schemas": options.schemas,
        "seed": options.seed,
        "real_schemas": len(samples),
        "endings": dict(report.endings),
        "faults": len(report.faults),
        "seconds": round(time.monotonic() - started, 1),
    }
    sys.stdout.write(json.dumps(summary) + "\n")
    return 1 if report.faults else 0


def real_schemas() -> list[Any]:
    """Those of a MaskBench file, where there is one."""
    path = maskbench_path()
    if not path.is_file():
        return []
    texts = (case.schema for case in read_cases(path))
    return [json.loads(text) for text in texts if len(text) <= MAX_SAMPLE_CHARS]


async def _run(texts: Iterable[str], options: argparse.Namespace) -> SoakReport:
    soak = CompileServiceSoak(
        small_vocabulary(), engine=options.engine, time_limit_s=options.time_limit_s
    )
    return await soak.run(texts)


def _told(texts: Iterator[str], num_schemas: int) -> Iterator[str]:
    """The same texts, with a line on stderr every few seconds."""
    printed = time.monotonic()
    for index, text in enumerate(texts):
        if time.monotonic() - printed >= PROGRESS_S:
            printed = time.monotonic()
            sys.stderr.write(f"radixgate: {index} of {num_schemas} schemas\n")
        yield text


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schemas", type=int, default=10_000)
    parser.add_argument("--only", type=int, metavar="NUMBER")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=get_args(EngineChoice), default="auto")
    parser.add_argument("--time-limit-s", type=float, default=2.0)
