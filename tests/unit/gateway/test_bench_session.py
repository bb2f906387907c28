"""`radixgate bench`: arrivals, levels, rounds, several servers, words, warm-up; what is refused."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.cli import main
from telemetry.arrivals import poisson_times
from telemetry.bench_figures import compare, figures_of
from telemetry.bench_json import decode_run
from telemetry.bench_run import Arrival, BenchRun, FailureKind
from tests.fake_openai_server import make_app
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("--output-tokens", "4", "--prompt-tokens", "5")


class Front:
    """The fake server, which notes its bodies; `refuse` gives the message of a 400 for a body."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.bodies: list[dict[str, Any]] = []
        self.pause_s = 0.0
        self.in_flight = self.most = 0

    def refuse(self, body: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        return None

    @web.middleware
    async def note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.method == "POST":
            body = await request.json()
            if (said := self.refuse(body)) is not None:
                return web.json_response({"error": {"message": said}}, status=400)
            self.bodies.append(body)
            self.log.append(self.name)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(self.pause_s)
            reply: web.StreamResponse = await handler(request)
            return reply
        finally:
            self.in_flight -= 1

    @property
    def played(self) -> list[dict[str, Any]]:
        """Without what the start asked."""
        return [body for body in self.bodies if body["max_tokens"] != 1]

    @property
    def words(self) -> list[str]:
        return [" ".join(one["content"] for one in body["messages"]) for body in self.played]


@asynccontextmanager
async def served(front: Front) -> AsyncIterator[str]:
    app = make_app()
    app.middlewares.append(front.note)
    async with TestServer(app) as server:
        yield str(server.make_url("/v1"))


async def bench(folder: Path, *flags: str) -> tuple[int, BenchRun]:
    out = folder / "out.json"
    arguments = ["bench", "--json-out", str(out), "--quiet", *flags]
    code = await asyncio.to_thread(main, arguments)
    return code, decode_run(out.read_bytes())


async def test_servers_take_turns_and_get_the_same_words_at_each_level_and_round(
    tmp_path: Path,
) -> None:
    log: list[str] = []
    first, second = Front("a", log), Front("b", log)
    async with served(first) as one, served(second) as other:
        servers = ("--url", one, "--url", other, "--label", "a", "--label", "b")
        sizes = ("--concurrency", "1,2", "--rounds", "2", "--requests", "3", "--seed", "7")
        code, run = await bench(tmp_path, *servers, *sizes, "--workload", "unique", *SMALL)
    assert code == 0
    probes, played = log[:2], log[2:]
    assert probes == ["a", "b"]
    in_turn = [played[start : start + 3] for start in range(0, len(played), 3)]
    assert in_turn == [[name] * 3 for name in "abab" + "baba"]
    assert sorted(first.words) == sorted(second.words)
    assert len(set(first.words)) == 12  # every round and level has its own
    assert [(one.level.concurrency, one.label) for one in run.series] == [
        (1, "a"), (1, "b"), (2, "a"), (2, "b"),
    ]  # fmt: skip
    assert [one.number for one in run.series[0].rounds] == [1, 2]
    assert [(one.label, one.baseline) for one in compare(run)] == [("b", "a")] * 2


async def test_the_same_words_are_said_again_where_that_is_wanted(tmp_path: Path) -> None:
    front = Front("a", [])
    async with served(front) as url:
        flags = ("--url", url, "--workload", "unique", "--requests", "3", "--rounds", "2", *SMALL)
        await bench(tmp_path, *flags, "--same-words", "--warmup", "3")
    assert len(front.words) == 12
    assert len(set(front.words)) == 3


async def test_what_warms_up_is_recorded_apart_and_says_other_words(tmp_path: Path) -> None:
    front = Front("a", [])
    async with served(front) as url:
        flags = ("--url", url, "--workload", "shared_prefix", "--requests", "6", "--warmup", "2")
        _, run = await bench(tmp_path, *flags, *SMALL, "--prefix-tokens", "30")
    (series,) = run.series
    records = series.rounds[0].records
    assert [one.is_warm_up for one in records] == [True] * 2 + [False] * 6
    assert all(one.end_s <= 0 for one in records[:2])
    assert all(one.start_s >= 0 for one in records[2:])
    figures = figures_of(series)
    assert (figures.num_requests, figures.output_tokens) == (6, 24)
    assert figures.wall_s == pytest.approx(max(one.end_s for one in records), abs=1e-6)
    beginnings = {words.split()[0] + words.split()[1] for words in front.words}
    assert len(beginnings) == 2


async def test_a_poisson_process_sends_at_its_own_times(tmp_path: Path) -> None:
    front = Front("a", [])
    front.pause_s = 0.05
    async with served(front) as url:
        flags = ("--url", url, "--workload", "unique", "--rate", "100", "--requests", "20", *SMALL)
        _, run = await bench(tmp_path, *flags, "--seed", "3")
    (series,) = run.series
    records = sorted(series.measured(), key=lambda one: one.scheduled_s)
    times = poisson_times(100.0, 3)
    assert [one.scheduled_s for one in records] == pytest.approx(
        [next(times) for _ in records], abs=1e-6
    )
    assert (run.arrival, series.level.rate) == (Arrival.POISSON, 100.0)
    assert all(one.start_s >= one.scheduled_s for one in records)
    assert front.most > 2  # nobody waits for answers


async def test_an_open_loop_at_its_bound_is_late_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    front = Front("a", [])
    front.pause_s = 0.05
    async with served(front) as url:
        flags = ("--url", url, "--workload", "unique", "--rate", "200", "--requests", "8", *SMALL)
        _, run = await bench(tmp_path, *flags, "--max-in-flight", "1")
    assert front.most == 1
    late = figures_of(run.series[0]).late
    assert late is not None
    assert late.max > 0.2
    assert "later than they should" in capsys.readouterr().out


async def test_what_had_no_place_before_the_end_of_an_open_loop_is_counted(tmp_path: Path) -> None:
    front = Front("a", [])
    front.pause_s = 0.05
    async with served(front) as url:
        flags = ("--url", url, "--workload", "unique", "--rate", "200", "--duration", "200ms")
        _, run = await bench(tmp_path, *flags, *SMALL, "--max-in-flight", "1")
    sent = len(front.played)
    planned = sum(at_s < 0.2 for at_s in islice(poisson_times(200, 1), 1000))
    assert sent < 8 < planned
    assert run.series[0].num_unsent == planned - sent


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(("--concurrency", "1,1500"), 1500), (("--rate", "500", "--max-in-flight", "1700"), 1700)],
)
async def test_as_many_connections_are_allowed_as_the_largest_load_may_have(
    flags: tuple[str, ...], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[int] = []
    monkeypatch.setattr("gateway.bench_session.allow_files", allowed.append)
    await asyncio.to_thread(main, ["bench", "--url", "http://127.0.0.1:9/v1", *flags])
    assert allowed == [expected]


async def test_a_conversation_counts_its_turns_to_the_rate(tmp_path: Path) -> None:
    front = Front("a", [])
    async with served(front) as url:
        flags = ("--url", url, "--workload", "multi_turn", "--turns", "4", "--rate", "200", *SMALL)
        _, run = await bench(tmp_path, *flags, "--requests", "12", "--seed", "3")
    times = poisson_times(200.0 / 4, 3)
    found = {one.user: one.scheduled_s for one in run.series[0].measured() if one.turn == 0}
    assert [found[user] for user in range(3)] == pytest.approx(
        [next(times) for _ in range(3)], abs=1e-6
    )


async def test_a_trace_is_played_at_its_times_and_speed(tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "from the file"}], "max_tokens": 2}
    trace = [
        {"timestamp": 5000, "input_length": 700, "output_length": 3, "hash_ids": [4, 5]},
        {"timestamp": 5200, "input_length": 600, "output_length": 2, "hash_ids": [4, 6]},
        {"timestamp": 5300, "body": body},
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, trace)))
    front = Front("a", [])
    async with served(front) as url:
        flags = ("--url", url, "--trace", str(path), "--trace-unit", "ms", "--speed", "2")
        code, run = await bench(tmp_path, *flags)
    assert (code, run.workload.name, run.arrival) == (0, "trace", Arrival.TRACE)
    records = sorted(run.series[0].measured(), key=lambda one: one.scheduled_s)
    assert [one.scheduled_s for one in records] == pytest.approx([0.0, 0.1, 0.15], abs=1e-6)
    assert [one.output_tokens for one in records] == [3, 2, 2]
    first, second, third = (words.split() for words in front.words)
    assert (len(first), len(second), third) == (700, 600, ["from", "the", "file"])
    assert first[:512] == second[:512]
    assert first[512:600] != second[512:600]


