"""A child process ends with its parent, however that one ends."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Has the kernel kill this process when its parent is gone, even by kill -9 and even if this
    process hangs in native code. Elsewhere than on Linux the loop's look at the parent's id,
    several times a second, does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def is_orphan(parent_pid: int | None) -> bool:
    """Whether the parent that this process was told of is gone."""
    return parent_pid is not None and os.getppid() != parent_pid
