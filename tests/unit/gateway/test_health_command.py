"""`radixgate health`: the exit code says whether a server or a runtime can be given work."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from gateway.cli import main
from runtime import wire
from runtime.messages import PROTOCOL_VERSION, EngineStats, Goodbye, Pong, Probe, ToGateway
from tests.unit.runtime.fake_runtime import engine_info

WAIT_MS = 5000
HEALTHY = Pong(PROTOCOL_VERSION, engine_info(), EngineStats())


@contextmanager
def runtime_that_says(reply: ToGateway | bytes | None, address: str) -> Iterator[list[object]]:
    """Answers one message; what it was is in the list afterwards."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(address)
    asked: list[object] = []

    def answer() -> None:
        if router.poll(WAIT_MS):
            identity, frame = router.recv_multipart()
            asked.append(wire.decode_for_runtime(frame))
            if reply is not None:
                told = reply if isinstance(reply, bytes) else wire.encode(reply)
                router.send_multipart([identity, told])

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield asked
    finally:
        thread.join()
        context.destroy(linger=0)


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (HEALTHY, 0, ""),
        (Goodbye("protocol version 3 does not fit"), 1, "refuses: protocol version 3"),
        (b"\xc1", 1, "no runtime of this release"),
        (None, 1, "does not answer"),
    ],
)
def test_a_runtime_is_asked_without_becoming_its_gateway(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    reply: ToGateway | bytes | None,
    code: int,
    said: str,
) -> None:
    address = wire.new_ipc_address(tmp_path)
    timeout_s = "0.2" if reply is None else "5"
    with runtime_that_says(reply, address) as asked:
        assert main(["health", "--runtime", address, "--timeout-s", timeout_s]) == code
    assert asked == [Probe(PROTOCOL_VERSION)]
    assert said in capsys.readouterr().err


@contextmanager
def server_that_says(status: int) -> Iterator[tuple[str, list[str]]]:
    paths: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.send_header("content-length", "4")
            self.end_headers()
            self.wfile.write(b"why\n")

        def log_message(self, *_args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", paths
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_server_is_healthy_once_it_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    with server_that_says(200) as (url, paths):
        assert main(["health", "--url", url + "/llm/"]) == 0
    assert paths == ["/llm/ready"]
    with server_that_says(503) as (url, _):
        assert main(["health", "--url", url]) == 1
    assert "status 503: why" in capsys.readouterr().err
    assert main(["health", "--url", url]) == 1  # nobody listens there any more


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "nonsense"],
        ["--url", "http://127.0.0.1:99999999"],
        ["--url", "http://[::1"],
        ["--runtime", "nonsense"],
        ["--runtime", "tcp://127.0.0.1:99999"],
    ],
)
def test_what_is_no_address_is_told_from_what_is_not_healthy(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["health", *arguments]) == 2
    assert " ".join(arguments) in capsys.readouterr().err


def test_an_interrupt_is_an_exit_code_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gateway.health_command.run_health_command", interrupted)
    assert main(["health"]) == 130


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9"])
def test_a_time_that_no_socket_can_wait_is_refused(seconds: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["health", "--timeout-s", seconds])
