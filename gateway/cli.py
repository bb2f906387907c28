"""The command `radixgate` and its subcommands; errors end in one line."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from gateway.bench_command import add_flags as add_bench_flags
from gateway.plan_flags import add_flags as add_plan_flags
from gateway.settings import SettingInfo, Settings, SettingsError, describe_settings
from grammar.spec import EngineChoice
from telemetry.errors import SetupError
from telemetry.settings import accepts_incoming_context

# What sockets and timers take everywhere.
_LONGEST_WAIT_S = 86400.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, 1 for what the machine or the model lacks, 2 for bad settings,
    130 for an interrupt wherever a command has no answer of its own to it."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # while its modules are loaded, for one
        return 128 + signal.SIGINT


def _run(arguments: Sequence[str] | None) -> int:
    parsed = _parser().parse_args(arguments)
    if parsed.command == "grammar":
        # Imported here: neither stack is loaded for the other's command.
        from gateway.grammar_commands import run_grammar_command

        return run_grammar_command(parsed)
    if parsed.command == "bench":
        from gateway.bench_command import run_bench_command

        return run_bench_command(parsed, sys.argv[1:] if arguments is None else arguments)
    if parsed.command == "plan":
        from gateway.plan_command import run_plan_command

        return run_plan_command(parsed)
    if parsed.command == "cache":
        from gateway.cache_commands import run_cache_command

        return run_cache_command(parsed)
    if parsed.command == "key":
        from gateway.key_commands import run_key_command

        return run_key_command(parsed)
    if parsed.command == "health":
        from gateway.health_command import run_health_command

        return run_health_command(parsed)
    options = vars(parsed)
    command = options.pop("command")
    try:
        settings = Settings.load(os.environ, options)
    except SettingsError as error:
        print(f"radixgate: {error}", file=sys.stderr)  # noqa: T201
        return 2
    # Imported here: a bad setting or --help is answered without loading the HTTP stack.
    if command == "runtime":
        from gateway.runtime_command import run_runtime_command

        return run_runtime_command(settings)
    try:
        # The web framework stops at a propagator that it does not know, as soon as it is loaded.
        accepts_incoming_context(os.environ)
    except SetupError as error:
        print(f"radixgate: {error}", file=sys.stderr)  # noqa: T201
        return 1
    from gateway.serve import serve

    return serve(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="radixgate",
        description="A drop-in OpenAI-compatible server with a radix prefix cache.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_with_settings(commands, "serve", "serve a model", "Serves a model.")
    _add_with_settings(
        commands,
        "runtime",
        "run a model for servers elsewhere, which have its address as --runtime-url",
        "Runs a model without HTTP, for servers elsewhere. Whoever reaches its address may use it.",
    )
    grammar = commands.add_parser("grammar", help="what is enforced of a schema, and how fast")
    grammar_commands = grammar.add_subparsers(
        dest="grammar_command", required=True, metavar="COMMAND"
    )
    _add_bench(grammar_commands)
    _add_explain(grammar_commands)
    add_bench_flags(commands)
    add_plan_flags(commands)
    _add_cache(commands)
    _add_health(commands)
    key = commands.add_parser("key", help="keys for the key file")
    key_commands = key.add_subparsers(dest="key_command", required=True, metavar="COMMAND")
    key_commands.add_parser("new", help="a fresh random key, and its hash for the key file")
    key_commands.add_parser("hash", help="the hash of a key that is read from standard input")
    return parser


def _add_with_settings(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    help_text: str,
    description: str,
) -> None:
    """A command that reads the settings; secrets come from the environment: flags show up in ps."""
    parser = commands.add_parser(
        name,
        help=help_text,
        description=f"{description} Each flag is also an environment variable.",
        argument_default=None,
    )
    for info in describe_settings():
        if info.is_secret:
            continue
        unit = f" {info.unit}" if info.unit else ""
        default = f" (default {info.default}{unit})" if info.default else ""
        parser.add_argument(
            info.flag,
            help=f"{info.description}{default} [{info.variable}]".replace("%", "%%"),
            metavar=_metavar(info),
            # Lists may also be given piece by piece.
            action="append" if info.is_list else "store",
        )


def _metavar(info: SettingInfo) -> str:
    """What stands for a value in --help."""
    kinds = {"an integer": "N", "a number": "X", "true or false": "{true,false}", "text": "TEXT"}
    if info.is_list:
        return "LIST"
    choices = info.expected.removeprefix("one of ").replace(", ", ",")
    return kinds.get(info.expected, f"{{{choices}}}")


def _add_health(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    health = commands.add_parser(
        "health",
        help="whether a server or a runtime can be given work",
        description="Asks GET /ready of a server, or a runtime by its address. Exit code 0: it can "
        "be given work, 1: it cannot or does not answer, 2: what was given cannot be used.",
    )
    target = health.add_mutually_exclusive_group()
    target.add_argument(
        "--url",
        default="http://127.0.0.1:8000",
        help="of the server, without /v1 (default %(default)s)",
    )
    target.add_argument(
        "--runtime",
        metavar="ADDRESS",
        help="of a runtime, such as tcp://127.0.0.1:5700",
    )
    health.add_argument(
        "--timeout-s", type=_seconds, default=5.0, metavar="SECONDS", help="default %(default)s"
    )


def _add_cache(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    cache = commands.add_parser(
        "cache",
        help="what the prefix cache of a running server holds",
        description="Prints sizes, hit rates, the hottest prefixes and the tree. Exit code 0: the "
        "server answered, 1: it did not or refuses, 2: what was given cannot be used.",
    )
    _add_server_flags(cache)
    kinds = cache.add_subparsers(dest="cache_command", metavar="COMMAND")
    show = kinds.add_parser("show", help="the same")
    show.add_argument("--max-nodes", type=_count, metavar="N", help="largest tree to show")
    explain = kinds.add_parser("explain", help="why a request's prompt is not cached")
    explain.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help="the request's body; - = standard input",
    )
    flush = kinds.add_parser("flush", help="forget every cached prefix")
    flush.add_argument("--yes", action="store_true", help="do it")
    for parser in (show, explain, flush):
        _add_server_flags(parser, is_again=True)


def _add_server_flags(parser: argparse.ArgumentParser, *, is_again: bool = False) -> None:
    """`is_again`: the command before has them too, and its values stay if none are given here."""

    def default(value: object) -> Any:
        return argparse.SUPPRESS if is_again else value

    parser.add_argument(
        "--url",
        default=default("http://127.0.0.1:8000"),
        help="of the server (http://127.0.0.1:8000)",
    )
    parser.add_argument(
        "--key-env",
        metavar="NAME",
        default=default(None),
        help="environment variable with the API key (RADIXGATE_KEY); flags show up in ps",
    )
    parser.add_argument(
        "--json", action="store_true", default=default(False), help="the answer as it came"
    )


def _add_bench(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    bench = commands.add_parser(
        "bench",
        help="measure soundness, coverage and speed on a file of schemas",
        description="Runs each schema and its instances through an engine. The file has one JSON "
        "object a line: id, schema, tests [{valid, data}]; gzip is fine. The last line of the "
        "output is one JSON object. Exit code 0: it ran, 2: the file does not fit.",
    )
    bench.add_argument("file", type=Path, metavar="FILE")
    _add_shared_flags(bench)
    bench.add_argument(
        "--timeout-s",
        type=_seconds,
        default=2.0,
        metavar="SECONDS",
        help="processor time in which a schema must compile (default 2)",
    )
    bench.add_argument(
        "--jobs",
        type=_count,
        default=1,
        metavar="N",
        help="schemas tried side by side (default 1; more disturb the times)",
    )
    bench.add_argument("--limit", type=_count, metavar="N", help="only the first N schemas")
    bench.add_argument("--json-out", type=Path, metavar="FILE", help="every schema's result")


def _add_explain(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    explain = commands.add_parser(
        "explain",
        help="say of each keyword of a schema whether it is enforced",
        description="Exit code 0: the schema is enforced, 3: enforced in part and the rest "
        "checked, 4: refused, 2: the file cannot be read.",
    )
    explain.add_argument("file", type=Path, metavar="SCHEMA.json")
    _add_shared_flags(explain)
    explain.add_argument("--json", action="store_true", help="the same as one JSON object")


def _add_shared_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="the model whose tokenizer is used (default: the one that would be served)",
    )
    parser.add_argument("--engine", choices=get_args(EngineChoice), default="auto")
    parser.add_argument(
        "--allow-checked",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="take schemas that masks enforce in part (default: yes)",
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST_WAIT_S:
        raise argparse.ArgumentTypeError(f"{text!r}: a number above 0, within a day, was expected")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least 1 was expected")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
