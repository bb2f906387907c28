"""W3C trace context: what is read, what is ignored, what is written."""

import logging

import pytest

from telemetry.w3c import format_traceparent, read_context

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_good_header_is_read_and_written_back() -> None:
    context = read_context({"traceparent": f" {GOOD}\t"})
    assert context is not None
    assert context.is_remote
    assert format_traceparent(context) == GOOD


def test_a_later_version_with_more_fields_is_read() -> None:
    context = read_context({"traceparent": "cc" + GOOD[2:] + "-more"})
    assert context is not None


@pytest.mark.parametrize(
    "header",
    [
        "",
        GOOD[:-1],
        GOOD + "-extra",
        GOOD.upper(),
        "ff" + GOOD[2:],
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "cc" + GOOD[2:] + "-" + "x" * 1000,
        GOOD + "\n",
    ],
)
def test_a_malformed_traceparent_is_ignored(header: str) -> None:
    assert read_context({"traceparent": header}) is None


def test_two_traceparents_are_ignored() -> None:
    class Headers(dict[str, str]):
        def items(self):  # type: ignore[no-untyped-def]
            return [("traceparent", GOOD), ("traceparent", GOOD)]

    assert read_context(Headers()) is None


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        ("a=1, b=2 ,", "a=1,b=2"),
        ("vendor@system=x/y:z", "vendor@system=x/y:z"),
        ("a=1,a=2", ""),
        ("A=1", ""),
        ("a", ""),
        ("a=1=2", ""),
        ("a=" + "x" * 600, ""),
        (",".join(f"k{i}=v" for i in range(33)), ""),
    ],
)
def test_tracestate_is_kept_whole_or_not_at_all_and_never_logged(
    header: str, kept: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    context = read_context({"traceparent": GOOD, "tracestate": header})
    assert context is not None
    assert context.trace_state.to_header() == kept
    assert caplog.records == []
