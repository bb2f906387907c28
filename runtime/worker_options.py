"""What a supervisor and a runtime process agree on: the process's one argument, its exit codes."""

import signal

import msgspec

from runtime.config import RuntimeConfig

EXIT_BAD_ARGUMENT = 2
EXIT_LOAD_FAILED = 3

# Ends a supervisor's child: not SIGTERM, which may reach the whole process group while the gateway
# still drains.
SUPERVISOR_SIGNAL = signal.SIGUSR1


class WorkerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`address` is ipc:// or tcp://; anyone who can reach it may use the runtime.

    `parent_pid` is set by a supervisor: the process then ends when that one does. It also names
    the `failure_path`: a load that fails leaves its reason there, in one line, before the exit.
    Logs go to stderr in the gateway's format.
    """

    address: str
    config: RuntimeConfig
    engine_id: str = "runtime"
    parent_pid: int | None = None
    failure_path: str | None = None
    log_level: str = "info"
    log_json: bool = False
