"""The line of progress: rewritten on a terminal, now and then elsewhere, never in the way."""

import io
from dataclasses import replace

import pytest

from gateway.bench_progress import ProgressLine, progress_text
from telemetry.bench_run import Arrival, LoadLevel, Progress

PROGRESS = Progress(
    label="ours",
    level=LoadLevel(Arrival.CLOSED, concurrency=4),
    round_number=2,
    num_rounds=3,
    is_warm_up=False,
    num_done=30,
    num_failed=1,
    num_in_flight=4,
    total=120,
    elapsed_s=15.0,
    share=0.25,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def line_on(
    stream: io.StringIO, clock: Clock, *, is_terminal: bool, num_columns: int = 200
) -> ProgressLine:
    return ProgressLine(
        stream, is_terminal=is_terminal, num_columns=lambda: num_columns, now_s=clock
    )


def test_the_line_says_how_far_how_fast_and_how_much_longer() -> None:
    assert progress_text(PROGRESS) == (
        "ours, 4 clients, round 2/3 [#####...............] 30/120 done, 15 s, 2.0/s, "
        "4 in flight, 1 failed, 45 s left"
    )


def test_a_round_that_ends_with_its_time_has_no_total() -> None:
    timed = replace(PROGRESS, total=None, is_warm_up=True, label="a\nb\x1b")
    text = progress_text(timed)
    assert text.startswith("a\\nb\\x1b, 4 clients, warm-up [")
    assert "] 30 done" in text


@pytest.mark.parametrize(("share", "elapsed_s"), [(0.0, 0.0), (1.0, 9.0), (0.5, 0.0), (1.5, 1.0)])
def test_nothing_is_foretold_at_either_end(share: float, elapsed_s: float) -> None:
    text = progress_text(replace(PROGRESS, share=share, elapsed_s=elapsed_s))
    assert "left" not in text
    assert len(text[text.index("[") : text.index("]")]) == 21


def test_a_terminal_has_one_line_that_is_rewritten_and_taken_off() -> None:
    stream, clock = io.StringIO(), Clock()
    with line_on(stream, clock, is_terminal=True) as line:
        line.show(replace(PROGRESS, num_done=100))
        clock.now_s += 0.05
        line.show(replace(PROGRESS, num_done=101))  # too soon
        clock.now_s += 0.1
        line.show(replace(PROGRESS, num_done=9))
    longer, shorter = (progress_text(replace(PROGRESS, num_done=n)) for n in (100, 9))
    shown = stream.getvalue().split("\r")
    assert shown == ["", longer, shorter.ljust(len(longer)), " " * len(shorter), ""]


def test_a_narrow_terminal_is_not_wrapped() -> None:
    stream, clock = io.StringIO(), Clock()
    line_on(stream, clock, is_terminal=True, num_columns=40).show(PROGRESS)
    assert stream.getvalue() == "\r" + progress_text(PROGRESS)[:39]


def test_elsewhere_there_is_a_line_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    with line_on(stream, clock, is_terminal=False) as line:
        for _ in range(25):
            clock.now_s += 1.0
            line.show(PROGRESS)
    assert stream.getvalue() == f"{progress_text(PROGRESS)}\n" * 2


def test_quiet_says_nothing_and_stdout_is_never_touched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressLine.on_stderr(is_quiet=True) as quiet:
        quiet.show(PROGRESS)
    loud = ProgressLine.on_stderr(is_quiet=False)
    loud._next_s = 0.0
    loud.show(PROGRESS)
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err == f"{progress_text(PROGRESS)}\n"


def test_a_watcher_that_is_gone_does_not_end_the_run() -> None:
    class Broken(io.StringIO):
        num_tries = 0

        def write(self, text: str) -> int:  # noqa: ARG002
            self.num_tries += 1
            raise BrokenPipeError

    stream, clock = Broken(), Clock()
    with line_on(stream, clock, is_terminal=True) as line:
        line.show(PROGRESS)
        clock.now_s += 1
        line.show(PROGRESS)
    assert stream.num_tries == 1
