"""`python -m tests.soak [schemas | cache]`: long runs, each of which ends in one JSON object.

Without a word both are run. Exit code 0 when nothing went wrong.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.soak import cache_command, schemas_command


def main(arguments: Sequence[str]) -> int:
    """Runs what the arguments ask for; returns the exit code."""
    if not arguments:
        return max(main([name]) for name in ("schemas", "cache"))
    options = _parser().parse_args(arguments)
    if options.command == "schemas":
        return schemas_command.run_schemas(options)
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
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
