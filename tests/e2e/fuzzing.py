"""Runs schemathesis against a server: requests made up from the server's own OpenAPI document.

It lives in an environment of its own, as the clients do, and is taught by its hooks.py.
"""

import os
import subprocess
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from tests.conformance.target import Target
from tests.e2e.clients.client import FUZZER
from tests.e2e.clients.environments import environment

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "error_shape",
    "stream_ends",
)
# Beyond what it was told: it ends the request that it is in, and says what it found.
GRACE_S = 120.0


@dataclass(frozen=True, slots=True)
class Fuzzing:
    """How much is tried. `seed` None: another one each time, which the output names."""

    phases: tuple[str, ...]
    max_examples: int
    max_time_s: int
    seed: int | None = None


def fuzz(target: Target, fuzzing: Fuzzing, *, vocab_size: int) -> str:
    """What it says at the end. Raises: BuildError; AssertionError with what it found."""
    folder = environment(FUZZER)
    with TemporaryDirectory(prefix="radixgate-fuzz-") as home:
        done = subprocess.run(
            [str(folder / "bin/st"), *_arguments(target, fuzzing)],
            cwd=home,
            env={
                **{name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ},
                "HOME": home,
                "LANG": "C.UTF-8",
                "SCHEMATHESIS_HOOKS": str(FUZZER.folder / "hooks.py"),
                "FUZZ_MODEL": target.model,
                "FUZZ_VOCAB_SIZE": str(vocab_size),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=fuzzing.max_time_s + GRACE_S,
        )
    assert done.returncode == 0, f"{done.stdout[-12_000:]}\n{done.stderr[-2_000:]}"
    return done.stdout


def _arguments(target: Target, fuzzing: Fuzzing) -> list[str]:
    fresh = ["--generation-database=none"]
    known = [f"--seed={fuzzing.seed}", "--generation-deterministic"]
    return [
        "run",
        f"{target.base_url}/openapi.json",
        f"--checks={','.join(CHECKS)}",
        f"--phases={','.join(fuzzing.phases)}",
        f"--max-examples={fuzzing.max_examples}",
        f"--max-time={fuzzing.max_time_s}",
        "--continue-on-failure",
        "--warnings=off",
        "--no-color",
        *(fresh if fuzzing.seed is None else known),
    ]
