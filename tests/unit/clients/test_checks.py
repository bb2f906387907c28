"""What a client's check prints: the versions, then a verdict and a reason for each feature."""

import importlib
import json
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("BASE_URL", "MODEL", "API_KEY"):
        monkeypatch.setenv(name, "unused")
    monkeypatch.setattr("sys.argv", ["check.py"])
    return importlib.import_module("tests.e2e.clients.kit.features")


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_each_feature_gets_a_line_also_after_one_that_fails(
    kit: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = kit.Checks("pytest")

    async def passing() -> None:
        kit.equal("a", "a")

    checks.feature("chat")(lambda: kit.equal("a", "b"))
    checks.feature("async")(passing)
    checks.run()
    first, chatted, awaited = printed(capsys)
    assert first == {"packages": {"pytest": pytest.__version__}}
    assert (chatted["ok"], "'a' is not 'b'" in chatted["detail"]) == (False, True)
    assert awaited == {"feature": "async", "ok": True, "detail": ""}


def test_failure_of_an_async_check_is_seen(
    kit: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = kit.Checks()

    async def failing() -> None:
        kit.present(None)

    checks.feature("stream")(failing)
    checks.run()
    assert printed(capsys)[1]["ok"] is False


def test_only_named_features_run(
    kit: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = kit.Checks()
    for name in ("chat", "stream"):
        checks.feature(name)(lambda: None)
    monkeypatch.setattr("sys.argv", ["check.py", "stream"])
    checks.run()
    assert [line.get("feature") for line in printed(capsys)] == [None, "stream"]


def test_expected_exception_is_returned_and_its_absence_fails(kit: ModuleType) -> None:
    error = KeyError("a")

    def fail() -> None:
        raise error

    assert kit.raised(KeyError, fail) is error
    with pytest.raises(KeyError):
        kit.raised(ValueError, fail)
    with pytest.raises(AssertionError, match="was expected"):
        kit.raised(ValueError, lambda: 1)
