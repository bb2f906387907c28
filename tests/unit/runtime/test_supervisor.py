"""Supervision of children that never serve; the real runtime's turn is in tests/integration."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import pytest

from runtime import worker_process
from runtime.cache_messages import FlushCache
from runtime.config import RuntimeConfig
from runtime.messages import EngineStats
from runtime.supervisor import LOAD_FAILED, EngineSupervisor, RestartBudget, SupervisorPolicy
from runtime.token_engine import EngineState, EngineUnavailable
from runtime.worker_options import EXIT_LOAD_FAILED, SUPERVISOR_SIGNAL, WorkerOptions
from tests.unit.runtime.fake_runtime import submit_message
from tests.waiting import until

WAIT_S = 10.0
POLICY = SupervisorPolicy(
    heartbeat_s=0.05,
    max_restarts=2,
    first_backoff_s=0.01,
    load_timeout_s=0.3,
    stop_grace_s=0.3,
)
SLEEP = "import signal; signal.pause()"


class Children:
    """Launches Python one-liners in the runtime's place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script = SLEEP
        self.processes: list[asyncio.subprocess.Process] = []
        self.options: list[WorkerOptions] = []
        self.cache_redis_urls: list[str | None] = []
        monkeypatch.setattr(worker_process, "launch", self.launch)

    async def launch(
        self, options: WorkerOptions, *, cache_redis_url: str | None
    ) -> asyncio.subprocess.Process:
        assert all(process.returncode is not None for process in self.processes)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-S", "-c", self.script, options.failure_path or "")
        )
        self.processes.append(process)
        self.options.append(options)
        self.cache_redis_urls.append(cache_redis_url)
        return process


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Children:
    return Children(monkeypatch)


@pytest.fixture
async def supervisor(children: Children) -> AsyncIterator[EngineSupervisor]:
    supervisor = EngineSupervisor(RuntimeConfig(model="tiny"), policy=POLICY)
    yield supervisor
    await supervisor.stop()
    assert all(process.returncode is not None for process in children.processes)


async def failure_of(supervisor: EngineSupervisor) -> str:
    await supervisor.start()
    with pytest.raises(EngineUnavailable) as raised:
        await supervisor.wait_ready(WAIT_S)
    assert supervisor.state is EngineState.FAILED
    assert supervisor.failure == str(raised.value)
    return str(raised.value)


def test_restarts_are_limited_within_the_window_and_free_again_after_it() -> None:
    now = 0.0
    policy = SupervisorPolicy(
        max_restarts=3, restart_window_s=60.0, first_backoff_s=1.0, max_backoff_s=3.0
    )
    budget = RestartBudget(policy, lambda: now)
    assert [budget.take() for _ in range(4)] == [1.0, 2.0, 3.0, None]
    now = 61.0
    assert budget.take() == 1.0


async def test_before_the_start_nothing_is_served(supervisor: EngineSupervisor) -> None:
    assert (supervisor.state, supervisor.info, supervisor.child_pid) == (
        EngineState.STARTING,
        None,
        None,
    )
    assert supervisor.stats == EngineStats()
    with pytest.raises(EngineUnavailable, match="loading"):
        supervisor.submit(submit_message())
    with pytest.raises(EngineUnavailable, match="loading"):
        await supervisor.ask(FlushCache("q"))
    supervisor.abort("unknown")


async def test_a_child_that_keeps_dying_is_restarted_within_bounds_then_given_up(
    supervisor: EngineSupervisor, children: Children
) -> None:
    children.script = "raise SystemExit(7)"
    failure = await failure_of(supervisor)
    assert "exit code 7 while loading" in failure
    assert "2 restarts did not help" in failure
    assert (len(children.processes), supervisor.num_restarts) == (3, 2)
    with pytest.raises(EngineUnavailable, match="exit code 7"):
        supervisor.submit(submit_message())


async def test_each_child_gets_an_address_of_its_own_and_its_parents_id(
    supervisor: EngineSupervisor, children: Children
) -> None:
    children.script = "raise SystemExit(7)"
    await failure_of(supervisor)
    assert len({options.address for options in children.options}) == 3
    assert {options.parent_pid for options in children.options} == {os.getpid()}


