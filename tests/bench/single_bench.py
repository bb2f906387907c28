"""The frame of a bench that has one question: what is printed around the answer, and the exit code.

Machine, commit and command come first, so that a copied figure says where it is from.
"""

import argparse
import asyncio
import shlex
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from telemetry.answer_stream import StreamError
from tests.bench.machine import this_machine
from tests.bench.servers import ServerError

Measure = Callable[[argparse.Namespace], Coroutine[Any, Any, bool]]


def run_single(name: str, parser: argparse.ArgumentParser, measure: Measure) -> int:
    """Parses the command line and measures. Returns 0 where the target was reached, 1 where it was
    not or could not be measured."""
    options = parser.parse_args()
    print(this_machine().describe())
    print(shlex.join(["python", "-m", f"tests.bench.{name}", *sys.argv[1:]]), flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            is_reached = runner.run(measure(options))
        except (ServerError, StreamError, TimeoutError) as error:
            print(f"{name}: {error or 'it took too long'}", file=sys.stderr)
            return 1
    print("the target is reached" if is_reached else "the target is missed")
    return int(not is_reached)
