"""The runtime's loop over real sockets, with a recorder in the engine's place."""

import select
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
import zmq

from runtime import wire
from runtime.cache_messages import (
    CacheAnswer,
    CacheFault,
    CacheFlushed,
    CacheQuery,
    DescribeCache,
    ExplainCache,
    FlushCache,
)
from runtime.loop import (
    FREED,
    IDLE_POLL_MS,
    NOT_GREETED,
    Doorbell,
    RuntimeLoop,
)
from runtime.messages import (
    PROTOCOL_VERSION,
    Abort,
    EngineStats,
    ErrorCode,
    Goodbye,
    Ping,
    Pong,
    Probe,
    Sampling,
    StepOutput,
    StepSpan,
    Submit,
    ToGateway,
    TokenEvent,
    ToRuntime,
    TraceContext,
)
from runtime.question_queue import MAX_QUESTIONS, NO_ANSWER, AnswerOrFuture
from tests.unit.runtime.fake_runtime import engine_info, submit_message

WAIT_MS = 5000
NOW_NS = 10**18


class RecordingEngine:
    """Notes what it is told; its next step gives the events that the test laid out."""

    def __init__(self) -> None:
        self.submitted: list[tuple[bytes, Submit]] = []
        self.aborted: list[tuple[bytes, Abort]] = []
        self.freed: list[bytes] = []
        self.outputs: dict[bytes, list[TokenEvent]] = {}
        self.recorded: tuple[bytes, StepSpan] | None = None
        self.has_more = False
        self.deadline_ns: int | None = None
        self.num_steps = 0
        self.num_idle = 0
        self.num_pieces = 0
        self.asked: list[tuple[str, int]] = []
        self.late_answer: Future[CacheAnswer] = Future()

    def submit(self, gateway: bytes, request: Submit) -> None:
        if not request.prompt_token_ids:
            raise IndexError("a bug that this request has found")
        self.submitted.append((gateway, request))

    def abort(self, gateway: bytes, abort: Abort) -> None:
        self.aborted.append((gateway, abort))

    def abort_gateway(self, gateway: bytes) -> None:
        self.freed.append(gateway)

    def step(self) -> dict[bytes, list[TokenEvent]]:
        self.num_steps += 1
        outputs, self.outputs = self.outputs, {}
        return outputs

    def take_recorded(self) -> tuple[bytes, StepSpan] | None:
        recorded, self.recorded = self.recorded, None
        return recorded

    def has_work(self) -> bool:
        return self.has_more

    def next_deadline_ns(self) -> int | None:
        return self.deadline_ns

    def idle(self) -> bool:
        self.num_idle += 1
        return self.num_idle < self.num_pieces

    def stats(self) -> EngineStats:
        return EngineStats(steps=self.num_steps)

    def answer(self, query: CacheQuery) -> AnswerOrFuture:
        if isinstance(query, ExplainCache):
            return self.late_answer
        if not isinstance(query, FlushCache):
            raise IndexError("a bug that this question has found")
        self.asked.append((query.request_id, self.num_steps))
        return CacheFlushed(query.request_id, 7)