async def test_every_child_is_given_the_redis_of_the_cache_beside_its_options(
    children: Children,
) -> None:
    children.script = "raise SystemExit(1)"
    url = "redis://:pw@h/0"
    supervisor = EngineSupervisor(RuntimeConfig(model="t"), policy=POLICY, cache_redis_url=url)
    await failure_of(supervisor)
    await supervisor.stop()
    assert children.cache_redis_urls == [url] * 3
    assert "pw" not in repr(children.options)


async def test_a_failed_load_is_not_tried_again(
    supervisor: EngineSupervisor, children: Children
) -> None:
    children.script = f"raise SystemExit({EXIT_LOAD_FAILED})"
    assert await failure_of(supervisor) == LOAD_FAILED
    assert len(children.processes) == 1


async def test_the_reason_of_a_failed_load_comes_from_the_file_that_the_child_left(
    supervisor: EngineSupervisor, children: Children
) -> None:
    children.script = (
        "import sys; open(sys.argv[1], 'w', encoding='utf-8').write('no such model: é');"
        f" raise SystemExit({EXIT_LOAD_FAILED})"
    )
    assert await failure_of(supervisor) == "no such model: é"


async def test_a_load_that_hangs_is_ended(supervisor: EngineSupervisor, children: Children) -> None:
    assert "not loaded within 0.3 s" in await failure_of(supervisor)
    assert [process.returncode for process in children.processes] == [-9] * 3


async def test_a_system_that_starts_no_process_is_a_failure_with_its_reason(
    supervisor: EngineSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(options: WorkerOptions, **_: object) -> asyncio.subprocess.Process:
        raise OSError(11, f"no more processes for {options.engine_id}")

    monkeypatch.setattr(worker_process, "launch", refuse)
    assert "no more processes for embedded" in await failure_of(supervisor)


async def test_stop_while_loading_ends_the_child_and_may_be_repeated(
    supervisor: EngineSupervisor, children: Children
) -> None:
    await supervisor.start()
    await until(lambda: supervisor.child_pid is not None)
    await supervisor.stop()
    await supervisor.stop()
    assert [process.returncode for process in children.processes] == [-SUPERVISOR_SIGNAL]
    assert (supervisor.state, supervisor.child_pid) == (EngineState.STOPPED, None)
    with pytest.raises(EngineUnavailable, match="stopping"):
        supervisor.submit(submit_message())


async def test_a_child_that_ignores_the_request_to_end_is_killed(children: Children) -> None:
    children.script = f"import signal; signal.signal({SUPERVISOR_SIGNAL}, signal.SIG_IGN); {SLEEP}"
    supervisor = EngineSupervisor(
        RuntimeConfig(model="tiny"), policy=SupervisorPolicy(stop_grace_s=0.5)
    )
    await supervisor.start()
    await until(lambda: bool(children.processes) and ignores_the_request(children.processes[0].pid))
    await supervisor.stop()
    assert [process.returncode for process in children.processes] == [-9]


def ignores_the_request(pid: int) -> bool:
    with open(f"/proc/{pid}/status") as status:
        masks = dict(line.split(":", 1) for line in status)
    return bool(int(masks["SigIgn"], 16) & 1 << SUPERVISOR_SIGNAL - 1)


async def test_a_supervisor_that_is_cancelled_leaves_no_child(children: Children) -> None:
    supervisor = EngineSupervisor(RuntimeConfig(model="tiny"))
    await supervisor.start()
    await until(lambda: supervisor.child_pid is not None)
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "engine-supervisor"]
    task.cancel()
    await asyncio.wait({task})
    assert [process.returncode for process in children.processes] == [-9]


async def test_the_socket_is_in_a_private_folder_that_is_gone_after_the_stop(
    supervisor: EngineSupervisor, children: Children
) -> None:
    await supervisor.start()
    await until(lambda: bool(children.options))
    folder = os.path.dirname(children.options[0].address.removeprefix("ipc://"))
    assert os.stat(folder).st_mode & 0o777 == 0o700
    await supervisor.stop()
    with pytest.raises(FileNotFoundError):
        os.stat(folder)
