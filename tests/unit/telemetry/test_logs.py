"""Log lines: one record, one line, its fields, and no line that a client could forge."""

import json
import logging
from collections.abc import Iterator

import pytest

from telemetry.logs import configure_logging, stack_of


@pytest.fixture(autouse=True)
def restored_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


logger = logging.getLogger("radixgate.test")


def test_json_lines_carry_fields_and_the_trace_id(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json_lines=True)
    logger.warning("queue %s", "full", extra={"trace_id": "ab", "num_waiting": 3})
    line = json.loads(capsys.readouterr().err)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "radixgate.test",
        "message": "queue full",
        "trace_id": "ab",
        "num_waiting": 3,
    }


def test_text_lines_carry_fields_as_key_value(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json_lines=False)
    logger.info("started", extra={"trace_id": "ab", "what": "two words"})
    line = capsys.readouterr().err
    assert line.endswith(' info radixgate.test started trace_id=ab what="two words"\n')


@pytest.mark.parametrize("json_lines", [True, False])
def test_a_message_with_line_breaks_stays_one_line(
    capsys: pytest.CaptureFixture[str], json_lines: bool
) -> None:
    configure_logging("info", json_lines=json_lines)
    logger.info("bad path /a\n2026 forged\x1b[31m", extra={"path": "x\ny"})
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert "\x1b" not in output


@pytest.mark.parametrize("json_lines", [True, False])
def test_an_exception_is_not_lost(capsys: pytest.CaptureFixture[str], json_lines: bool) -> None:
    configure_logging("info", json_lines=json_lines)
    try:
        raise ValueError("odd")
    except ValueError:
        logger.exception("failed")
    assert "ValueError: odd" in capsys.readouterr().err


def test_the_level_counts_and_a_second_call_adds_no_second_handler(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("warning", json_lines=True)
    configure_logging("info", json_lines=True)
    logger.debug("no")
    logger.info("yes")
    assert capsys.readouterr().err.count("\n") == 1


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="LOUD"):
        configure_logging("loud", json_lines=True)


@pytest.mark.parametrize("json_lines", [True, False])
@pytest.mark.parametrize("sign", ["\u2028", "\x85", "\x9b", "\u202e", "\U000e0001"])
def test_what_a_viewer_takes_for_a_line_or_a_command_is_escaped_everywhere(
    capsys: pytest.CaptureFixture[str], json_lines: bool, sign: str
) -> None:
    configure_logging("info", json_lines=json_lines)
    try:
        raise ValueError(f"odd{sign}2026 forged")
    except ValueError:
        logger.exception("bad%s2026", sign, extra={"path": f"x{sign}2026 y"})
    output = capsys.readouterr().err
    assert sign not in output
    assert not any(line.startswith("2026 ") for line in output.splitlines())
    if json_lines:
        assert json.loads(output)["path"] == f"x{sign}2026 y"


def test_words_of_an_exception_cannot_begin_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json_lines=False)
    try:
        raise ValueError("odd\n2026-01-01 info forged")
    except ValueError:
        logger.exception("failed")
    first, *others = capsys.readouterr().err.splitlines()
    assert first.endswith("failed")
    assert others
    assert all(line.startswith("    ") for line in others)


def test_a_stack_names_places_and_types_and_no_words() -> None:
    def inner() -> None:
        try:
            raise KeyError("secret cause")
        except KeyError as error:
            raise ValueError("secret") from error

    with pytest.raises(ValueError, match="secret") as caught:
        inner()
    stack = stack_of(caught.value)
    assert stack.index("KeyError") < stack.rindex("ValueError")
    assert stack.count("in inner") == 2
    # The lines of the code are shown, which here have the words.
    said = [line for line in stack.splitlines() if "raise" not in line]
    assert "secret" not in "\n".join(said)


def test_a_stack_follows_a_ring_of_causes_for_a_while_only() -> None:
    first, second = ValueError("a"), KeyError("b")
    first.__cause__, second.__cause__ = second, first
    assert stack_of(first).count("Traceback") == 8
