"""The gateway on one core, over a runtime that is there: `python -m tests.bench.pinned_gateway`.

As `radixgate serve` runs it, but for the runtime, which it neither starts nor ends.
"""

import argparse
import logging
import os
import sys

from gateway.serve import GatewayServer, assemble, bind
from gateway.settings import Settings
from runtime.remote_engine import RemoteEngine
from telemetry.logs import configure_logging
from tests.model_file import default_model_path


def main() -> int:
    """Serves until a signal ends it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="of the runtime")
    parser.add_argument("port", type=int)
    parser.add_argument("--core", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    options = parser.parse_args()
    # Before any thread is made: each takes over what the one that makes it may run on.
    os.sched_setaffinity(0, {options.core})
    settings = Settings(
        port=options.port, model=str(default_model_path()), max_running=options.streams
    )
    configure_logging(settings.log_level, json_lines=False)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    with bind(settings.host, settings.port) as listener:
        assembly = assemble(settings, engine=RemoteEngine(options.address))
        server = GatewayServer(assembly, f"http://{settings.host}:{settings.port}")
        server.run(sockets=[listener])
        return server.exit_code


if __name__ == "__main__":
    sys.exit(main())
