"""A short run of `make soak`, and that the soak sees what it is for."""

import asyncio
import itertools
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from grammar.errors import GrammarError
from grammar.matcher import GrammarEngine
from runtime.grammar_builder import GrammarBuilder
from tests.small_vocabulary import small_vocabulary
from tests.soak import compile_service
from tests.soak.compile_service import CompileServiceSoak, SoakReport
from tests.soak.mutations import schema_texts

ROOT = Path(__file__).resolve().parents[2]
NUM_SCHEMAS = 300


@pytest.mark.timeout(120)
def test_damaged_schemas_end_in_a_class_a_refusal_or_at_a_limit() -> None:
    command = [sys.executable, "-m", "tests.soak", "schemas", "--seed", "7"]
    flags = ["--schemas", str(NUM_SCHEMAS), "--time-limit-s", "1"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    summary = json.loads(done.stdout)
    assert (summary["schemas"], summary["faults"]) == (NUM_SCHEMAS, 0)
    assert sum(summary["endings"].values()) == NUM_SCHEMAS
    assert summary["endings"]["enforced"] > NUM_SCHEMAS / 10
    assert summary["endings"]["refused"] > NUM_SCHEMAS / 10


def _nothing(*_: object) -> GrammarEngine:
    raise GrammarError("not today")


def soaked(*texts: str) -> SoakReport:
    async def run() -> SoakReport:
        soak = CompileServiceSoak(small_vocabulary(), engine="llguidance", time_limit_s=5.0)
        return await soak.run(texts)

    return asyncio.run(run())


def test_endings_are_counted() -> None:
    report = soaked('{"type":"string"}', '{"type":"strin"}', "{", '{"const":1}')
    assert report.endings == {"enforced": 2, "refused": 2}
    assert report.faults == []


def test_what_is_probed_and_then_not_built_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_service, "GrammarBuilder", partial(GrammarBuilder, load=_nothing))
    report = soaked('{"type":"string"}')
    ((number, schema, fault),) = report.faults
    assert (number, schema) == (0, '{"type":"string"}')
    assert fault == "AssertionError: probed, but not built: not today"


def test_the_same_seed_gives_the_same_schemas() -> None:
    first, second, other = (list(itertools.islice(schema_texts(n), 50)) for n in (3, 3, 4))
    assert first == second
    assert first != other


def test_samples_are_damaged_copies_and_stay_as_they_are() -> None:
    sample = {"properties": {f"key {n}": {"type": "integer"} for n in range(5)}}
    before = json.dumps(sample)
    texts = list(itertools.islice(schema_texts(1, samples=[sample]), 200))
    assert json.dumps(sample) == before
    assert sum("key 3" in text for text in texts) > 40
    assert len(set(texts)) > 150
