"""Frames: what goes in comes out, and whatever bytes arrive, only one error leaves."""

import logging
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from grammar.spec import PreparedConstraint
from runtime import wire
from runtime.messages import (
    PROTOCOL_VERSION,
    Abort,
    EngineFault,
    EngineStats,
    ErrorCode,
    Goodbye,
    Phase,
    Ping,
    Pong,
    Sampling,
    StepOutput,
    Submit,
    ToGateway,
    TokenEvent,
    TokenLogprob,
    ToRuntime,
    TraceContext,
)
from tests.unit.runtime.fake_runtime import engine_info

SUBMIT = Submit(
    "r1",
    [1, 2, 49151],
    Sampling(max_tokens=5, logit_bias={7: -100.0}, stop_token_ids=(2,), num_logprobs=3),
    num_choices=2,
    constraint=PreparedConstraint("llguidance", "json_schema", '{"type": "object"}'),
    namespace=b"\x00tenant",
    deadline_ns=1_700_000_000_000_000_000,
    trace=TraceContext("00-aa-bb-01", "vendor=1"),
)
EVENT = TokenEvent(
    "r1",
    1,
    4,
    [5],
    [TokenLogprob(-0.5, ((5, -0.5), (6, -1.25)))],
    phases=[Phase("prefill", 1, 2, {"tokens": 3, "cached": True})],
    error=EngineFault(ErrorCode.INTERNAL, "why"),
)


@pytest.mark.parametrize("message", [SUBMIT, Abort("r1"), Abort("r1", 3), Ping(1, "gateway")])
def test_messages_to_a_runtime_survive_the_wire(message: ToRuntime) -> None:
    assert wire.decode_for_runtime(wire.encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        StepOutput("first", 9, [EVENT], EngineStats(steps=9)),
        Pong(PROTOCOL_VERSION, engine_info(), EngineStats()),
        Goodbye("no"),
    ],
)
def test_messages_to_a_gateway_survive_the_wire(message: ToGateway) -> None:
    assert wire.decode_for_gateway(wire.encode(message)) == message


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        b"\x81\xa4type\xa4Ping",
        b"\x82\xa4type\xa4Ping\xa1x" + b"\x91" * 100_000 + b"\xc0",
        wire.encode(Goodbye("not for a runtime")),
    ],
)
def test_a_frame_that_is_no_message_is_one_kind_of_error(frame: bytes) -> None:
    with pytest.raises(wire.UndecodableFrame):
        wire.decode_for_runtime(frame)


@given(st.binary(max_size=64) | st.integers(0, 200).map(lambda n: wire.encode(SUBMIT)[:n]))
def test_no_bytes_raise_anything_else(frame: bytes) -> None:
    for decode in (wire.decode_for_runtime, wire.decode_for_gateway):
        try:
            decode(frame)
        except wire.UndecodableFrame:
            continue


def test_another_protocol_version_is_explained_and_ours_is_not() -> None:
    assert wire.protocol_mismatch(PROTOCOL_VERSION) is None
    mismatch = wire.protocol_mismatch(99)
    assert mismatch is not None
    assert "99" in mismatch
    assert str(PROTOCOL_VERSION) in mismatch


def test_ipc_addresses_are_fresh_and_fit_a_socket() -> None:
    first, second = (wire.new_ipc_address(Path("/tmp/radixgate-test")) for _ in range(2))
    assert first != second
    with pytest.raises(ValueError, match="107"):
        wire.new_ipc_address(Path("/tmp") / ("x" * 100))


def test_sockets_bound_what_they_queue_and_never_linger() -> None:
    with zmq.Context() as context:
        for kind, configure in (
            (zmq.ROUTER, wire.configure_router),
            (zmq.DEALER, wire.configure_dealer),
        ):
            with context.socket(kind) as socket:
                configure(socket)
                assert socket.getsockopt(zmq.LINGER) == 0
                assert socket.getsockopt(zmq.SNDHWM) == wire.MAX_QUEUED_MESSAGES
                assert socket.getsockopt(zmq.MAXMSGSIZE) == wire.MAX_MESSAGE_BYTES


def test_a_flood_of_garbage_is_counted_whole_and_logged_thinly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counter = wire.GarbageCounter(logging.getLogger("test"))
    for _ in range(1000):
        counter.add("peer", "reason")
    assert counter.count == 1000
    assert len(caplog.records) == 10
