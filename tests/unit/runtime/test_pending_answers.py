"""Questions to a runtime over a real socket: answered, refused, given up, never left behind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from runtime import wire
from runtime.cache_messages import (
    CacheAnswer,
    CacheDescription,
    CacheExplanation,
    CacheFault,
    CacheFlushed,
    CacheQuery,
    DescribeCache,
    ExplainCache,
    FlushCache,
    HitWindow,
    OwnerUse,
)
from runtime.messages import Abort, EngineStats, Goodbye, StepOutput, Submit
from runtime.remote_engine import CONNECTION_LOST, RemoteEngine
from runtime.token_engine import EngineUnavailable
from tests.unit.runtime.fake_runtime import WAIT_S, FakeRuntime, engine_info, submit_message
from tests.waiting import until

QUERIES: list[CacheQuery] = [
    ExplainCache("q", [1, 2, 70_000], b"namespace", owner="a", sees_all=True),
    DescribeCache("q", owner=None, max_nodes=3),
    FlushCache("q", owner="a", tiers=False),
]
ANSWERS: list[CacheAnswer] = [
    CacheExplanation("q", 5, 3, {"disk": 2}, "evicted", [7], 10**18, "other_tenant"),
    CacheDescription(
        request_id="q",
        page_size=16,
        page_bytes=4096,
        pages_free=1,
        pages_cached=2,
        pages_locked=1,
        pages_held=0,
        pages_total=3,
        num_evicted_pages=9,
        owners=[OwnerUse("a", 2, 1, None, (HitWindow(60, 1, 5, 3), HitWindow(None, 1, 5, 3)))],
    ),
    CacheFlushed("q", 12),
    CacheFault("q", "broken"),
]


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[FakeRuntime]:
    async with FakeRuntime(wire.new_ipc_address(tmp_path)).running() as fake:
        yield fake


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as exit_stack:
        yield exit_stack


async def started(
    runtime: FakeRuntime, stack: AsyncExitStack, *, answer_timeout_s: float = WAIT_S
) -> RemoteEngine:
    engine = RemoteEngine(runtime.address, heartbeat_s=0.05, answer_timeout_s=answer_timeout_s)
    await engine.start()
    stack.push_async_callback(engine.stop)
    await engine.wait_ready(WAIT_S)
    return engine


@pytest.fixture
async def engine(runtime: FakeRuntime, stack: AsyncExitStack) -> RemoteEngine:
    return await started(runtime, stack)


async def asked(
    engine: RemoteEngine, runtime: FakeRuntime, request_id: str = "q"
) -> "asyncio.Task[CacheAnswer]":
    """A question that the runtime has read."""
    task = asyncio.create_task(engine.ask(FlushCache(request_id)))
    assert (await runtime.expect(FlushCache)).request_id == request_id
    return task


@pytest.mark.parametrize("query", QUERIES)
def test_a_question_is_the_same_behind_the_wire(query: CacheQuery) -> None:
    assert wire.decode_for_runtime(wire.encode(query)) == query


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_the_same_behind_the_wire(answer: CacheAnswer) -> None:
    assert wire.decode_for_gateway(wire.encode(answer)) == answer


async def test_answers_reach_who_asked_in_any_order_and_between_events(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    first = await asked(engine, runtime, "q1")
    second = await asked(engine, runtime, "q2")
    await runtime.send(CacheFlushed("q2", 2))
    await runtime.send(StepOutput("first", 1, [], EngineStats(steps=44)))
    await runtime.send(CacheFlushed("q1", 1))
    assert await first == CacheFlushed("q1", 1)
    assert await second == CacheFlushed("q2", 2)
    assert engine.stats.steps == 44


async def test_a_fault_is_an_answer(engine: RemoteEngine, runtime: FakeRuntime) -> None:
    question = await asked(engine, runtime)
    await runtime.send(CacheFault("q", "broken"))
    assert await question == CacheFault("q", "broken")


async def test_a_question_in_flight_cannot_be_asked_twice(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    question = await asked(engine, runtime)
    with pytest.raises(ValueError, match="already asked"):
        await engine.ask(FlushCache("q"))
    await runtime.send(CacheFlushed("q", 1))
    assert await question == CacheFlushed("q", 1)


async def test_a_question_before_the_first_pong_is_refused(
    runtime: FakeRuntime, stack: AsyncExitStack
) -> None:
    runtime.is_answering = False
    engine = RemoteEngine(runtime.address, heartbeat_s=0.05)
    await engine.start()
    stack.push_async_callback(engine.stop)
    await until(lambda: runtime.num_pings > 0)
    with pytest.raises(EngineUnavailable, match="starting"):
        await engine.ask(FlushCache("q"))


async def test_a_question_that_is_not_answered_in_time_fails_and_a_late_answer_harms_nothing(
    runtime: FakeRuntime, stack: AsyncExitStack
) -> None:
    engine = await started(runtime, stack, answer_timeout_s=0.02)
    question = await asked(engine, runtime)
    with pytest.raises(EngineUnavailable, match=r"within 0\.02 s"):
        await question
    await runtime.send(CacheFlushed("q", 1))
    await runtime.expect_ping()
    assert len(engine._pending_answers) == 0


async def test_a_runtime_that_dies_fails_its_questions(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    question = await asked(engine, runtime)
    runtime.close()
    with pytest.raises(EngineUnavailable, match=CONNECTION_LOST):
        await question
    with pytest.raises(EngineUnavailable, match="not available"):
        await engine.ask(FlushCache("q2"))


async def test_a_new_incarnation_fails_what_the_old_one_was_asked(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    question = await asked(engine, runtime)
    runtime.info = engine_info("second")
    with pytest.raises(EngineUnavailable, match="restarted"):
        await question


async def test_a_runtime_that_lets_go_of_the_gateway_fails_its_questions(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    question = await asked(engine, runtime)
    await runtime.send(Goodbye("you were silent"))
    with pytest.raises(EngineUnavailable, match="you were silent"):
        await question


async def test_a_caller_that_is_cancelled_leaves_nothing_behind(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    question = await asked(engine, runtime)
    question.cancel()
    with pytest.raises(asyncio.CancelledError):
        await question
    assert len(engine._pending_answers) == 0
    await runtime.send(CacheFlushed("q", 1))
    stream = engine.submit(submit_message())
    await runtime.expect(Submit)
    await stream.aclose()
    await runtime.expect(Abort)


async def test_stop_fails_questions(engine: RemoteEngine, runtime: FakeRuntime) -> None:
    question = await asked(engine, runtime)
    await engine.stop()
    with pytest.raises(EngineUnavailable, match="stopping"):
        await question
    assert len(engine._pending_answers) == 0
