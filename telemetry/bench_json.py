"""A bench run as a JSON file and back, the same to the last bit; docs/bench.md describes the form.

The file also holds the figures, for those who do not want to compute them. They are not read back:
whoever renders a file computes them anew from its requests. No I/O here.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import msgspec

from telemetry.bench_figures import SeriesFigures, compare, figures_of
from telemetry.bench_run import BenchRun

FORM = "radixgate.bench"
VERSION = 1
# No run lasts longer, and no count is larger: arithmetic on what is within them cannot overflow.
_MAX_S = 1e9
_MAX_COUNT = 1 << 53
_SAID_S = ("ttft_s", "tpot_s")
_COUNTS = (
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "cacheable_tokens",
    "reasoning_tokens",
)


class BenchFileError(Exception):
    """The bytes are no run that can be rendered; the message is one line that says why."""


class _Head(msgspec.Struct):
    form: str
    version: int


class _Document(msgspec.Struct):
    run: BenchRun


def encode_run(run: BenchRun) -> bytes:
    """UTF-8 text of one line."""
    document = {
        "form": FORM,
        "version": VERSION,
        "run": run,
        "figures": [
            {
                "label": one.label,
                "level": one.level.text,
                **_figures_json(figures_of(one, slo=run.slo, price_per_hour=run.price_per_hour)),
            }
            for one in run.series
        ],
        "ratios": [
            {"label": one.label, "to": one.baseline, "level": one.level.text, **one.ratios}
            for one in compare(run)
        ],
    }
    try:
        return msgspec.json.encode(document) + b"\n"
    except UnicodeEncodeError:  # an argument or answer that was no UTF-8, of which there is no JSON
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(document))) + b"\n"


def decode_run(content: bytes) -> BenchRun:
    """Raises: BenchFileError."""
    try:
        head = msgspec.json.decode(content, type=_Head)
        if (head.form, head.version) != (FORM, VERSION):
            raise BenchFileError(
                f"expected the form {FORM!r} in version {VERSION}, found {head.form[:40]!r} in "
                f"version {head.version}"
            )
        run = msgspec.json.decode(content, type=_Document).run
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BenchFileError(f"not what `radixgate bench --json-out` writes: {error}") from None
    for wrong in _impossible(run):
        raise BenchFileError(f"a number that no run has: {wrong}")
    return run


def _figures_json(figures: SeriesFigures) -> dict[str, Any]:
    return {**asdict(figures), "num_failed": figures.num_failed}


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {name: _without_surrogates(one) for name, one in value.items()}
    return list(map(_without_surrogates, value)) if isinstance(value, list | tuple) else value


def _impossible(run: BenchRun) -> Iterator[str]:
    """Names of numbers that figures cannot be computed from."""
    if run.price_per_hour is not None and not 0 <= run.price_per_hour < _MAX_S:
        yield "price_per_hour"
    for series in run.series:
        for one in series.rounds:
            if not (0 <= one.wall_s < _MAX_S and 0 <= one.client_cpu_s < _MAX_S):
                yield "wall_s or client_cpu_s"
            for record in one.records:
                times = (record.scheduled_s, record.start_s, record.end_s)
                said = [getattr(record, name) or 0.0 for name in _SAID_S]
                counts = [getattr(record, name) or 0 for name in _COUNTS]
                if not all(abs(value) < _MAX_S for value in times):
                    yield "a request's time"
                if not all(0 <= value < _MAX_S for value in (*said, *record.itl_s)):
                    yield "ttft_s, tpot_s or itl_s"
                if not all(0 <= value <= _MAX_COUNT for value in counts):
                    yield "a count of tokens"