@pytest.mark.parametrize(("arrivals", "at_least"), [(("--users", "2"), 6), (("--rate", "9"), 1)])
async def test_a_duration_ends_a_load_that_has_no_other_end(
    tmp_path: Path, arrivals: tuple[str, str], at_least: int
) -> None:
    """The time is that of the load, though the last of a few answers may have come before."""
    front = Front("a", [])
    front.pause_s = 0.01
    async with served(front) as url:
        flags = ("--url", url, "--workload", "unique", "--duration", "300ms", *SMALL)
        _, run = await bench(tmp_path, *flags, *arrivals)
    (series,) = run.series
    assert 0.3 <= series.wall_s < 1.0
    records = list(series.measured())
    assert len(records) >= at_least
    assert max(one.start_s for one in records) < 0.3
    assert series.num_unsent == 0


async def test_answers_are_held_against_the_schemas_they_were_to_fit(tmp_path: Path) -> None:
    """The fake server's every other answer fits this one."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}
    messages = [{"role": "user", "content": "Ada"}]
    body = {"messages": messages, "max_tokens": 9, "response_format": wanted}
    path = tmp_path / "b.jsonl"
    path.write_text("\n".join([json.dumps(body)] * 6))
    front = Front("a", [])
    async with served(front) as url:
        _, run = await bench(tmp_path, "--url", url, "--workload", str(path))
        _, strict = await bench(
            tmp_path, "--url", url, "--workload", "json_schema", "--requests", "6"
        )
    assert figures_of(run.series[0]).valid_share == 0.5
    assert figures_of(strict.series[0]).valid_share == 0.0
    sent = front.bodies[-1]["response_format"]["json_schema"]
    assert sent["strict"] is True


class OlderServer(Front):
    """Knows neither `ignore_eos` nor token ids, and says so one after the other."""

    def refuse(self, body: Mapping[str, Any]) -> str | None:
        for field in ("ignore_eos", "return_token_ids"):
            if field in body:
                return f"unknown field {field}"
        return None


class CurtServer(Front):
    """Refuses one field without a word about it."""

    def refuse(self, body: Mapping[str, Any]) -> str | None:
        return "bad request" if "temperature" in body else None


class NewerServer(Front):
    """Has another name for the limit."""

    def refuse(self, body: Mapping[str, Any]) -> str | None:
        return (
            "'max_tokens' is not supported: use max_completion_tokens" * ("max_tokens" in body)
            or None
        )

    @property
    def played(self) -> list[dict[str, Any]]:
        return self.bodies


@pytest.mark.parametrize(
    ("kind", "absent", "kept"),
    [
        (OlderServer, {"ignore_eos", "return_token_ids"}, {"temperature", "max_tokens"}),
        (CurtServer, {"temperature"}, {"ignore_eos", "return_token_ids", "stream_options"}),
    ],
)
async def test_what_a_server_refuses_is_left_out_and_said(
    tmp_path: Path,
    kind: type[Front],
    absent: set[str],
    kept: set[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    front = kind("a", [])
    async with served(front) as url:
        flags = ("--url", url, "--workload", "unique", "--requests", "3", *SMALL)
        code, run = await bench(tmp_path, *flags)
    assert code == 0
    for body in front.played:
        assert not absent & body.keys()
        assert kept <= body.keys()
    said = capsys.readouterr().out
    assert len(run.series[0].notes) == len(absent)
    assert all(f"the server refuses {field}" in said for field in absent)


async def test_the_limit_has_the_name_that_the_server_knows(tmp_path: Path) -> None:
    front = NewerServer("a", [])

    async def chat(request: web.Request) -> web.Response:
        body = await request.json()
        if (said := front.refuse(body)) is not None:
            return web.json_response({"error": {"message": said}}, status=400)
        front.bodies.append(body)
        events = [
            {"choices": [{"index": 0, "delta": {"content": "a"}}]},
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        ]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", chat)])
    async with TestServer(app) as server:
        flags = ("--url", str(server.make_url("/v1")), "--model", "m", "--workload", "unique")
        code, _ = await bench(tmp_path, *flags, "--requests", "2", *SMALL)
    assert code == 0
    assert [body["max_completion_tokens"] for body in front.bodies] == [1, 4, 4]


async def test_a_server_that_goes_away_is_a_kind_of_error_for_each_request(tmp_path: Path) -> None:
    front = Front("a", [])
    async with served(front) as url:

        def refuse(body: Mapping[str, Any]) -> str | None:
            return "gone" if body["max_tokens"] != 1 else None

        front.refuse = refuse  # type: ignore[method-assign]
        flags = ("--url", url, "--workload", "unique", "--requests", "5", *SMALL)
        code, run = await bench(tmp_path, *flags)
    assert code == 1
    figures = figures_of(run.series[0])
    assert figures.errors == {FailureKind.STATUS: 5}
    assert (figures.ttft, figures.num_answered) == (None, 0)


async def test_an_interrupt_ends_with_a_report_of_what_was_measured(tmp_path: Path) -> None:
    front = Front("a", [])
    front.pause_s = 0.01
    out = tmp_path / "out.json"
    async with served(front) as url:
        flags = ["--url", url, "--workload", "unique", "--duration", "60s", "--json-out", str(out)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.cli", "bench", "--quiet", *flags, *SMALL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        await until(lambda: len(front.played) >= 20)
        os.kill(process.pid, signal.SIGINT)
        said, complained = await process.communicate()
    assert process.returncode == 130
    run = decode_run(out.read_bytes())
    assert run.is_interrupted
    figures = figures_of(run.series[0])
    assert figures.num_answered >= 5
    assert figures.num_failed == 0
    assert b"ended by hand" in said
    assert b"interrupted" in complained
    assert b"Traceback" not in complained


async def test_an_interrupt_before_anything_was_measured_says_so() -> None:
    asked = asyncio.Event()

    async def never(_request: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    app = web.Application()
    app.add_routes([web.get("/v1/models", never)])
    async with TestServer(app) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.cli", "bench", "--url", str(server.make_url("/v1")),
            stderr=asyncio.subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        await asked.wait()
        os.kill(process.pid, signal.SIGINT)
        _, complained = await process.communicate()
    assert process.returncode == 130
    assert complained == b"radixgate: interrupted\n"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--rate", "1", "--concurrency", "2"), "--rate: it does not belong"),
        (("--arrival", "closed", "--rate", "1"), "--rate: it does not belong"),
        (("--arrival", "poisson"), "--rate is missing"),
        (("--arrival", "trace"), "--trace is missing"),
        (("--speed", "2"), "--speed"),
        (("--workload", "unique", "--turns", "2"), "unique has no --turns"),
        (("--workload", "none.json"), "none.json: no file, and none of chat, unique"),
        (("--trace", "none.jsonl"), "none.jsonl"),
        (("--concurrency", "2,2"), "twice"),
        (("--label", "a", "--label", "b"), "2 for 1"),
        (("--header-env", "X=NO_SUCH_VARIABLE"), "no environment variable"),
        (("--header-env", "X y=HOME"), "expected NAME=VARIABLE"),
        (("--header-env", "Content-Length=HOME"), "itself"),
        (("--json-out", "/none/x"), "/none/x"),
    ],
)
def test_flags_that_do_not_fit_are_said_in_a_line(
    flags: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--url", "http://127.0.0.1:9/v1", *flags]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "flags",
    [
        ("--concurrency", "0"),
        ("--concurrency", "1,,2"),
        ("--concurrency", "²"),
        ("--rate", "-1"),
        ("--rate", "nan"),
        ("--rate", "inf"),
        ("--duration", "5 parsecs"),
        ("--duration", "0s"),
        ("--slo", "ttft=5"),
        ("--slo", "speed=5ms"),
        ("--slo", "ttft=5ms,ttft=6ms"),
        ("--price-per-hour", "-2"),
        ("--endpoint", "embeddings"),
    ],
)
def test_values_that_no_flag_has_are_refused(
    flags: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", *flags])
    assert end.value.code == 2
    assert flags[0] in capsys.readouterr().err
