"""`make bench`: the workloads on this server, and on another beside it, as one table.

docs/benchmarks.md says what is measured and how to run a peer.
"""

import asyncio
import json
import sys

import uvloop

from telemetry.answer_stream import StreamError
from tests.bench.command_line import Request, parse
from tests.bench.machine import this_machine
from tests.bench.measure import measure_all
from tests.bench.report import as_json, markdown, row_cells
from tests.bench.results import LoadRow, Results
from tests.bench.servers import ServerError


def run(request: Request) -> int:
    """Measures, prints the table and writes it. Returns 1 where a server could not be measured or
    a request failed."""
    machine, results = this_machine(), Results(_print_row)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(measure_all(request.contenders, request.plan, results))
        except (ServerError, StreamError) as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    described = {contender.name: contender.describe() for contender in request.contenders}
    ours, command = request.contenders[-1].name, request.command
    table = markdown(machine, results, server=ours, command=command, contenders=described)
    print(f"\n{table}")
    if request.out is not None:
        found = as_json(machine, results, server=ours, command=command, contenders=described)
        request.out.write_text(json.dumps(found, indent=1) + "\n")
        request.out.with_suffix(".md").write_text(table)
    failures = [row.first_failure for row in results.medians() if row.first_failure]
    for failure in failures:
        print(f"bench: a request failed: {failure}", file=sys.stderr)
    return int(bool(failures))


def _print_row(row: LoadRow) -> None:
    print("  ".join(row_cells(row)), flush=True)


if __name__ == "__main__":
    sys.exit(run(parse(sys.argv[1:])))