class Bench:
    """A loop, its engine, a clock to turn, and gateways to connect."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.dealers: list[zmq.Socket[bytes]] = []
        self.now = 0.0
        self.engine = RecordingEngine()
        self.doorbell = Doorbell()
        self.router = self.context.socket(zmq.ROUTER)
        wire.configure_router(self.router)
        self.router.bind(address)
        self.loop = RuntimeLoop(
            socket=self.router,
            engine=self.engine,
            info=engine_info(),
            gateway_timeout_s=2.0,
            doorbell=self.doorbell,
            clock=lambda: self.now,
            wall_clock=lambda: NOW_NS,
        )

    def connect(self, identity: bytes) -> zmq.Socket[bytes]:
        dealer = self.context.socket(zmq.DEALER)
        wire.configure_dealer(dealer)
        dealer.setsockopt(zmq.ROUTING_ID, identity)
        dealer.connect(self.address)
        self.dealers.append(dealer)
        return dealer

    def greeted(self, identity: bytes) -> zmq.Socket[bytes]:
        dealer = self.connect(identity)
        self.tell(dealer, Ping(PROTOCOL_VERSION, "gateway"))
        assert isinstance(self.answer(dealer), Pong)
        return dealer

    def tell(self, dealer: zmq.Socket[bytes], *messages: ToRuntime | bytes) -> None:
        """Sends, and has the loop take it all."""
        for message in messages:
            dealer.send(message if isinstance(message, bytes) else wire.encode(message))
            assert self.router.poll(WAIT_MS)
            self.loop.turn()

    def answer(self, dealer: zmq.Socket[bytes]) -> ToGateway:
        assert dealer.poll(WAIT_MS)
        return wire.decode_for_gateway(dealer.recv())

    def let_pass(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            self.loop.turn()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(wire.new_ipc_address(tmp_path))
    yield bench
    bench.context.destroy(linger=0)
    bench.doorbell.close()


def test_a_ping_is_answered_with_the_engines_facts_and_gauges(bench: Bench) -> None:
    dealer = bench.connect(b"a")
    bench.tell(dealer, Ping(PROTOCOL_VERSION, "gateway"))
    assert bench.answer(dealer) == Pong(PROTOCOL_VERSION, engine_info(), EngineStats())


def test_a_gateway_of_another_protocol_is_refused_and_stays_a_stranger(bench: Bench) -> None:
    dealer = bench.connect(b"a")
    bench.tell(dealer, Ping(PROTOCOL_VERSION + 1, "gateway"))
    goodbye = bench.answer(dealer)
    assert isinstance(goodbye, Goodbye)
    assert f"version {PROTOCOL_VERSION + 1}" in goodbye.reason
    bench.tell(dealer, submit_message())
    assert bench.answer(dealer) == Goodbye(NOT_GREETED)
    assert bench.engine.submitted == []


def test_a_probe_is_answered_and_makes_no_gateway_of_who_asks(bench: Bench) -> None:
    dealer = bench.connect(b"a")
    bench.tell(dealer, Probe(PROTOCOL_VERSION))
    assert bench.answer(dealer) == Pong(PROTOCOL_VERSION, engine_info(), EngineStats())
    bench.tell(dealer, Probe(PROTOCOL_VERSION + 1))
    assert isinstance(bench.answer(dealer), Goodbye)
    bench.tell(dealer, submit_message())
    assert bench.answer(dealer) == Goodbye(NOT_GREETED)
    bench.let_pass(3.0)
    assert bench.engine.freed == []


def test_requests_and_aborts_reach_the_engine_under_their_gateways_name(bench: Bench) -> None:
    first, second = bench.greeted(b"a"), bench.greeted(b"b")
    bench.tell(first, submit_message("r1"))
    bench.tell(second, submit_message("r1"), Abort("r1", 0))
    assert bench.engine.submitted == [(b"a", submit_message("r1")), (b"b", submit_message("r1"))]
    assert bench.engine.aborted == [(b"b", Abort("r1", 0))]


def test_each_gateway_gets_one_message_a_step_with_all_its_events(bench: Bench) -> None:
    first, second = bench.greeted(b"a"), bench.greeted(b"b")
    ours = [TokenEvent("r1", 0, 0, [1]), TokenEvent("r2", 0, 0, [2])]
    theirs = [TokenEvent("r1", 0, 0, [3])]
    bench.engine.outputs = {b"a": ours, b"b": theirs}
    bench.loop.turn()
    outputs = [bench.answer(dealer) for dealer in (first, second)]
    assert [output.events for output in outputs if isinstance(output, StepOutput)] == [ours, theirs]
    assert {output.incarnation for output in outputs if isinstance(output, StepOutput)} == {"first"}
    assert not first.poll(0)


def test_a_recorded_step_goes_with_the_events_of_one_gateway(bench: Bench) -> None:
    first, second = bench.greeted(b"a"), bench.greeted(b"b")
    step = StepSpan("00-1-2-01", 1, 2, {"radixgate.step.number": 3}, ["00-3-4-01"])
    bench.engine.outputs = {b"a": [TokenEvent("r1", 0, 0)], b"b": [TokenEvent("r1", 0, 0)]}
    bench.engine.recorded = (b"b", step)
    bench.loop.turn()
    outputs = [bench.answer(dealer) for dealer in (first, second)]
    assert [one.recorded for one in outputs if isinstance(one, StepOutput)] == [None, step]


def test_a_recorded_step_without_events_is_told_all_the_same(bench: Bench) -> None:
    dealer = bench.greeted(b"a")
    bench.engine.recorded = (b"a", StepSpan("00-1-2-01", 1, 2))
    bench.loop.turn()
    output = bench.answer(dealer)
    assert isinstance(output, StepOutput)
    assert (output.events, output.recorded) == ([], StepSpan("00-1-2-01", 1, 2))
    bench.engine.outputs = {b"a": [TokenEvent("r1", 0, 0)]}
    bench.loop.turn()
    later = bench.answer(dealer)
    assert isinstance(later, StepOutput)
    assert later.recorded is None


def test_a_question_about_the_cache_is_answered_to_who_asked(bench: Bench) -> None:
    first, second = bench.greeted(b"a"), bench.greeted(b"b")
    bench.tell(second, FlushCache("q1"))
    assert bench.answer(second) == CacheFlushed("q1", 7)
    assert not first.poll(0)


def test_a_question_that_the_engine_cannot_answer_is_a_fault_and_ends_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    dealer = bench.greeted(b"a")
    bench.tell(dealer, DescribeCache("q1", owner=None), FlushCache("q2"))
    assert bench.answer(dealer) == CacheFault("q1", NO_ANSWER)
    assert bench.answer(dealer) == CacheFlushed("q2", 7)
    assert "a bug that this question has found" in caplog.text


def test_an_answer_that_takes_longer_comes_when_it_is_there_and_wakes_the_loop(
    bench: Bench,
) -> None:
    dealer = bench.greeted(b"a")
    bench.tell(dealer, ExplainCache("q1", [1], b"", owner=""), FlushCache("q2"))
    assert bench.answer(dealer) == CacheFlushed("q2", 7)
    assert not bench.loop.has_work()
    answered = threading.Thread(
        target=bench.engine.late_answer.set_result, args=(CacheFlushed("q1", 1),)
    )
    answered.start()
    assert select.select([bench.doorbell.fileno()], [], [], WAIT_MS / 1000)[0]
    answered.join()
    assert bench.loop.has_work()
    bench.loop.turn()
    assert bench.answer(dealer) == CacheFlushed("q1", 1)
    assert not bench.loop.has_work()


def test_of_many_questions_one_is_answered_a_step_and_too_many_are_refused(bench: Bench) -> None:
    dealer = bench.greeted(b"a")
    num_refused = 3
    for index in range(MAX_QUESTIONS + num_refused):
        dealer.send(wire.encode(FlushCache(f"q{index}")))
    refusals: list[ToGateway] = []
    while len(refusals) < num_refused:
        # Each turn takes all that has come and answers one, so that some more find a place.
        bench.loop._drain_inbox()
        while dealer.poll(10):
            refusals.append(wire.decode_for_gateway(dealer.recv()))
    assert {type(refusal) for refusal in refusals} == {CacheFault}
    assert bench.engine.asked == []
    assert bench.loop.has_work()
    for _ in range(MAX_QUESTIONS):
        bench.loop.turn()
    assert bench.engine.asked == [(f"q{index}", index + 1) for index in range(MAX_QUESTIONS)]
    assert not bench.loop.has_work()


def test_garbage_is_ignored_and_the_next_request_is_taken(bench: Bench) -> None:
    dealer = bench.greeted(b"a")
    bench.tell(dealer, b"", b"\xc1\xff", wire.encode(Goodbye("confused")))
    dealer.send_multipart([b"two", b"frames"])
    assert bench.router.poll(WAIT_MS)
    bench.loop.turn()
    bench.tell(dealer, submit_message("r1"))
    assert [request.request_id for _, request in bench.engine.submitted] == ["r1"]


def test_a_request_that_the_engine_cannot_take_fails_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    dealer = bench.greeted(b"a")
    trace = TraceContext(f"00-{'ab' * 16}-{'cd' * 8}-01")
    bench.tell(dealer, Submit("bad", [], Sampling(max_tokens=1), num_choices=2, trace=trace))
    assert [vars(record)["trace_id"] for record in caplog.records] == ["ab" * 16]
    output = bench.answer(dealer)
    assert isinstance(output, StepOutput)
    assert [(event.choice, event.error and event.error.code) for event in output.events] == [
        (0, ErrorCode.INTERNAL),
        (1, ErrorCode.INTERNAL),
    ]
    assert bench.engine.aborted == [(b"a", Abort("bad"))]
    bench.tell(dealer, submit_message("good"))
    assert [request.request_id for _, request in bench.engine.submitted] == ["good"]


def test_a_silent_gateway_is_freed_and_told_when_it_comes_back(bench: Bench) -> None:
    dealer, other = bench.greeted(b"a"), bench.greeted(b"b")
    bench.let_pass(1.5)
    bench.tell(other, Ping(PROTOCOL_VERSION, "gateway"))
    bench.let_pass(1.0)
    assert bench.engine.freed == [b"a"]
    bench.tell(dealer, submit_message())
    assert bench.answer(dealer) == Goodbye(FREED)
    assert bench.engine.submitted == []
    bench.tell(dealer, Ping(PROTOCOL_VERSION, "gateway"), submit_message())
    assert isinstance(bench.answer(dealer), Pong)
    assert len(bench.engine.submitted) == 1


def test_a_gateway_whose_connection_is_gone_is_freed_at_the_next_event(bench: Bench) -> None:
    dealer = bench.greeted(b"a")
    with bench.router.get_monitor_socket(zmq.Event.DISCONNECTED) as monitor:
        dealer.close()
        assert monitor.poll(WAIT_MS)
    while not bench.engine.freed:
        bench.engine.outputs = {b"a": [TokenEvent("r1", 0, 0, [1])]}
        bench.loop.turn()
    assert bench.engine.freed == [b"a"]


def test_a_gateway_that_does_not_read_is_freed_and_told(tmp_path: Path) -> None:
    bench = Bench(wire.new_ipc_address(tmp_path))
    bench.router.setsockopt(zmq.SNDHWM, 1)
    bench.router.unbind(bench.address)
    bench.address = wire.new_ipc_address(tmp_path)
    bench.router.bind(bench.address)
    dealer = bench.connect(b"a")
    dealer.setsockopt(zmq.RCVHWM, 1)
    bench.tell(dealer, Ping(PROTOCOL_VERSION, "gateway"))
    while not bench.engine.freed:
        bench.engine.outputs = {b"a": [TokenEvent("r1", 0, 0, [1] * 10_000)]}
        bench.loop.turn()
    dealer.send(wire.encode(Ping(PROTOCOL_VERSION, "gateway")))
    while not isinstance(message := bench.answer(dealer), Goodbye):
        bench.loop.turn()
    assert message == Goodbye(FREED)
    bench.context.destroy(linger=0)
    bench.doorbell.close()


def test_a_flood_of_messages_does_not_keep_the_engine_from_stepping(bench: Bench) -> None:
    dealer = bench.greeted(b"a")
    for number in range(1000):
        dealer.send(wire.encode(submit_message(str(number))))
    steps_before = bench.engine.num_steps
    while len(bench.engine.submitted) < 1000:
        bench.loop.turn()
    assert bench.engine.num_steps - steps_before >= 4


@pytest.mark.parametrize(
    ("in_ns", "sleep_ms"),
    [
        (None, IDLE_POLL_MS),
        (10**12, IDLE_POLL_MS),
        (3_000_000, 3),
        (2_000_001, 3),  # not a moment too early, or the loop would spin until it is time
        (1, 1),
        (0, 0),
        (-(10**9), 0),
    ],
)
def test_the_loop_sleeps_until_the_next_deadline_and_not_for_long(
    bench: Bench, in_ns: int | None, sleep_ms: int
) -> None:
    bench.engine.deadline_ns = None if in_ns is None else NOW_NS + in_ns
    assert bench.loop.sleep_ms() == sleep_ms


def test_the_loop_runs_until_told_and_a_ring_ends_its_sleep(bench: Bench) -> None:
    is_stopping = threading.Event()
    thread = threading.Thread(target=bench.loop.run, args=(is_stopping.is_set,))
    thread.start()
    is_stopping.set()
    bench.doorbell.ring()
    thread.join(timeout=5.0)
    assert not thread.is_alive()


def test_a_doorbell_takes_any_number_of_rings_without_blocking(bench: Bench) -> None:
    def is_ringing() -> bool:
        return bool(select.select([bench.doorbell.fileno()], [], [], 0)[0])

    assert not is_ringing()
    for _ in range(100_000):
        bench.doorbell.ring()
    assert is_ringing()
    bench.doorbell.silence()
    assert not is_ringing()


def test_idle_time_is_used_until_there_is_nothing_more_to_do(bench: Bench) -> None:
    bench.engine.num_pieces = 5
    bench.engine.deadline_ns = NOW_NS
    bench.loop.run(lambda: bench.engine.num_idle >= 5)
    assert bench.engine.num_idle == 5
