"""`radixgate bench` from its flags to its output, on a server without a model."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.cli import main
from telemetry.bench_figures import SeriesFigures, figures_of
from telemetry.bench_json import decode_run
from telemetry.bench_run import BenchRun, FailureKind
from tests.fake_openai_server import CACHED_TOKENS, make_app

CHATS = {
    "version": 1,
    "kind": "multi_turn",
    "users": 3,
    "turns": 4,
    "system_tokens": 10,
    "user_tokens": 5,
    "output_tokens": 6,
}


class Seen:
    """The bodies and keys of the chat requests that came in."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.now = 0
        self.most = 0

    @web.middleware
    async def note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.method == "POST":
            self.bodies.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)  # one more than there should be would come in now
        try:
            reply: web.StreamResponse = await handler(request)
            return reply
        finally:
            self.now -= 1


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def url(seen: Seen) -> AsyncIterator[str]:
    app = make_app()
    app.middlewares.append(seen.note)
    async with TestServer(app) as server:
        yield str(server.make_url("/v1"))


async def bench(folder: Path, workload: object, *flags: str) -> tuple[int, BenchRun | None]:
    """The exit code and the run as the JSON file has it."""
    path, out = folder / "w.json", folder / "out.json"
    path.write_text(json.dumps(workload))
    out.unlink(missing_ok=True)
    arguments = ["bench", "--workload", str(path), "--json-out", str(out), "--quiet", *flags]
    code = await asyncio.to_thread(main, arguments)
    is_written = out.exists() and out.stat().st_size
    return code, decode_run(out.read_bytes()) if is_written else None


def only(run: BenchRun | None) -> SeriesFigures:
    """The figures of a run of one series."""
    assert run is not None
    (series,) = run.series
    return figures_of(series, slo=run.slo, price_per_hour=run.price_per_hour)


async def test_a_workload_is_played_and_its_figures_are_said(
    tmp_path: Path, url: str, seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    code, run = await bench(tmp_path, CHATS, "--url", url)
    figures = only(run)
    assert run is not None
    assert (code, figures.num_requests, figures.num_failed) == (0, 12, 0)
    (series,) = run.series
    assert (series.model, series.level.concurrency, seen.most) == ("fake", 3, 3)
    # System, question, and for each turn before: question and answer.
    expected = 3 * sum(15 + turn * (5 + 6) for turn in range(4))
    assert figures.prompt_tokens == expected
    assert figures.output_tokens == 12 * 6
    # All of the last turn; the system prompt of whoever was not first; words may agree by chance.
    at_least = 3 * sum(15 + 6 + turn * 11 for turn in range(3)) + 2 * 10
    assert figures.cacheable_tokens is not None
    assert at_least <= figures.cacheable_tokens <= at_least + 10
    assert figures.used_share == pytest.approx(11 * 3 / figures.cacheable_tokens)
    assert figures.cached_tokens == 12 * CACHED_TOKENS
    assert "requests" in capsys.readouterr().out
    assert sorted((one.user, one.turn) for one in series.measured()) == [
        (user, turn) for user in range(3) for turn in range(4)
    ]


async def test_each_turn_follows_the_answer_to_the_last(
    tmp_path: Path, url: str, seen: Seen
) -> None:
    await bench(tmp_path, CHATS | {"users": 1}, "--url", url)
    probe, *bodies = seen.bodies
    assert probe["max_tokens"] == 1
    assert [len(body["messages"]) for body in bodies] == [2, 4, 6, 8]
    answer = "word0 word1 word2 word3 word4 word5 "
    assert bodies[1]["messages"][2] == {"role": "assistant", "content": answer}
    assert bodies[3]["messages"][:6] == bodies[2]["messages"]


async def test_flags_bound_clients_and_requests_and_choose_seed_and_model(
    tmp_path: Path, url: str, seen: Seen
) -> None:
    flags = ("--concurrency", "2", "--requests", "5", "--seed", "9", "--model", "other")
    code, run = await bench(tmp_path, CHATS, "--url", url, *flags)
    figures = only(run)
    assert run is not None
    assert (code, figures.num_requests, run.series[0].num_unsent) == (0, 5, 0)
    assert (seen.most, run.series[0].level.concurrency, run.seed) == (2, 2, 9)
    assert {body["model"] for body in seen.bodies} == {"other"}
    words = seen.bodies[1]["messages"][0]["content"]
    await bench(tmp_path, CHATS, "--url", url, "--requests", "1")
    assert seen.bodies[-1]["messages"][0]["content"] != words


async def test_there_are_no_more_clients_than_a_file_has_conversations(
    tmp_path: Path, url: str
) -> None:
    _, run = await bench(tmp_path, CHATS, "--url", url, "--concurrency", "50", "--requests", "3")
    assert run is not None
    assert run.series[0].level.concurrency == 3


async def test_the_key_comes_from_the_environment(
    tmp_path: Path, url: str, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    await bench(tmp_path, CHATS, "--url", url, "--requests", "1")
    assert set(seen.keys) == {"Bearer secret"}
    monkeypatch.delenv("OPENAI_API_KEY")
    seen.keys.clear()
    await bench(tmp_path, CHATS, "--url", url, "--requests", "1")
    assert set(seen.keys) == {None}


@pytest.mark.parametrize(
    ("word", "kind", "reason"),
    [
        ("fail", FailureKind.STATUS, "status 500"),
        ("break", FailureKind.BROKEN_STREAM, "end mark"),
    ],
)
async def test_a_failed_request_ends_its_conversation_only_and_is_told(
    tmp_path: Path,
    url: str,
    capsys: pytest.CaptureFixture[str],
    word: str,
    kind: FailureKind,
    reason: str,
) -> None:
    bodies = [{"messages": [{"role": "user", "content": text}], "max_tokens": 2}
              for text in ("a", word, "b")]  # fmt: skip
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, bodies)))
    given = {"version": 1, "kind": "requests", "file": "b.jsonl"}
    code, run = await bench(tmp_path, given, "--url", url)
    figures = only(run)
    assert (code, figures.num_requests, figures.errors) == (1, 3, {kind: 1})
    assert figures.output_tokens == 4
    assert reason in capsys.readouterr().err


