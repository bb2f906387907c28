"""What the native step needs before it can run, done ahead: the library built, the weights packed.

`python -m runtime.native.preparation MODEL` does it and ends; `make setup` calls it, and a runtime
that finds nothing built starts it as a child at idle priority.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from runtime.errors import ConfigError, RuntimePackageError
from runtime.orphans import die_with_parent, is_orphan
from runtime.worker_process import environment


class Preparation:
    """A child that prepares a model. Ends with its parent."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @classmethod
    def start(cls, model: str) -> "Preparation":
        """Raises: OSError if the system cannot start one more process."""
        arguments = ("--parent-pid", str(os.getpid()), "--", model)
        return cls(
            subprocess.Popen(
                (sys.executable, "-P", "-m", "runtime.native.preparation", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment(),
            )
        )

    def outcome(self) -> bool | None:
        """None while it runs, then whether all is there. What went wrong it said on stderr."""
        code = self._process.poll()
        return None if code is None else code == 0


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when all is there, else 1 after one line on stderr; 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m runtime.native.preparation")
    parser.add_argument("model")
    parser.add_argument("--parent-pid", type=int, help="run at idle priority and end with it")
    options = parser.parse_args(arguments)
    if options.parent_pid is not None:
        die_with_parent()
        if is_orphan(options.parent_pid):
            return 1
        _become_idle()
    try:
        prepare(options.model)
    except RuntimePackageError as error:
        sys.stderr.write(f"radixgate: the native step is not available: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130  # as shells say that SIGINT ended a program
    return 0


def prepare(model: str) -> None:
    """Raises: ModelError for the model, BuildError for the library, ConfigError where the packed
    weights cannot be kept: a runtime that packed them itself would not answer meanwhile."""
    # Imported here: torch takes a second, and a missing compiler is known at once.
    from runtime.hardware import detect_hardware
    from runtime.model_source import open_model
    from runtime.native.build import build_library
    from runtime.native.instruction_sets import choose_instruction_set
    from runtime.native.library import load_library
    from runtime.native.packed_weights import load_packed_weights, packed_path

    load_library(build_library(choose_instruction_set(detect_hardware().cpu_flags)))
    source = open_model(model)
    load_packed_weights(source)
    if not packed_path(source).exists():
        raise ConfigError(f"{packed_path(source).parent}: packed weights cannot be written here")


def _become_idle() -> None:
    """Runs only when nothing else wants the processor."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):  # not Linux, or a sandbox that forbids it
        os.nice(19)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
