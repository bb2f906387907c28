"""The probe and its children: verdicts, limits, crashes, cancellation."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from grammar.errors import ConstraintTooExpensive, GrammarError, UnsupportedConstraint
from grammar.matcher import Vocabulary
from grammar.probe import ConstraintProbe
from grammar.probe_children import QUICK
from grammar.probe_frames import FromChild
from grammar.probe_process import ProbeProcess
from grammar.spec import ConstraintSpec
from grammar.verdict_cache import TOO_EXPENSIVE_S
from tests.small_vocabulary import small_vocabulary

ROOT = Path(__file__).resolve().parents[3]
WORD = ConstraintSpec("regex", "[a-z]+")


@pytest.fixture
async def probe() -> AsyncIterator[ConstraintProbe]:
    probe = ConstraintProbe(small_vocabulary(), time_limit_s=10.0)
    await probe.start()
    yield probe
    await probe.stop()


def slow_constraint(name: str = "p", *, num_properties: int = 6000) -> ConstraintSpec:
    """Takes seconds and tens of megabytes: thousands of optional properties."""
    properties = {
        f"{name}{i}": {"type": "string", "pattern": f"a{i}"} for i in range(num_properties)
    }
    return ConstraintSpec("json_schema", json.dumps({"type": "object", "properties": properties}))


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def held_child(probe: ConstraintProbe) -> int:
    """The only child's pid, stopped with its fork: whatever it is asked next it will not answer."""
    await probe.check(ConstraintSpec("json_object"))
    (pid,) = probe.child_pids()
    os.killpg(pid, signal.SIGSTOP)
    return pid


