"""The commands `radixgate grammar bench` and `radixgate grammar explain`, without the HTTP stack.

They read the tokenizer of the model that `serve` would serve; what they find goes to stdout.
"""

import argparse
import json
import os
import sys
import time
from typing import Any

from gateway.default_model import FetchError, default_model_path, ensure_default_model
from gateway.settings import Settings, SettingsError
from grammar.bench import BenchOptions, CaseResult, run_bench
from grammar.bench_file import BenchFileError, read_cases
from grammar.bench_report import BenchReport
from grammar.errors import GrammarError
from grammar.explain import Explanation, explain, explanation_table
from grammar.matcher import Vocabulary
from runtime.errors import RuntimePackageError
from runtime.model_source import locate_model, open_model

EXIT_FAILED, EXIT_UNREADABLE = 1, 2
EXIT_OF = {"enforced": 0, "checked": 3, "refused": 4}
PROGRESS_S = 5.0


def run_grammar_command(options: argparse.Namespace) -> int:
    """Returns the exit code; errors end in one line on stderr."""
    command = _bench if options.grammar_command == "bench" else _explain
    try:
        return command(options)
    except (BenchFileError, SettingsError) as error:
        return _complain(error, EXIT_UNREADABLE)
    except (RuntimePackageError, FetchError, GrammarError, OSError) as error:
        return _complain(error, EXIT_FAILED)


def _bench(options: argparse.Namespace) -> int:
    cases = read_cases(options.file, limit=options.limit)
    vocabulary = load_vocabulary(options.model)
    if options.json_out is not None:
        options.json_out.touch()  # a bad path is told before the work, not after it
    progress = _Progress(len(cases))
    results = run_bench(
        cases,
        vocabulary,
        BenchOptions(
            options.engine, options.allow_checked, options.timeout_s, num_children=options.jobs
        ),
        on_result=progress.add,
    )
    report = BenchReport(results)
    if options.json_out is not None:
        details = json.dumps(report.details(), ensure_ascii=False, indent=1)
        options.json_out.write_text(details, encoding="utf-8")
    _print(report.table())
    _print("")
    _print(json.dumps(report.summary(), ensure_ascii=False))
    return 0


def _explain(options: argparse.Namespace) -> int:
    try:
        schema = options.file.read_bytes().decode()
    except OSError as error:
        return _complain(f"{options.file}: {error.strerror or error}", EXIT_UNREADABLE)
    except UnicodeDecodeError:
        return _complain(f"{options.file}: it is not UTF-8", EXIT_UNREADABLE)
    bench_options = BenchOptions(options.engine, options.allow_checked)
    explanation = explain(schema, load_vocabulary(options.model), bench_options)
    _print(_as_json(explanation) if options.json else explanation_table(explanation))
    return EXIT_OF[explanation.treatment]


def load_vocabulary(model: str | None) -> Vocabulary:
    """The vocabulary of a model given as for `serve`; None = the one that the settings name.

    Raises: SettingsError, RuntimePackageError, FetchError.
    """
    settings = Settings.load(os.environ, {"model": model})
    if settings.model is None:
        path = default_model_path(settings.model_dir)
        ensure_default_model(path)
    else:
        path = locate_model(settings.model)
    text = open_model(path).text
    return Vocabulary(text.tokenizer_json, text.vocab_size, text.eos_token_ids)


class _Progress:
    """A line on stderr every few seconds."""

    def __init__(self, num_cases: int) -> None:
        self._num_cases = num_cases
        self._counts: dict[str, int] = {}
        self._wrong = 0
        self._started = self._printed = time.monotonic()

    def add(self, result: CaseResult) -> None:
        self._counts[result.ending] = self._counts.get(result.ending, 0) + 1
        self._wrong += bool(result.false_accepts or result.false_rejects)
        now = time.monotonic()
        if now - self._printed >= PROGRESS_S:
            self._printed = now
            counts = ", ".join(f"{count} {name}" for name, count in sorted(self._counts.items()))
            done = sum(self._counts.values())
            sys.stderr.write(
                f"radixgate: {done} of {self._num_cases} schemas in {now - self._started:.0f} s: "
                f"{counts}, {self._wrong} wrong\n"
            )


def _as_json(explanation: Explanation) -> str:
    value: dict[str, Any] = {
        "class": explanation.treatment,
        "engine": explanation.engine,
        "keywords": [
            {
                "pointer": note.pointer,
                "keyword": note.keyword,
                "treatment": note.treatment,
                "reason": note.reason,
            }
            for note in explanation.notes
        ],
    }
    return json.dumps(value, ensure_ascii=False, indent=2)


def _complain(error: object, code: int) -> int:
    sys.stderr.write(f"radixgate: {error}\n")
    return code


def _print(text: str) -> None:
    """Also where stdout cannot spell every character of a schema."""
    sys.stdout.flush()
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
