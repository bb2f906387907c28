"""What the bench of traces makes of what it measured, and its collector."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from telemetry.settings import BatchSettings, ExportSettings
from telemetry.setup import make_sampler, make_spans
from tests.bench.span_collector import Answers, count_spans, make_server
from tests.bench.tracing_cost import Cost, Round, SpanCount, Turn


def turn(tok_s: float, gateway_ms: float = 1.0) -> Turn:
    return Turn(tok_s, tok_s / 8, gateway_ms, 0.0)


def test_the_cost_is_of_medians_so_that_one_bad_turn_says_nothing() -> None:
    rounds = [
        Round(turn(100, 4.0), turn(98, 4.5)),
        Round(turn(102, 4.2), turn(20, 9.0)),
        Round(turn(101, 4.1), turn(99, 4.6)),
    ]
    cost = Cost.of(rounds)
    assert cost.ratio == pytest.approx(98 / 101)
    assert cost.gateway_ms == pytest.approx(4.6 - 4.1)


@pytest.mark.parametrize(
    ("collector", "exported", "dropped", "received", "is_right"),
    [
        ("live", 16, 0, 16, True),
        ("live", 16, 1, 16, False),
        ("live", 16, 0, 15, False),
        ("live", 13, 0, 13, False),
        ("dead", 0, 16, 0, True),
        ("dead", 0, 13, 0, False),
        ("refusing", 0, 16, 0, True),
        ("refusing", 1, 15, 1, False),
        ("slow", 8, 8, 8, True),
        ("slow", 16, 0, 16, True),
        ("slow", 8, 8, 9, False),
        ("slow", 8, 4, 8, False),
    ],
)
def test_every_span_must_have_arrived_or_be_counted(
    collector: str, exported: int, dropped: int, received: int, is_right: bool
) -> None:
    count = SpanCount(exported, dropped, received)
    assert count.is_right(collector, num_requests=2) is is_right


def encoded(num_spans: int) -> bytes:
    """As an exporter sends them, with everything that a span can have."""
    exporter = InMemorySpanExporter()
    settings = ExportSettings("http://c", "http/protobuf", "always_on", 1.0, BatchSettings())
    source = make_spans(
        SimpleSpanProcessor(exporter), sampler=make_sampler(settings), service_version="1"
    )
    for number in range(num_spans):
        draft = source.start("s", parent=None, attributes={"a": "x" * 300}, start_ns=number)
        draft.error = "why"
        source.end([draft])
    body: bytes = encode_spans(exporter.get_finished_spans()).SerializeToString()
    return body


@pytest.mark.parametrize("num_spans", [0, 1, 300])
def test_spans_are_counted_without_being_read(num_spans: int) -> None:
    assert count_spans(memoryview(encoded(num_spans))) == num_spans


@pytest.mark.parametrize("body", [b"\x0a\xff", b"\x0a\x05ab", b"\x08\x01", b"\x0a"])
def test_what_is_no_request_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        count_spans(memoryview(body))


@contextmanager
def collector(answers: Answers) -> Iterator[str]:
    server = make_server(answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def counted(url: str) -> int:
    with urllib.request.urlopen(f"{url}/count", timeout=5) as answer:
        number: int = json.loads(answer.read())
        return number


def test_a_live_collector_says_how_many_it_took() -> None:
    with collector("live") as url:
        for _ in range(2):
            urllib.request.urlopen(f"{url}/v1/traces", encoded(3), timeout=5).close()
        assert counted(url) == 6


def test_a_refusing_collector_took_none() -> None:
    with collector("refusing") as url:
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"{url}/v1/traces", encoded(3), timeout=5)
        assert counted(url) == 0
