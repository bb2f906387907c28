"""Builds the native step for every instruction set of this kind of processor, into a folder.

`python deploy/build_libraries.py FOLDER` is a step of the Dockerfile: an image is built on one
processor and runs on others, and has no compiler.
"""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from runtime.native.build import BuildError, build_library
from runtime.native.instruction_sets import INSTRUCTION_SETS, InstructionSet


def buildable(machine: str) -> list[InstructionSet]:
    """Those whose compiler flags exist for the kind of processor; "plain" is for all."""
    return [one for one in INSTRUCTION_SETS if machine == "x86_64" or not one.compiler_flags]


def build_all(folder: Path) -> list[Path]:
    """Raises: BuildError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # where build_library puts what it has built
        built = [build_library(one) for one in buildable(platform.machine())]
        return [Path(shutil.copy(library, folder / library.name)) for library in built]


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 once all are there, 1 where one cannot be built, 2 for a wrong call."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python deploy/build_libraries.py FOLDER\n")
        return 2
    try:
        built = build_all(Path(arguments[0]))
    except (BuildError, OSError) as error:
        sys.stderr.write(f"radixgate: {error}\n")
        return 1
    sys.stdout.write("".join(f"radixgate: built {library.name}\n" for library in built))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
