"""The native step built for the tests, for any instruction set that this machine can run."""

import functools
from pathlib import Path
from typing import Any

from runtime.cache_folder import cache_folder
from runtime.hardware import detect_hardware
from runtime.native.build import build_library, find_compiler
from runtime.native.instruction_sets import INSTRUCTION_SETS, InstructionSet
from runtime.native.library import load_library

HAS_COMPILER = find_compiler() is not None
NO_COMPILER = "there is no C++ compiler here"
_BUILT = cache_folder() / "native"


def runnable_sets() -> list[InstructionSet]:
    """The best first."""
    flags = detect_hardware().cpu_flags
    return [one for one in INSTRUCTION_SETS if one.cpu_flags <= flags]


@functools.cache
def built_library(instruction_set: InstructionSet) -> Any:
    """Built once a machine: the file stays in the user's cache."""
    return load_library(build_library(instruction_set))


def make_cache(cache_home: Path) -> Path:
    """An empty cache for XDG_CACHE_HOME, but for the libraries that were built before."""
    _BUILT.mkdir(parents=True, exist_ok=True)
    (cache_home / "radixgate").mkdir(parents=True)
    (cache_home / "radixgate" / "native").symlink_to(_BUILT)
    return cache_home
