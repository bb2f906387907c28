"""RemoteEngine against a scripted runtime on a real socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import zmq

from runtime import wire
from runtime.messages import (
    PROTOCOL_VERSION,
    Abort,
    EngineInfo,
    EngineStats,
    ErrorCode,
    Goodbye,
    Pong,
    StepOutput,
    StepSpan,
    Submit,
    TokenEvent,
)
from runtime.remote_engine import (
    CONNECTION_LOST,
    LOST_EVENTS,
    RESTARTED,
    CheckInfo,
    RemoteEngine,
)
from runtime.token_engine import EngineState, EngineUnavailable
from runtime.token_stream import TokenStream
from tests.unit.runtime.fake_runtime import WAIT_S, FakeRuntime, engine_info, submit_message
from tests.waiting import until

HEARTBEAT_S = 0.05


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[FakeRuntime]:
    async with FakeRuntime(wire.new_ipc_address(tmp_path)).running() as fake:
        yield fake


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as exit_stack:
        yield exit_stack


@pytest.fixture
async def engine(runtime: FakeRuntime, stack: AsyncExitStack) -> RemoteEngine:
    engine = await started(runtime, stack)
    await engine.wait_ready(WAIT_S)
    return engine


async def started(
    runtime: FakeRuntime,
    stack: AsyncExitStack,
    *,
    hang_timeout_s: float = 30.0,
    check: CheckInfo | None = None,
    on_step: Callable[[StepSpan], None] | None = None,
) -> RemoteEngine:
    engine = RemoteEngine(
        runtime.address,
        heartbeat_s=HEARTBEAT_S,
        hang_timeout_s=hang_timeout_s,
        check=check,
        on_step=on_step,
    )
    await engine.start()
    stack.push_async_callback(engine.stop)
    return engine


async def arrived(
    engine: RemoteEngine, runtime: FakeRuntime, *, num_choices: int = 1
) -> TokenStream:
    """The stream of a request that the runtime has read."""
    stream = engine.submit(submit_message(num_choices=num_choices))
    await runtime.expect(Submit)
    return stream


async def collected(stream: AsyncIterator[TokenEvent]) -> list[TokenEvent]:
    async with asyncio.timeout(WAIT_S):
        return [event async for event in stream]


async def test_the_first_pong_makes_the_engine_ready_with_the_runtimes_facts(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    assert engine.state is EngineState.READY
    assert engine.info == runtime.info
    assert engine.stats == EngineStats(steps=3)


async def test_submit_before_the_first_pong_is_refused_at_the_call(
    runtime: FakeRuntime, stack: AsyncExitStack
) -> None:
    runtime.is_answering = False
    engine = await started(runtime, stack)
    await until(lambda: runtime.num_pings > 1)
    with pytest.raises(EngineUnavailable, match="starting"):
        engine.submit(submit_message())
    assert engine.state is EngineState.STARTING


async def test_events_reach_the_request_they_belong_to_in_order(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    streams = [engine.submit(submit_message(name)) for name in ("a", "b")]
    for name in ("a", "b"):
        assert await runtime.expect(Submit) == submit_message(name)
    await runtime.send_events(TokenEvent("a", 0, 0, [5]), TokenEvent("b", 0, 0, [6]))
    await runtime.send_events(
        TokenEvent("b", 0, 1, [8], finish_reason="length"),
        TokenEvent("a", 0, 1, [7], finish_reason="stop"),
    )
    first, second = [await collected(stream) for stream in streams]
    assert [token_id for event in first for token_id in event.token_ids] == [5, 7]
    assert [token_id for event in second for token_id in event.token_ids] == [6, 8]
    assert engine.stats.steps == 7


async def test_a_stream_ends_when_each_choice_had_its_last_event(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    stream = await arrived(engine, runtime, num_choices=2)
    await runtime.send_events(
        TokenEvent("r1", 1, 0, [5], finish_reason="stop"), TokenEvent("r1", 0, 0, [6])
    )
    await runtime.send_events(TokenEvent("r1", 0, 1, [7], finish_reason="length"))
    events = await collected(stream)
    tokens = [(event.choice, token_id) for event in events for token_id in event.token_ids]
    assert tokens == [(1, 5), (0, 6), (0, 7)]
    assert [event.choice for event in events if event.is_last] == [1, 0]


@pytest.mark.parametrize("seq", [2, 0])
async def test_a_gap_or_a_repetition_fails_the_request_and_frees_it_in_the_runtime(
    engine: RemoteEngine, runtime: FakeRuntime, seq: int
) -> None:
    stream = await arrived(engine, runtime, num_choices=2)
    await runtime.send_events(TokenEvent("r1", 0, 0, [5]), TokenEvent("r1", 0, seq, [6]))
    events = await collected(stream)
    assert [event.token_ids for event in events] == [[5], [], []]
    faults = [event.error for event in events[1:]]
    assert [(fault and fault.code, fault and fault.message) for fault in faults] == [
        (ErrorCode.INTERNAL, LOST_EVENTS)
    ] * 2
    assert await runtime.expect(Abort) == Abort("r1")


async def test_a_gap_in_one_request_leaves_the_others_alone(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    engine.submit(submit_message("broken"))
    healthy = engine.submit(submit_message("healthy"))
    await runtime.expect(Submit)
    await runtime.expect(Submit)
    await runtime.send_events(
        TokenEvent("broken", 0, 3), TokenEvent("healthy", 0, 0, [1], finish_reason="stop")
    )
    assert [event.finish_reason for event in await collected(healthy)] == ["stop"]


async def test_a_closed_stream_aborts_its_request(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    stream = await arrived(engine, runtime)
    await stream.aclose()
    assert await runtime.expect(Abort) == Abort("r1")
    assert await collected(stream) == []


async def test_a_stream_that_nobody_holds_any_more_aborts_its_request(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    engine.submit(submit_message())
    await runtime.expect(Submit)
    assert await runtime.expect(Abort) == Abort("r1")


async def test_a_cancelled_consumer_aborts_its_request(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    stream = engine.submit(submit_message())
    consumer = asyncio.create_task(collected(stream))
    await runtime.expect(Submit)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    assert await runtime.expect(Abort) == Abort("r1")


async def test_a_finished_stream_aborts_nothing(engine: RemoteEngine, runtime: FakeRuntime) -> None:
    stream = await arrived(engine, runtime)
    await runtime.send_events(TokenEvent("r1", 0, 0, finish_reason="stop"))
    await collected(stream)
    await stream.aclose()
    engine.abort("r1")
    other = engine.submit(submit_message("r2"))
    assert (await runtime.expect(Submit)).request_id == "r2"
    await other.aclose()


async def test_aborting_one_choice_leaves_the_other(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    stream = await arrived(engine, runtime, num_choices=2)
    engine.abort("r1", 0)
    assert await runtime.expect(Abort) == Abort("r1", 0)
    await runtime.send_events(
        TokenEvent("r1", 0, 0, [1]), TokenEvent("r1", 1, 0, [2], finish_reason="stop")
    )
    assert [event.choice for event in await collected(stream)] == [1]


async def test_abort_from_elsewhere_ends_a_waiting_consumer(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    consumer = asyncio.create_task(collected(engine.submit(submit_message())))
    await runtime.expect(Submit)
    engine.abort("r1")
    assert await consumer == []


async def test_an_id_in_flight_cannot_be_used_twice(engine: RemoteEngine) -> None:
    stream = engine.submit(submit_message())
    with pytest.raises(ValueError, match="already in flight"):
        engine.submit(submit_message())
    await stream.aclose()


async def test_a_broken_connection_fails_each_open_choice_with_engine_died(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    stream = await arrived(engine, runtime, num_choices=2)
    await runtime.send_events(TokenEvent("r1", 0, 0, [5]))
    assert (await anext(stream)).token_ids == [5]
    runtime.close()
    events = await collected(stream)
    assert [(event.choice, event.seq) for event in events] == [(0, 1), (1, 0)]
    assert {event.error and event.error.code for event in events} == {ErrorCode.ENGINE_DIED}
    assert (engine.state, engine.failure) == (EngineState.DEAD, CONNECTION_LOST)
    with pytest.raises(EngineUnavailable, match="connection"):
        engine.submit(submit_message("r2"))


async def test_a_runtime_that_comes_back_makes_the_engine_ready_again(
    engine: RemoteEngine, runtime: FakeRuntime, stack: AsyncExitStack
) -> None:
    runtime.close()
    await until(lambda: engine.state is EngineState.DEAD)
    again = FakeRuntime(runtime.address)
    again.info = engine_info("second")
    await stack.enter_async_context(again.running())
    await engine.wait_ready(WAIT_S)
    assert engine.info == again.info


async def test_silence_fails_requests_and_the_next_pong_heals(
    runtime: FakeRuntime, stack: AsyncExitStack
) -> None:
    engine = await started(runtime, stack, hang_timeout_s=4 * HEARTBEAT_S)
    await engine.wait_ready(WAIT_S)
    stream = await arrived(engine, runtime)
    runtime.is_answering = False
    (event,) = await collected(stream)
    assert event.error is not None
    assert event.error.code is ErrorCode.ENGINE_DIED
    assert "silent" in event.error.message
    assert await runtime.expect(Abort) == Abort("r1")
    runtime.is_answering = True
    await engine.wait_ready(WAIT_S)


async def test_tokens_without_pongs_are_a_sign_of_life(
    runtime: FakeRuntime, stack: AsyncExitStack
) -> None:
    engine = await started(runtime, stack, hang_timeout_s=4 * HEARTBEAT_S)
    await engine.wait_ready(WAIT_S)
    stream = await arrived(engine, runtime)
    runtime.is_answering = False
    for seq in range(12):
        await runtime.send_events(TokenEvent("r1", 0, seq, [seq]))
        await runtime.expect_ping()
    assert engine.state is EngineState.READY
    await stream.aclose()


async def test_a_pong_of_a_new_incarnation_fails_what_the_old_one_had(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    stream = await arrived(engine, runtime)
    runtime.info = engine_info("second")
    (event,) = await collected(stream)
    assert event.error is not None
    assert (event.error.code, event.error.message) == (ErrorCode.ENGINE_DIED, RESTARTED)
    assert engine.info == runtime.info
    assert engine.state is EngineState.READY


async def test_events_of_another_incarnation_are_not_taken_for_the_request(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    stream = await arrived(engine, runtime)
    await runtime.send_events(TokenEvent("r1", 0, 0, [9]), incarnation="second")
    (event,) = await collected(stream)
    assert event.token_ids == []
    assert event.error is not None


async def test_repeated_pongs_change_nothing(engine: RemoteEngine, runtime: FakeRuntime) -> None:
    stream = await arrived(engine, runtime)
    pong = Pong(PROTOCOL_VERSION, runtime.info, EngineStats(steps=9))
    for _ in range(3):
        await runtime.send(pong)
    await runtime.send_events(TokenEvent("r1", 0, 0, [4], finish_reason="stop"))
    assert [event.token_ids for event in await collected(stream)] == [[4]]


async def test_garbage_from_the_runtime_is_logged_and_ignored(
    engine: RemoteEngine, runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await arrived(engine, runtime)
    for frame in (b"", b"\xc1", b"\x81\xa4type\xa8NoSuch", wire.encode(submit_message())):
        await runtime.send_frame(frame)
    await runtime.send_events(TokenEvent("unknown", 0, 0), TokenEvent("r1", 77, 0))
    await runtime.send_events(TokenEvent("r1", 0, 0, [4], finish_reason="stop"))
    assert [event.token_ids for event in await collected(stream)] == [[4]]
    assert "4 ignored so far" in caplog.text


async def test_a_runtime_of_another_protocol_is_refused_with_both_versions(
    runtime: FakeRuntime, stack: AsyncExitStack
) -> None:
    runtime.is_answering = False
    engine = await started(runtime, stack)
    await until(lambda: runtime.num_pings > 0)
    await runtime.send(Pong(PROTOCOL_VERSION + 1, runtime.info, EngineStats()))
    await until(lambda: engine.state is EngineState.REFUSED)
    assert engine.failure is not None
    assert f"version {PROTOCOL_VERSION + 1}" in engine.failure


async def test_a_refusal_is_told_once_with_the_runtimes_reason(
    runtime: FakeRuntime, stack: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.is_answering = False
    engine = await started(runtime, stack)
    await until(lambda: runtime.num_pings > 0)
    for reason in ("no such model", "no such model", "too many gateways"):
        await runtime.send(Goodbye(reason))
    await until(lambda: engine.failure == "too many gateways")
    assert engine.state is EngineState.REFUSED
    with pytest.raises(EngineUnavailable, match="too many gateways"):
        engine.submit(submit_message())
    refusals = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert refusals == [
        f"the runtime at {engine.address} cannot be used: {reason}"
        for reason in ("no such model", "too many gateways")
    ]


async def test_a_runtime_that_comes_back_is_told(
    engine: RemoteEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "runtime.remote_engine")
    engine.declare_lost("gone")
    engine.ready.clear()
    await engine.wait_ready(WAIT_S)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["gone: 0 requests fail", "the runtime is there again, incarnation first"]


async def test_an_engine_whose_address_zeromq_does_not_take_can_still_be_stopped() -> None:
    engine = RemoteEngine("tcp://nowhere")
    with pytest.raises(zmq.ZMQError):
        await engine.start()
    async with asyncio.timeout(WAIT_S):
        await engine.stop()


async def test_a_runtime_that_let_go_of_this_gateway_is_greeted_again(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    stream = await arrived(engine, runtime)
    await runtime.send(Goodbye("you were silent"))
    (event,) = await collected(stream)
    assert event.error is not None
    assert event.error.message == "you were silent"
    await engine.wait_ready(WAIT_S)


async def test_stop_aborts_and_fails_what_is_in_flight_and_may_be_repeated(
    engine: RemoteEngine, runtime: FakeRuntime
) -> None:
    stream = await arrived(engine, runtime)
    await engine.stop()
    await engine.stop()
    assert await runtime.expect(Abort) == Abort("r1")
    (event,) = await collected(stream)
    assert event.error is not None
    assert engine.state is EngineState.STOPPED
    with pytest.raises(EngineUnavailable, match="stopping"):
        engine.submit(submit_message("r2"))


async def test_a_runtime_that_does_not_fit_is_not_used_until_another_comes(
    runtime: FakeRuntime, stack: AsyncExitStack
) -> None:
    checked: list[str] = []

    async def check(info: EngineInfo) -> str | None:
        checked.append(info.incarnation)
        return None if info.model_hash == "right" else "another model"

    engine = await started(runtime, stack, check=check)
    await until(lambda: engine.state is EngineState.REFUSED)
    assert engine.failure == "another model"
    with pytest.raises(EngineUnavailable, match="another model"):
        engine.submit(submit_message())

    runtime.info = msgspec.structs.replace(runtime.info, incarnation="second", model_hash="right")
    await engine.wait_ready(WAIT_S)
    assert engine.info == runtime.info
    await runtime.expect_ping()
    await runtime.expect_ping()
    assert checked[0] == "first"
    assert checked.count("second") == 1


async def test_the_check_of_a_runtime_ends_with_the_engine(
    runtime: FakeRuntime, stack: AsyncExitStack
) -> None:
    is_asked = asyncio.Event()

    async def check(_info: EngineInfo) -> str | None:
        is_asked.set()
        await asyncio.Event().wait()
        return None

    engine = await started(runtime, stack, check=check)
    async with asyncio.timeout(WAIT_S):
        await is_asked.wait()
        await engine.stop()
    assert engine.state is EngineState.STOPPED


async def test_a_recorded_step_is_told_behind_the_events_of_its_message(
    runtime: FakeRuntime, stack: AsyncExitStack
) -> None:
    told: list[StepSpan] = []

    def refuse(step: StepSpan) -> None:
        told.append(step)
        raise RuntimeError("no room")

    engine = await started(runtime, stack, on_step=refuse)
    await engine.wait_ready(WAIT_S)
    stream = await arrived(engine, runtime)
    step = StepSpan("00-1-2-01", 1, 2)
    event = TokenEvent("r1", 0, 0, [5])
    await runtime.send(StepOutput("first", 1, [event], EngineStats(), recorded=step))
    assert await anext(stream) == event
    await until(lambda: told == [step])
    await runtime.send_events(TokenEvent("r1", 0, 1, [6]))
    assert (await anext(stream)).token_ids == [6]
    assert told == [step]
