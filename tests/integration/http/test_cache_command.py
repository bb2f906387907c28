"""`radixgate cache` against a server on a real socket."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli import main
from runtime.cache_messages import (
    CacheAnswer,
    CachedEdge,
    CacheDescription,
    CacheExplanation,
    CacheFlushed,
    CacheQuery,
    DescribeCache,
    ExplainCache,
    OwnerUse,
)
from tests.gateway_harness import (
    MODEL,
    Gateway,
    chat,
    completion,
    listening_in_thread,
    make_gateway,
)
from tests.key_files import SECRET, key_file

NOBODY = "http://127.0.0.1:9"


def answers(query: CacheQuery) -> CacheAnswer:
    if isinstance(query, ExplainCache):
        num_tokens = len(query.prompt_token_ids)
        return CacheExplanation(query.request_id, num_tokens, 1, reason="grows")
    if not isinstance(query, DescribeCache):
        return CacheFlushed(query.request_id, 1_234)
    owner = query.owner or ""
    return CacheDescription(
        request_id=query.request_id, page_size=16, page_bytes=1024, pages_free=60, pages_cached=4,
        pages_locked=0, pages_held=0, pages_total=64, num_evicted_pages=0,
        owners=[OwnerUse(owner, 4, 0, None, ())],
        edges=[
            CachedEdge(1, None, owner, 0, 48, 3, 5, 1, 0, False, list(b"You are a \x1b[31mpirate")),
            CachedEdge(2, 1, owner, 48, 16, 1, 2, 1, 0, False, list(b"Ahoy")),
        ][: query.max_nodes],
    )  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Gateway, str]]:
    gateway = make_gateway()
    gateway.engine.answers = answers
    with listening_in_thread(gateway) as url:
        yield gateway, url


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = {"alice": {"tenant": "a"}, "root": {"tenant": "r", "role": "admin"}}
    path = key_file(tmp_path_factory.mktemp("keys"), keys)
    gateway = make_gateway(key_file=str(path), server_secret=SECRET.decode())
    gateway.engine.answers = answers
    with listening_in_thread(gateway) as url:
        yield url


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.delenv("RADIXGATE_KEY", raising=False)


@pytest.mark.parametrize("command", [[], ["show"]])
@pytest.mark.parametrize("suffix", ["", "/", "/v1"])
def test_the_cache_is_shown_as_a_tree(
    served: tuple[Gateway, str],
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    suffix: str,
) -> None:
    assert main(["cache", *command, "--url", served[1] + suffix]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"{MODEL}, all owners" in out
    assert "4 of 64 pages cached" in out
    assert "└─ You are a \\x1b[31mpirate" in out
    assert "   └─ Ahoy" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 110


def test_flags_may_come_before_the_command_and_the_tree_may_be_small(
    served: tuple[Gateway, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "--url", served[1], "--json", "show", "--max-nodes", "1"]) == 0
    state = json.loads(capsys.readouterr().out)
    assert [node["text"] for node in state["tree"]["nodes"]] == ["You are a \x1b[31mpirate"]


def test_a_request_is_explained_from_a_file_or_standard_input(
    served: tuple[Gateway, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    body = json.dumps(completion("abcdef")).encode()
    (tmp_path / "request.json").write_bytes(body)
    assert main(["cache", "explain", str(tmp_path / "request.json"), "--url", served[1]]) == 0
    from_file = capsys.readouterr().out
    assert "1 of 5 tokens cached (20.0 %): device 1" in from_file
    assert "[b]cdef" in from_file
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
    assert main(["cache", "explain", "--url", served[1]]) == 0
    assert capsys.readouterr().out == from_file


def test_several_prompts_are_explained_in_turn(
    served: tuple[Gateway, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(completion(["ab", "abcde"])))
    assert main(["cache", "explain", str(path), "--url", served[1]]) == 0
    out = capsys.readouterr().out
    assert out.index("prompt 0:") < out.index("1 of 1") < out.index("prompt 1:")
    assert out.index("prompt 1:") < out.index("1 of 4")


def test_a_flush_needs_to_be_meant(
    served: tuple[Gateway, str], capsys: pytest.CaptureFixture[str]
) -> None:
    gateway, url = served
    num_asked = len(gateway.engine.asked)
    assert main(["cache", "flush", "--url", url]) == 2
    assert "--yes" in capsys.readouterr().err
    assert len(gateway.engine.asked) == num_asked
    assert main(["cache", "flush", "--yes", "--url", url]) == 0
    assert capsys.readouterr().out == "1,234 pages forgotten\n"


def test_the_key_comes_from_the_environment(
    guarded: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--url", guarded]
    assert main(["cache", *url]) == 1
    assert "401: You didn't provide an API key" in capsys.readouterr().err
    monkeypatch.setenv("RADIXGATE_KEY", "alice")
    assert main(["cache", *url]) == 0
    assert "this key's" in capsys.readouterr().out
    assert main(["cache", "flush", "--yes", *url]) == 1
    assert "403: Only an admin key" in capsys.readouterr().err
    monkeypatch.setenv("ADMIN", " root\n")
    assert main(["cache", "flush", "--yes", *url, "--key-env", "ADMIN"]) == 0


@pytest.mark.parametrize("value", [None, "", "a\nb", "caf\u00e9"])
def test_a_key_that_is_none_is_refused(
    guarded: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    value: str | None,
) -> None:
    if value is not None:
        monkeypatch.setenv("MINE", value)
    assert main(["cache", "--url", guarded, "--key-env", "MINE"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("radixgate: MINE ")
    assert value is None or not value or value not in err


def test_what_the_server_refuses_is_said_in_one_line(
    served: tuple[Gateway, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "request.json"
    for body, expected in (
        (b"{", "400: "),
        (json.dumps(chat(temperature=9)).encode(), "400: Invalid"),
        (json.dumps(chat(model="nope")).encode(), "404: The model 'nope'"),
    ):
        path.write_bytes(body)
        assert main(["cache", "explain", str(path), "--url", served[1]]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"radixgate: {expected}")
        assert err.count("\n") == 1


@pytest.mark.parametrize("url", [NOBODY, "http://", "nonsense", "ftp://x", "http://[::1"])
def test_a_server_that_is_none_is_said_in_one_line(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "--url", url]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"radixgate: {url}: ")
    assert err.count("\n") == 1


def test_another_server_is_told_from_this_one(
    served: tuple[Gateway, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gateway.cache_commands._call", lambda *_given, **_named: b'{"a": 1}')
    assert main(["cache", "--url", served[1]]) == 1
    assert "not a radixgate server" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "explain", "/nowhere/request.json", "--url", NOBODY]) == 2
    assert "/nowhere/request.json: No such file" in capsys.readouterr().err