async def test_a_server_that_tells_no_ids_is_measured_without_them(tmp_path: Path) -> None:
    @web.middleware
    async def refuse_ids(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.method == "POST" and "return_token_ids" in await request.json():
            return web.json_response({"error": "unknown field"}, status=400)
        reply: web.StreamResponse = await handler(request)
        return reply

    app = make_app()
    app.middlewares.append(refuse_ids)
    async with TestServer(app) as server:
        code, run = await bench(tmp_path, CHATS, "--url", str(server.make_url("/v1")))
    figures = only(run)
    assert (code, figures.num_failed) == (0, 0)
    assert (figures.cacheable_tokens, figures.used_share) == (None, None)
    assert run is not None
    assert any("return_token_ids" in note for note in run.series[0].notes)


@pytest.mark.parametrize(
    ("workload", "url", "code", "reason"),
    [
        (CHATS, "http://127.0.0.1:9/v1", 1, "http://127.0.0.1:9/v1: the server does not answer"),
        (CHATS, "127.0.0.1:9", 1, "expected a URL such as"),
        (CHATS, "http://a:b/v1", 1, "http://a:b/v1"),
        ({"version": 1}, "http://127.0.0.1:9/v1", 2, "missing required field `kind`"),
    ],
)
async def test_what_cannot_be_measured_is_said_in_a_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    workload: object,
    url: str,
    code: int,
    reason: str,
) -> None:
    found, _ = await bench(tmp_path, workload, "--url", url)
    said = capsys.readouterr().err
    assert found == code
    assert reason in said
    assert said.count("\n") == 1


async def test_a_bad_path_for_the_figures_is_told_before_the_work(
    tmp_path: Path, url: str, seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(CHATS))
    arguments = ["bench", "--workload", str(path), "--url", url, "--json-out", "/none/out.json"]
    assert await asyncio.to_thread(main, arguments) == 2
    assert "/none/out.json" in capsys.readouterr().err
    assert seen.keys == []


def strange_server(*, model: str = "m", answer: bytes) -> web.Application:
    async def models(request: web.Request) -> web.Response:  # noqa: ARG001
        return web.json_response({"data": [{"id": model}]})

    async def chat(request: web.Request) -> web.Response:  # noqa: ARG001
        return web.Response(body=answer, content_type="text/event-stream")

    app = web.Application()
    app.add_routes([web.get("/v1/models", models), web.post("/v1/chat/completions", chat)])
    return app


ANSWER = (
    b'data: {"choices": [{"delta": {"content": "a"}}, 5]}\n\n'
    b'data: {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}\n\n'
    b"data: [DONE]\n\n"
)


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        ("\x1b[2Jm\n", ANSWER),
        ("m", b'data: {"error": "\\u001b[2J\\r"}\n\n'),
        ("m", b"data: \x1b[2J\n\n"),
    ],
)
async def test_nothing_that_a_server_says_is_obeyed_by_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, answer: bytes
) -> None:
    async with TestServer(strange_server(model=model, answer=answer)) as server:
        await bench(tmp_path, CHATS, "--url", str(server.make_url("/v1")))
    out, err = capsys.readouterr()
    assert (out + err).replace("\n", "").isprintable()
    assert err.count("\n") <= 1


async def test_half_a_character_in_an_answer_is_part_of_the_history(tmp_path: Path) -> None:
    half = ANSWER.replace(b'"a"', b'"\\ud800"')
    async with TestServer(strange_server(answer=half)) as server:
        code, run = await bench(tmp_path, CHATS, "--url", str(server.make_url("/v1")))
    assert (code, only(run).num_answered) == (0, 12)


@pytest.mark.parametrize(
    ("path", "hint"), [("", "most servers want a URL that ends in /v1"), ("/v1", "--model")]
)
async def test_a_page_in_place_of_a_list_of_models_is_said_with_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, hint: str
) -> None:
    async def page(request: web.Request) -> web.Response:  # noqa: ARG001
        return web.Response(text="<html>", content_type="text/html")

    app = web.Application()
    app.add_routes([web.get("/{any:.*}", page)])
    async with TestServer(app) as server:
        code, _ = await bench(tmp_path, CHATS, "--url", str(server.make_url(path)))
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (1, 1)
    assert hint in err


async def test_a_key_that_no_header_can_have_is_said_in_a_line(
    tmp_path: Path,
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret\nX: y")
    code, _ = await bench(tmp_path, CHATS, "--url", url)
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (1, 1)
    assert "secret" not in err
