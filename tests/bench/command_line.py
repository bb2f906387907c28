"""The flags of `make bench`, and what they ask for."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.measure import Plan
from tests.bench.servers import Contender, product, without_folders
from tests.bench.workloads import WORKLOADS, Workload


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be measured; the last contender is the product. `command` is how to repeat it,
    without what is only this machine's."""

    contenders: tuple[Contender, ...]
    plan: Plan
    command: str
    out: Path | None


def parse(arguments: Sequence[str]) -> Request:
    """Raises: SystemExit, after a line that says why."""
    options = _parser().parse_args(arguments)
    return Request(
        contenders=(*_peers(options), product()),
        plan=_plan(options),
        command=shlex.join(["make", "bench", f"ARGS={_shown(arguments)}"]),
        out=options.out,
    )


def _plan(options: argparse.Namespace) -> Plan:
    workloads: tuple[Workload, ...] = tuple(options.workload or WORKLOADS)
    if options.quick:
        return Plan(
            workloads,
            clients=tuple(options.clients or (1, 4)),
            min_requests=2,
            requests_each=1,
            num_pairs=1,
            rounds=1,
            seed=options.seed,
        )
    return Plan(
        workloads,
        clients=tuple(options.clients or (1, 16)),
        min_requests=8,
        requests_each=2,
        num_pairs=5,
        rounds=options.rounds,
        seed=options.seed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a minute: few requests, 1 and 4 clients, one round")
    add("--rounds", type=int, default=2, help="the servers take turns so often (default 2)")
    add("--clients", type=int, action="append", help="only this number of clients (repeatable)")
    add("--workload", choices=WORKLOADS, action="append", help="only this one (repeatable)")
    add("--seed", type=int, default=1)
    add("--out", type=Path, metavar="FILE.json", help="writes FILE.json and FILE.md")
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--against", metavar="URL", help="a server that runs, such as http://h:1/v1")
    peer.add_argument(
        "--against-command",
        metavar="COMMAND",
        help="starts a peer in each round and ends it before this server's turn; {port} in it is"
        " replaced",
    )
    add("--against-name", default="peer", help="what the table calls it (default peer)")
    add("--against-model", help="its model id (default the first that it lists)")
    return parser


def _peers(options: argparse.Namespace) -> list[Contender]:
    target = options.against or options.against_command
    if target is None:
        return []
    return [Contender(options.against_name, target, model=options.against_model)]


def _shown(arguments: Sequence[str]) -> str:
    """Without folders, and without the command of a peer, which is listed by itself."""
    shown, is_peer = [], False
    for argument in arguments:
        if argument.startswith("--against-command="):
            shown.append("--against-command=...")
        else:
            shown.append("..." if is_peer else without_folders(argument))
        is_peer = argument == "--against-command"
    return shlex.join(shown)