def fork_of(pid: int) -> int:
    """The process that works for this child."""
    (fork,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(fork)


async def settle() -> None:
    """Lets every task run as far as it can without the outside world."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_constraint_is_compiled_once_and_remembered(probe: ConstraintProbe) -> None:
    first = await probe.check(WORD)
    second = await probe.check(WORD)
    assert (first.cached, second.cached) == (False, True)
    assert first.compile_ms == second.compile_ms > 0
    assert first.prepared.engine == "llguidance"


async def test_a_refusal_keeps_its_place_and_is_remembered(probe: ConstraintProbe) -> None:
    spec = ConstraintSpec("json_schema", '{"type":"object","properties":{"a":{"minLength":-1}}}')
    for _ in range(2):
        with pytest.raises(UnsupportedConstraint) as caught:
            await probe.check(spec)
        assert caught.value.pointer == "/properties/a/minLength"
        assert caught.value.keyword == "minLength"
    await probe.check(WORD)


async def test_a_schema_that_nothing_satisfies_is_refused(probe: ConstraintProbe) -> None:
    schema = '{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}'
    with pytest.raises(UnsupportedConstraint, match="no finite value"):
        await probe.check(ConstraintSpec("json_schema", schema))


async def test_past_the_time_limit_only_that_constraint_fails() -> None:
    probe = ConstraintProbe(small_vocabulary(), time_limit_s=0.2)
    try:
        await probe.check(ConstraintSpec("json_object"))
        (quick,) = probe.child_pids()
        with pytest.raises(ConstraintTooExpensive, match=r"0\.2 s"):
            await probe.check(slow_constraint())
        assert (await probe.check(WORD)).compile_ms > 0
        assert probe.child_pids()[0] == quick, "only the fork was lost"
    finally:
        await probe.stop()


async def test_what_was_too_expensive_is_tried_again_after_a_while() -> None:
    now = 100.0
    probe = ConstraintProbe(small_vocabulary(), time_limit_s=0.2, clock=lambda: now)
    try:
        with pytest.raises(ConstraintTooExpensive):
            await probe.check(slow_constraint())
        pids = probe.child_pids()
        for pid in pids:
            os.killpg(pid, signal.SIGSTOP)  # who asks a child now gets no answer
        with pytest.raises(ConstraintTooExpensive, match=r"0\.2 s"):
            await probe.check(slow_constraint())
        for pid in pids:
            os.killpg(pid, signal.SIGCONT)
        await probe.check(WORD)
        now += TOO_EXPENSIVE_S
        fork = fork_of(pids[0])
        with pytest.raises(ConstraintTooExpensive):
            await probe.check(slow_constraint())
        await probe.check(ConstraintSpec("json_object"))
        assert fork_of(pids[0]) != fork
    finally:
        await probe.stop()


async def test_what_needs_more_than_a_moment_gets_all_of_its_time(
    probe: ConstraintProbe,
) -> None:
    slow = slow_constraint(num_properties=400)
    quick_only = ConstraintProbe(small_vocabulary(), time_limit_s=QUICK.cpu_s)
    try:
        with pytest.raises(ConstraintTooExpensive):
            await quick_only.check(slow)
    finally:
        await quick_only.stop()
    assert (await probe.check(slow)).compile_ms > 20


async def test_past_the_memory_limit_only_that_constraint_fails() -> None:
    probe = ConstraintProbe(small_vocabulary(), memory_limit_bytes=4 * 2**20)
    try:
        with pytest.raises(ConstraintTooExpensive, match="4 MiB"):
            await probe.check(slow_constraint())
        assert (await probe.check(WORD)).compile_ms > 0
    finally:
        await probe.stop()


async def test_a_crash_costs_only_the_constraint_that_was_checked(
    probe: ConstraintProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    await probe.check(ConstraintSpec("json_object"))
    receive = ProbeProcess._receive

    async def crash_once_at_work(child: ProbeProcess) -> FromChild:
        begun = await receive(child)
        monkeypatch.undo()
        os.kill(fork_of(child.pid), signal.SIGSEGV)
        return begun

    monkeypatch.setattr(ProbeProcess, "_receive", crash_once_at_work)
    with pytest.raises(UnsupportedConstraint, match="crashed"):
        await probe.check(slow_constraint())
    assert not (await probe.check(WORD)).cached


async def test_a_fork_that_died_idle_is_replaced(probe: ConstraintProbe) -> None:
    await probe.check(ConstraintSpec("json_object"))
    (pid,) = probe.child_pids()
    os.kill(fork_of(pid), signal.SIGKILL)
    assert (await probe.check(WORD)).compile_ms > 0


async def test_a_child_that_died_idle_is_replaced(probe: ConstraintProbe) -> None:
    pid = await held_child(probe)
    os.killpg(pid, signal.SIGKILL)
    assert (await probe.check(WORD)).compile_ms > 0
    assert pid not in probe.child_pids()


async def test_cancelling_the_only_caller_ends_the_work_and_not_the_child(
    probe: ConstraintProbe,
) -> None:
    await probe.check(ConstraintSpec("json_object"))
    (pid,) = probe.child_pids()
    fork = fork_of(pid)
    check = asyncio.create_task(probe.check(slow_constraint()))
    await settle()
    check.cancel()
    with pytest.raises(asyncio.CancelledError):
        await check
    assert not is_running(fork)
    assert not (await probe.check(WORD)).cached
    assert probe.child_pids() == (pid,)


async def test_a_dropped_job_is_never_taken_for_the_next_one(probe: ConstraintProbe) -> None:
    """Wherever in its life the cancellation meets it."""
    refused = ConstraintSpec("json_schema", '{"not":{}}')
    for num_turns in range(12):
        check = asyncio.create_task(probe.check(refused))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        check.cancel()
        await asyncio.gather(check, return_exceptions=True)
        found = await probe.check(ConstraintSpec("regex", f"[a-z]{{{num_turns + 1}}}"))
        assert found.prepared.form != "json_schema"
        assert found.compile_ms > 0


async def test_a_child_that_does_not_end_its_work_is_killed(probe: ConstraintProbe) -> None:
    pid = await held_child(probe)
    check = asyncio.create_task(probe.check(WORD))
    await settle()
    check.cancel()
    with pytest.raises(asyncio.CancelledError):
        await check
    assert pid not in probe.child_pids()
    assert not is_running(pid)
    assert not (await probe.check(WORD)).cached


async def test_one_of_two_callers_may_leave(probe: ConstraintProbe) -> None:
    pid = await held_child(probe)
    leaving, staying = (asyncio.create_task(probe.check(WORD)) for _ in range(2))
    await settle()
    leaving.cancel()
    await settle()
    os.killpg(pid, signal.SIGCONT)
    assert (await staying).compile_ms > 0
    assert probe.child_pids() == (pid,)


async def test_a_slow_constraint_does_not_hold_up_the_next(probe: ConstraintProbe) -> None:
    slow = asyncio.create_task(probe.check(slow_constraint()))
    with pytest.raises(TimeoutError):  # until it had its moment and moved on
        await asyncio.wait_for(asyncio.shield(slow), 2 * QUICK.wall_s)
    assert (await probe.check(ConstraintSpec("choice", '["a","b"]'))).compile_ms > 0
    assert not slow.done()
    assert len(probe.child_pids()) == 2
    slow.cancel()


async def test_stop_ends_children_and_waiting_callers() -> None:
    probe = ConstraintProbe(small_vocabulary())
    await probe.start()
    pid = await held_child(probe)
    check = asyncio.create_task(probe.check(WORD))
    await settle()
    await probe.stop()
    with pytest.raises(asyncio.CancelledError):
        await check
    assert probe.child_pids() == ()
    assert not is_running(pid)


async def test_a_tokenizer_that_cannot_be_read_blames_no_constraint() -> None:
    probe = ConstraintProbe(Vocabulary("{}", 10, (0,)))
    try:
        with pytest.raises(GrammarError) as caught:
            await probe.check(WORD)
        assert type(caught.value) is GrammarError
    finally:
        await probe.stop()


def test_importing_the_probe_imports_no_grammar_library() -> None:
    code = (
        "import sys, grammar.probe; "
        "print([m for m in ('torch','xgrammar','transformers','llguidance','tokenizers') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_child_ends_when_its_input_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "grammar.probe_worker"],
        input=b"",
        capture_output=True,
        cwd=ROOT,
        timeout=15,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"")


async def test_the_other_engine_is_loaded_by_the_child_when_it_is_asked_for() -> None:
    """Its import takes longer than this probe allows to compile."""
    probe = ConstraintProbe(small_vocabulary(), time_limit_s=QUICK.cpu_s)
    try:
        report = await probe.check(ConstraintSpec("regex", "[a-z]+", "xgrammar"))
        assert (report.prepared.engine, report.cached) == ("xgrammar", False)
        assert len(probe.child_pids()) == 1
    finally:
        await probe.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere niceness is all there is")
async def test_what_takes_long_is_done_at_idle_priority(probe: ConstraintProbe) -> None:
    await probe.check(WORD)
    (quick,) = probe.child_pids()
    assert os.getpriority(os.PRIO_PROCESS, fork_of(quick)) == 19
    await probe.check(slow_constraint(num_properties=400))
    _, slow = probe.child_pids()
    assert os.sched_getscheduler(fork_of(slow)) == os.SCHED_IDLE
    assert {os.getsid(quick), os.getsid(slow)} == {os.getsid(0)}


async def test_ten_bad_constraints_do_not_stand_in_the_way_of_a_good_one() -> None:
    probe = ConstraintProbe(small_vocabulary(), time_limit_s=5.0)
    await probe.start()
    try:
        bad = [asyncio.create_task(probe.check(slow_constraint(name))) for name in "abcdefghij"]
        await settle()
        assert (await probe.check(WORD)).compile_ms > 0
        assert sum(task.done() for task in bad) < 5
    finally:
        await probe.stop()
        await asyncio.gather(*bad, return_exceptions=True)
