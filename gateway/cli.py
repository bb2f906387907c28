"""The command `radixgate`: settings, then a subcommand; errors end in one line."""

import argparse
import os
import sys
from collections.abc import Sequence

from gateway.settings import Settings, SettingsError, describe_settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, 1 for what the machine or the model lacks, 2 for bad settings."""
    options = vars(_parser().parse_args(arguments))
    options.pop("command")
    try:
        settings = Settings.load(os.environ, options)
    except SettingsError as error:
        print(f"radixgate: {error}", file=sys.stderr)  # noqa: T201
        return 2
    # Imported here: a bad setting or --help is answered without loading the HTTP stack.
    from gateway.serve import serve

    return serve(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="radixgate",
        description="A drop-in OpenAI-compatible server with a radix prefix cache.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="serve a model",
        description="Serves a model. Each flag is also an environment variable.",
        argument_default=None,
    )
    for info in describe_settings():
        if not info.is_secret:  # secrets come from the environment: flags show up in ps
            unit = f" {info.unit}" if info.unit else ""
            default = f" (default {info.default}{unit})" if info.default else ""
            help_text = f"{info.description}{default} [{info.variable}]".replace("%", "%%")
            serve.add_argument(info.flag, help=help_text, metavar=info.expected.upper()[:12])
    return parser


if __name__ == "__main__":
    sys.exit(main())
