"""Real runtime processes with a tiny model: death, hangs, silent gateways, orphans."""

import asyncio
import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import zmq

from runtime import wire, worker_process
from runtime.cache_messages import (
    CacheDescription,
    CacheExplanation,
    CacheFlushed,
    DescribeCache,
    ExplainCache,
    FlushCache,
)
from runtime.config import RuntimeConfig
from runtime.messages import (
    PROTOCOL_VERSION,
    ErrorCode,
    Ping,
    Sampling,
    Submit,
    TokenEvent,
)
from runtime.remote_engine import RemoteEngine
from runtime.supervisor import EngineSupervisor, SupervisorPolicy
from runtime.token_engine import EngineState, EngineUnavailable
from runtime.worker_options import EXIT_BAD_ARGUMENT, EXIT_LOAD_FAILED, WorkerOptions
from tests.tiny_model import write_tiny_model
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_S = 15.0
# Long enough that no request ends by itself while a test looks at it.
MAX_POSITION = 32768
ENDLESS = Sampling(max_tokens=30_000, temperature=0.0, ignore_eos=True)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RuntimeConfig:
    folder = write_tiny_model(tmp_path_factory.mktemp("tiny"), max_position=MAX_POSITION)
    return RuntimeConfig(
        model=str(folder),
        dtype="float32",
        device="cpu",
        kv_memory_bytes=64 * 1024 * 1024,
        num_threads=1,
        gateway_timeout_s=1.0,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def supervisor(config: RuntimeConfig) -> AsyncIterator[EngineSupervisor]:
    policy = SupervisorPolicy(heartbeat_s=0.2, hang_timeout_s=3.0)
    supervisor = EngineSupervisor(config, policy=policy)
    await supervisor.start()
    await supervisor.wait_ready(START_S)
    yield supervisor
    await supervisor.stop()
    assert supervisor.child_pid is None


@contextlib.asynccontextmanager
async def standalone_worker(
    config: RuntimeConfig, address: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await worker_process.launch(WorkerOptions(address, config))
    try:
        yield process
    finally:
        if process.returncode is None:
            await worker_process.kill(process)


@contextlib.asynccontextmanager
async def connected(address: str, *, heartbeat_s: float = 0.1) -> AsyncIterator[RemoteEngine]:
    engine = RemoteEngine(address, heartbeat_s=heartbeat_s)
    await engine.start()
    try:
        await engine.wait_ready(START_S)
        yield engine
    finally:
        await engine.stop()


@contextlib.contextmanager
def submitted_without_a_reader(address: str) -> Iterator[None]:
    """A gateway that is gone without a word when the context ends."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(address)
        dealer.send(wire.encode(Ping(PROTOCOL_VERSION, "vanishing")))
        dealer.send(wire.encode(request("vanishing")))
        yield
        dealer.close(linger=0)


def request(name: str, sampling: Sampling = ENDLESS) -> Submit:
    prompt = [3 + (position * 7 + len(name)) % 500 for position in range(40)]
    return Submit(name, prompt, sampling)


async def last_event(stream: AsyncIterator[TokenEvent]) -> TokenEvent:
    return [event async for event in stream][-1]


async def test_tokens_cross_the_wire_and_the_second_request_finds_the_first_ones_prefix(
    supervisor: EngineSupervisor,
) -> None:
    sampling = Sampling(max_tokens=12, temperature=0.0, ignore_eos=True)
    answers: list[list[int]] = []
    for name in ("x", "y"):
        events = [event async for event in supervisor.submit(request(name, sampling))]
        answers.append([token for event in events for token in event.token_ids])
        usage = events[-1].usage
    assert answers[0] == answers[1]
    assert len(answers[0]) == 12
    assert usage is not None
    assert usage.cached_tokens == 39


async def test_the_runtime_explains_describes_and_flushes_what_it_has_cached(
    supervisor: EngineSupervisor,
) -> None:
    sampling = Sampling(max_tokens=1, temperature=0.0, ignore_eos=True)
    await last_event(supervisor.submit(request("told", sampling)))
    prompt = request("told").prompt_token_ids
    told = await supervisor.ask(ExplainCache("q", [*prompt, 7, 7], b"", owner=""))
    assert told == CacheExplanation("q", 42, 40, reason="grows")
    described = await supervisor.ask(DescribeCache("q", owner=""))
    assert isinstance(described, CacheDescription)
    assert prompt[:16] in [edge.token_ids for edge in described.edges]
    flushed = await supervisor.ask(FlushCache("q"))
    assert isinstance(flushed, CacheFlushed)
    assert flushed.num_pages >= 3
    told = await supervisor.ask(ExplainCache("q", prompt, b"", owner=""))
    assert isinstance(told, CacheExplanation)
    assert (told.matched_tokens, told.evicted_for) == (0, "flush")


async def test_a_stream_left_early_frees_its_pages_in_the_runtime(
    supervisor: EngineSupervisor,
) -> None:
    async for event in supervisor.submit(request("left-early")):
        if event.token_ids:
            break
    await until(lambda: supervisor.stats.pages_held > 0)
    await until(lambda: supervisor.stats.num_running == 0 and supervisor.stats.pages_held == 0)


async def test_a_signal_to_the_whole_group_leaves_a_child_to_its_draining_gateway(
    supervisor: EngineSupervisor,
) -> None:
    stream = supervisor.submit(request("draining", Sampling(max_tokens=300, ignore_eos=True)))
    await anext(stream)
    assert supervisor.child_pid is not None
    os.kill(supervisor.child_pid, signal.SIGTERM)
    os.kill(supervisor.child_pid, signal.SIGINT)
    event = await last_event(stream)
    assert event.finish_reason == "length"
    assert supervisor.num_restarts == 0


async def test_kill_9_gives_each_of_8_requests_an_error_within_2_s_and_heals(
    supervisor: EngineSupervisor,
) -> None:
    streams = [supervisor.submit(request(f"killed-{number}")) for number in range(8)]
    for stream in streams:
        await anext(stream)
    killed_pid = supervisor.child_pid
    assert killed_pid is not None
    os.kill(killed_pid, signal.SIGKILL)
    async with asyncio.timeout(2.0):
        last = await asyncio.gather(*(last_event(stream) for stream in streams))
    assert {event.error and event.error.code for event in last} == {ErrorCode.ENGINE_DIED}
    with pytest.raises(EngineUnavailable):
        supervisor.submit(request("too-soon"))
    await supervisor.wait_ready(START_S)
    assert supervisor.child_pid != killed_pid
    short = Sampling(max_tokens=2, temperature=0.0, ignore_eos=True)
    assert (await last_event(supervisor.submit(request("after", short)))).finish_reason == "length"


async def test_a_hanging_runtime_is_noticed_and_replaced(supervisor: EngineSupervisor) -> None:
    stream = supervisor.submit(request("hanging"))
    await anext(stream)
    hung_pid = supervisor.child_pid
    assert hung_pid is not None
    os.kill(hung_pid, signal.SIGSTOP)
    event = await last_event(stream)
    assert event.error is not None
    assert "silent" in event.error.message
    await supervisor.wait_ready(START_S)
    with pytest.raises(ProcessLookupError):
        os.kill(hung_pid, 0)


async def test_a_model_that_is_not_there_is_a_failure_in_one_line_without_a_restart(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    supervisor = EngineSupervisor(RuntimeConfig(model=str(tmp_path / "missing.gguf")))
    await supervisor.start()
    with pytest.raises(EngineUnavailable, match="missing.gguf"):
        await supervisor.wait_ready(START_S)
    assert (supervisor.state, supervisor.num_restarts) == (EngineState.FAILED, 0)
    await supervisor.stop()
    assert supervisor.failure is not None
    assert "\n" not in supervisor.failure
    # Whoever waits for the engine says it; nobody has said it before.
    assert capfd.readouterr().err == ""


async def test_gateways_that_vanish_or_fall_silent_lose_their_requests_and_no_other_does(
    config: RuntimeConfig,
) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    async with standalone_worker(config, address), connected(address) as healthy:
        ours = healthy.submit(request("ours"))
        async with connected(address, heartbeat_s=3600.0) as silent:
            stream = silent.submit(request("silent"))
            await until(lambda: healthy.stats.num_running == 2)
            await until(lambda: healthy.stats.num_running == 1)
            await stream.aclose()
        with submitted_without_a_reader(address):
            await until(lambda: healthy.stats.num_running == 2)
        await until(lambda: healthy.stats.num_running == 1)
        assert healthy.state is EngineState.READY
        await ours.aclose()
        await until(lambda: healthy.stats.pages_held == 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_without_a_parent_ends_cleanly_when_asked(
    config: RuntimeConfig, tmp_path: Path, number: signal.Signals
) -> None:
    address = wire.new_ipc_address(tmp_path)
    async with standalone_worker(config, address) as process, connected(address) as engine:
        stream = engine.submit(request("going-on"))
        await anext(stream)
        process.send_signal(number)
        event = await last_event(stream)
        assert event.error is not None
        assert event.error.code is ErrorCode.ENGINE_DIED
        assert await process.wait() == 0


async def test_a_taken_address_is_one_line_and_the_exit_code_of_a_failed_load(
    config: RuntimeConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        async with standalone_worker(config, address) as process:
            assert await process.wait() == EXIT_LOAD_FAILED
    assert f"cannot listen on {address}" in capfd.readouterr().err


async def test_a_path_is_not_taken_from_a_runtime_that_lives_and_one_left_behind_is(
    config: RuntimeConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runtime"
    address = f"ipc://{path}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        async with standalone_worker(config, address) as process:
            assert await process.wait() == EXIT_LOAD_FAILED
    assert f"cannot listen on {address}: another runtime does" in capfd.readouterr().err
    async with standalone_worker(config, address), connected(address) as engine:
        assert engine.state is EngineState.READY


async def test_options_that_are_not_understood_are_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runtime.worker", '{"address": 5}'),
        env=worker_process.environment(),
    )
    assert await process.wait() == EXIT_BAD_ARGUMENT
    assert "address" in capfd.readouterr().err


async def test_a_worker_that_finds_another_parent_than_it_was_told_of_does_not_load(
    config: RuntimeConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = WorkerOptions(wire.new_ipc_address(tmp_path), config, parent_pid=os.getppid())
    process = await worker_process.launch(options)
    assert await process.wait() == 0
    assert "serving" not in capfd.readouterr().err


PARENT = """
import asyncio, sys
from runtime.config import RuntimeConfig
from runtime.supervisor import EngineSupervisor

async def main():
    supervisor = EngineSupervisor(RuntimeConfig(model=sys.argv[1], num_threads=1))
    await supervisor.start()
    await supervisor.wait_ready(15)
    print(supervisor.child_pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches the process by its pidfd")
@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "hanging"])
async def test_kill_9_of_the_parent_ends_the_child(config: RuntimeConfig, is_stopped: bool) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, config.model),
        stdout=asyncio.subprocess.PIPE,
        env=worker_process.environment(),
    )
    assert parent.stdout is not None
    child_pid = int(await parent.stdout.readline())
    child = os.pidfd_open(child_pid)
    try:
        if is_stopped:
            os.kill(child_pid, signal.SIGSTOP)
        await worker_process.kill(parent)
        assert await asyncio.to_thread(select.select, [child], [], [], 5.0) != ([], [], [])
    finally:
        os.close(child)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_supervisors_child_leaves_the_reason_of_a_failed_load_in_its_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reason = tmp_path / "failure"
    options = WorkerOptions(
        wire.new_ipc_address(tmp_path),
        RuntimeConfig(model=str(tmp_path / "missing.gguf")),
        parent_pid=os.getpid(),
        failure_path=str(reason),
    )
    process = await worker_process.launch(options)
    assert await process.wait() == EXIT_LOAD_FAILED
    assert "missing.gguf" in reason.read_text(encoding="utf-8")
    assert capfd.readouterr().err == ""


async def test_a_reason_that_cannot_be_written_is_one_line_on_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = WorkerOptions(
        wire.new_ipc_address(tmp_path),
        RuntimeConfig(model=str(tmp_path / "missing.gguf")),
        parent_pid=os.getpid(),
        failure_path=str(tmp_path / "no folder" / "failure"),
    )
    process = await worker_process.launch(options)
    assert await process.wait() == EXIT_LOAD_FAILED
    complaints = [
        line
        for line in capfd.readouterr().err.splitlines()
        if line.startswith("radixgate runtime: ")
    ]
    assert len(complaints) == 1
    assert "missing.gguf" in complaints[0]
