"""The command `radixgate health`: whether a server or a runtime can be given work: an exit code.

For health checks of containers, in which there is neither curl nor anything like it.
"""

import argparse
import http.client
import sys
from urllib.parse import urlsplit

import zmq

from gateway.runtime_address import check_address
from gateway.terminal_text import harmless
from runtime.messages import PROTOCOL_VERSION, Goodbye, Pong, Probe
from runtime.wire import UndecodableFrame, configure_dealer, decode_for_gateway, encode

EXIT_UNHEALTHY, EXIT_UNUSABLE = 1, 2
_MAX_ANSWER_BYTES = 65536


class Unhealthy(Exception):
    """One line that says why."""


def run_health_command(options: argparse.Namespace) -> int:
    """Returns the exit code; the reason is one line on stderr."""
    try:
        if options.runtime is not None:
            ask_runtime(options.runtime, timeout_s=options.timeout_s)
        else:
            ask_gateway(options.url, timeout_s=options.timeout_s)
    except Unhealthy as error:
        return _complain(str(error), EXIT_UNHEALTHY)
    except ValueError as error:
        return _complain(str(error), EXIT_UNUSABLE)
    return 0


def ask_gateway(url: str, *, timeout_s: float) -> None:
    """Raises: Unhealthy; ValueError for what is no URL of a server."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"--url {url}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"--url {url}: expected a URL such as http://127.0.0.1:8000")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, port, timeout=timeout_s)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/ready")
        reply = connection.getresponse()
        said = reply.read(_MAX_ANSWER_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise Unhealthy(f"{url} does not answer: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if reply.status != 200:
        raise Unhealthy(f"{url} is not ready: status {reply.status}: {' '.join(said.split())}")


def ask_runtime(address: str, *, timeout_s: float) -> None:
    """Its loop answers between two steps, so that one that hangs is unhealthy.

    Raises: Unhealthy; ValueError for what is no address.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        socket = context.socket(zmq.DEALER)
        configure_dealer(socket)
        socket.setsockopt(zmq.IMMEDIATE, 0)  # the question may wait for the connection
        try:
            socket.connect(check_address(address))
        except (ValueError, zmq.ZMQError) as error:
            raise ValueError(f"--runtime {address}: {error}") from None
        socket.send(encode(Probe(PROTOCOL_VERSION)))
        if not socket.poll(int(timeout_s * 1000)):
            raise Unhealthy(f"the runtime at {address} does not answer; it may still be loading")
        _check_reply(b"".join(socket.recv_multipart()), address)
    finally:
        context.destroy(linger=0)


def _check_reply(frame: bytes, address: str) -> None:
    try:
        reply = decode_for_gateway(frame)
    except UndecodableFrame:
        raise Unhealthy(f"what answers at {address} is no runtime of this release") from None
    if isinstance(reply, Goodbye):
        raise Unhealthy(f"the runtime at {address} refuses: {reply.reason}")
    if not isinstance(reply, Pong):
        raise Unhealthy(f"what answers at {address} is no runtime of this release")


def _complain(line: str, code: int) -> int:
    sys.stderr.write(f"radixgate: {harmless(line, is_plain=False)}\n")
    return code
