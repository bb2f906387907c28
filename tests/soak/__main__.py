"""`python -m tests.soak [schemas | cache | kills]`: long runs, each of which ends in JSON objects.

Without a word all are run. Exit code 0 when nothing went wrong.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.soak import cache_command, kills_command, schemas_command


def main(arguments: Sequence[str]) -> int:
    """Runs what the arguments ask for; returns the exit code."""
    if not arguments:
        return max(main([name]) for name in ("schemas", "cache", "kills"))
    options = _parser().parse_args(arguments)
    if options.command == "schemas":
        return schemas_command.run_schemas(options)
    if options.command == "kills":
        return kills_command.run_kills(options)
    return cache_command.run_cache(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    schemas_command.add_flags(
        commands.add_parser("schemas", help="damaged schemas through the compile service")
    )
    cache_command.add_flags(
        commands.add_parser("cache", help="random conversations through one engine's prefix cache")
    )
    kills_command.add_flags(
        commands.add_parser("kills", help="killed writers of one cache folder, and a reader")
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
