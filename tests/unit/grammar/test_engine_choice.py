"""Which engine a constraint gets that names none."""

import subprocess
import sys
from pathlib import Path

import pytest

from grammar import engine_choice
from grammar.engine_choice import prepare_with
from grammar.errors import UnsatisfiableConstraint, UnsupportedConstraint
from grammar.matcher import GrammarEngine, Matcher
from grammar.spec import ConstraintSpec, EngineName, Gap, PreparedConstraint

SCHEMA = '{"enum": ["a"]}'
ROOT = Path(__file__).resolve().parents[3]
GAP = Gap("/not", "not", "only checked")
SPEC = ConstraintSpec("json_schema", "{}", allows_checked=True)


class Prepared:
    """Says of each engine what it makes of the constraint: enforced, checked or refused."""

    name = "fake"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **verdicts: str) -> None:
        self._verdicts = verdicts
        monkeypatch.setattr(engine_choice, "_prepare", lambda _, name, __: self.of(name))

    def of(self, name: EngineName) -> PreparedConstraint:
        verdict = self._verdicts.get(name, "refused")
        if verdict == "impossible":
            raise UnsatisfiableConstraint(f"{name} proves it")
        if verdict == "refused":
            raise UnsupportedConstraint(f"{name} refuses", pointer=f"/{name}")
        return PreparedConstraint(name, "lark", "", (GAP,) if verdict == "checked" else ())

    def chosen(self) -> EngineName:
        return prepare_with(no_engine, SPEC).engine


def no_engine(name: EngineName) -> GrammarEngine:
    raise AssertionError(f"{name} is not needed")


@pytest.mark.parametrize(
    ("verdicts", "engine"),
    [
        ({"llguidance": "enforced", "xgrammar": "enforced", "outlines": "enforced"}, "llguidance"),
        ({"llguidance": "checked", "xgrammar": "enforced"}, "xgrammar"),
        ({"llguidance": "refused", "outlines": "enforced", "xgrammar": "enforced"}, "xgrammar"),
        ({"llguidance": "checked", "outlines": "enforced", "xgrammar": "checked"}, "outlines"),
        ({"llguidance": "checked", "outlines": "checked"}, "llguidance"),
        ({"llguidance": "refused", "xgrammar": "checked"}, "xgrammar"),
    ],
)
def test_enforced_goes_before_checked_before_refused(
    monkeypatch: pytest.MonkeyPatch, verdicts: dict[str, str], engine: str
) -> None:
    assert Prepared(monkeypatch, **verdicts).chosen() == engine


def test_what_nothing_satisfies_goes_to_no_other_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsatisfiableConstraint, match="llguidance proves it"):
        Prepared(monkeypatch, llguidance="impossible", xgrammar="enforced").chosen()


def test_where_all_refuse_the_first_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    Prepared(monkeypatch)
    with pytest.raises(UnsupportedConstraint) as caught:
        prepare_with(no_engine, SPEC)
    assert caught.value.pointer == "/llguidance"


def test_an_engine_that_is_named_is_the_only_one_asked() -> None:
    class Refusing:
        name = "xgrammar"

        def prepare(self, spec: ConstraintSpec) -> PreparedConstraint:
            raise UnsupportedConstraint(f"no {spec.kind}")

        def build(self, prepared: PreparedConstraint) -> Matcher:
            raise NotImplementedError

    asked: list[EngineName] = []

    def engines(name: EngineName) -> GrammarEngine:
        asked.append(name)
        return Refusing()

    with pytest.raises(UnsupportedConstraint, match="no gbnf"):
        prepare_with(engines, ConstraintSpec("gbnf", "", "xgrammar"))
    assert asked == ["xgrammar"]


def test_a_choice_among_engines_imports_none_of_their_libraries() -> None:
    """xgrammar alone takes two seconds and brings torch."""
    program = f"""
import sys
from grammar.engine_choice import prepare_with
from grammar.errors import UnsatisfiableConstraint, UnsupportedConstraint
from grammar.spec import ConstraintSpec

class Refusing:
    def prepare(self, spec):
        raise UnsupportedConstraint("no")

spec = ConstraintSpec("json_schema", {SCHEMA!r})
print(prepare_with(lambda name: Refusing(), spec).engine)
print(sorted({{"torch", "xgrammar", "outlines_core", "llguidance"}} & set(sys.modules)))
"""
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert output.split("\n")[:2] == ["xgrammar", "[]"]
