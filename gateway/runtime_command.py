"""The command `radixgate runtime`: a runtime without a gateway, for gateways elsewhere.

It becomes the process of runtime.worker, so that signals and exit codes are that one's.
"""

import os
import socket
import sys

from gateway.default_model import FetchError
from gateway.kept_secret import with_kept_secret
from gateway.model_names import ModelNameError, settle_names
from gateway.runtime_settings import find_model, runtime_config
from gateway.settings import Settings, SettingsError
from runtime.errors import RuntimePackageError
from runtime.worker_options import WorkerOptions
from runtime.worker_process import command, environment

EXIT_BAD_SETTINGS = 2


def run_runtime_command(settings: Settings) -> int:
    """Returns only where the runtime cannot be started: 1 for what the machine or the model lacks,
    2 for bad settings."""
    try:
        options = worker_options(settings)
    except SettingsError as error:
        return _complain(error, EXIT_BAD_SETTINGS)
    except (FetchError, ModelNameError, RuntimePackageError) as error:
        return _complain(error, 1)
    sys.stdout.write(f"radixgate: loading {settings.model or 'the default model'}\n")
    sys.stdout.flush()
    program = command(options)
    os.execve(program[0], program, environment(settings.cache_redis_url))


def worker_options(settings: Settings) -> WorkerOptions:
    """What the process is told; the model is fetched if need be.

    Raises: FetchError, ModelError, ModelNameError, SettingsError.
    """
    settings = with_kept_secret(settings)
    path, own_name = find_model(settings)
    names = settle_names(own_name, settings.served_model_name, settings.model_aliases)
    return WorkerOptions(
        address=settings.runtime_listen,
        config=runtime_config(settings, path, model_id=names.id),
        engine_id=socket.gethostname(),
        log_level=settings.log_level,
        log_json=settings.log_json,
    )


def _complain(error: object, code: int) -> int:
    sys.stderr.write(f"radixgate: {error}\n")
    return code
