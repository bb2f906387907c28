"""Which answers are looked at, where that happens, and what is kept for the next."""

import threading
from collections.abc import Iterator

import pytest

from gateway.answer_check import MAX_INLINE_CHARS, MAX_KEPT, AnswerChecks, JsonCheck
from grammar.errors import GrammarError
from grammar.spec import ConstraintSpec
from grammar.validation import AnswerValidator


@pytest.fixture
def checks() -> Iterator[AnswerChecks]:
    made = AnswerChecks()
    yield made
    made.close()


async def verdict(checks: AnswerChecks, spec: ConstraintSpec, text: str) -> bool:
    check = checks.of(spec)
    assert check is not None
    return await check.problem(text) is None


async def test_json_is_validated_and_a_choice_looked_up(checks: AnswerChecks) -> None:
    schema = ConstraintSpec("json_schema", '{"type":"array"}')
    choice = ConstraintSpec("choice", '["a","\\u00e9"]')
    assert await verdict(checks, schema, "[]")
    assert not await verdict(checks, schema, "{}")
    assert await verdict(checks, ConstraintSpec("json_object"), '{"a":1}')
    assert not await verdict(checks, ConstraintSpec("json_object"), "[1]")
    assert await verdict(checks, choice, "\u00e9")
    assert not await verdict(checks, choice, "b")


@pytest.mark.parametrize("kind", ["regex", "gbnf", "lark", "structural_tag"])
def test_of_other_kinds_the_mask_is_the_proof(checks: AnswerChecks, kind: str) -> None:
    assert checks.of(ConstraintSpec(kind, "a")) is None  # type: ignore[arg-type]


async def test_what_takes_long_is_judged_off_the_loop(
    checks: AnswerChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    judge = JsonCheck._judge

    def watched(check: JsonCheck, text: str) -> object:
        threads.append(threading.current_thread().name)
        return judge(check, text)

    monkeypatch.setattr(JsonCheck, "_judge", watched)
    schema = ConstraintSpec("json_schema", '{"type":"array"}')
    for text in ("[]", "[]", "[" + " " * MAX_INLINE_CHARS + "]"):
        await verdict(checks, schema, text)
    main = threading.main_thread().name
    assert [name == main for name in threads] == [False, True, False]


async def test_a_schema_is_read_once_and_the_oldest_is_forgotten(
    checks: AnswerChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    make = AnswerValidator.__init__

    def watched(validator: AnswerValidator, schema: str) -> None:
        read.append(schema)
        make(validator, schema)

    monkeypatch.setattr(AnswerValidator, "__init__", watched)
    specs = [ConstraintSpec("json_schema", f'{{"const":{n}}}') for n in range(MAX_KEPT + 1)]
    await verdict(checks, specs[0], "0")
    await verdict(checks, specs[0], "1")
    assert read == [specs[0].value]
    for spec in specs[1:]:
        checks.of(spec)
    await verdict(checks, specs[0], "0")
    assert read == [specs[0].value] * 2


async def test_a_schema_that_cannot_be_judged_says_so(checks: AnswerChecks) -> None:
    with pytest.raises(GrammarError):
        await verdict(checks, ConstraintSpec("json_schema", '{"$ref":"#/nowhere"}'), "1")
