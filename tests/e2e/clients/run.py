"""Runs a client's check against a server and reads what it prints."""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.target import Target
from tests.e2e.clients.client import FEATURES, HERE, Client, Platform
from tests.e2e.clients.environments import environment, python_of

# The slowest takes a minute on two idle cores.
RUN_S = 400.0
# Nothing listens there: a client that asks anybody but the server fails at once.
NOWHERE = "http://127.0.0.1:9"
KEPT_VARIABLES = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE")


@dataclass(frozen=True, slots=True)
class Report:
    """`packages` are names and versions; `failures` are the features that failed, with why."""

    client: Client
    packages: dict[str, str]
    features: tuple[str, ...]
    failures: dict[str, str]


def run_client(client: Client, target: Target) -> Report:
    """Raises: BuildError; RuntimeError where the check ends without a verdict on each feature."""
    return report_of(client, run_script(client, client.platform.check, target))


def run_script(client: Client, script: str, target: Target) -> str:
    """What a script of the client's folder prints.

    Raises: BuildError; RuntimeError for one that fails or hangs.
    """
    folder = environment(client)
    with tempfile.TemporaryDirectory(prefix="radixgate-client-") as home:
        try:
            done = subprocess.run(
                _command(client, folder, script),
                cwd=home,
                env=_variables(target, Path(home)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=RUN_S,
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{client.name} hangs after {error.stdout!r}") from None
    if done.returncode != 0:
        raise RuntimeError(f"{client.name} ends with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def _command(client: Client, folder: Path, script: str) -> list[str]:
    if client.platform is Platform.NODE:
        return ["node", str(folder / script)]
    return [str(python_of(folder)), str(client.folder / script)]


def _variables(target: Target, home: Path) -> dict[str, str]:
    """Nothing of the user's: no keys, no settings, no caches, no other host."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(HERE / "kit"),
        "BASE_URL": target.base_url + "/v1",
        "MODEL": target.model,
        "API_KEY": target.api_key,
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
        "HF_HUB_OFFLINE": "1",
    }


def report_of(client: Client, output: str) -> Report:
    """What a check printed. Raises: RuntimeError for features that nobody knows, or twice."""
    first, *lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    verdicts = {line["feature"]: line for line in lines}
    unknown = verdicts.keys() - FEATURES.keys()
    if unknown or len(verdicts) != len(lines):
        raise RuntimeError(f"{client.name} names features that are not in FEATURES, or twice")
    return Report(
        client,
        packages=first["packages"],
        features=tuple(name for name in FEATURES if name in verdicts),
        failures={name: line["detail"] for name, line in verdicts.items() if not line["ok"]},
    )
