"""The real model under real grammar engines: whatever the weights want, the output fits."""

import json
import re
import threading
from collections.abc import Iterator

import pytest

from grammar.engines import load_engine
from grammar.matcher import Vocabulary
from grammar.spec import ConstraintSpec
from runtime.grammar_builder import GrammarBuilder
from runtime.messages import Sampling
from tests.engine_harness import EngineDriver, make_submit
from tests.model_file import needs_model
from tests.real_model import RealModel

# A real model on cores that other work may share.
pytestmark = [needs_model, pytest.mark.timeout(120)]

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "size": {"enum": ["small", "large"]}},
    "required": ["ok", "size"],
    "additionalProperties": False,
}
PROMPT = "Answer with JSON: is the sky blue, and how big is it?\n"


class Bench:
    """A builder over the real engines; `ask` waits for the build and returns each choice's text."""

    def __init__(self, model: RealModel) -> None:
        self.model = model
        self.rings = threading.Semaphore(0)
        vocabulary = Vocabulary(
            model.tokenizer.to_str(), model.info.vocab_size, model.info.eos_token_ids
        )
        self.grammar = load_engine("llguidance", vocabulary)
        self.builder = GrammarBuilder(vocabulary, on_ready=self.rings.release)

    def ask(self, spec: ConstraintSpec, *, num_choices: int = 1) -> list[str]:
        # Everything that could end or bend a free answer; the grammar wins over all of it.
        sampling = Sampling(max_tokens=60, temperature=1.0, min_tokens=50, ignore_eos=True, seed=3)
        engine = self.model.engine(grammar=self.builder)
        prompt = self.model.encode(PROMPT)
        constraint = self.grammar.prepare(spec)
        engine.submit(
            make_submit(
                "a",
                prompt,
                sampling=sampling,
                constraint=constraint,
                num_choices=num_choices,
            )
        )
        while not engine.engine.has_work():
            assert self.rings.acquire(timeout=60.0), "the constraint was never built"
        engine.run()
        engine.assert_idle()
        return [self._text(engine, choice) for choice in range(num_choices)]

    def _text(self, engine: EngineDriver, choice: int) -> str:
        answer = engine.answer("a", choice)
        assert answer.finish_reason == "stop", answer.last
        return str(self.model.tokenizer.decode(answer.token_ids))


@pytest.fixture(scope="module")
def bench(real_model: RealModel) -> Iterator[Bench]:
    bench = Bench(real_model)
    yield bench
    bench.builder.close()


def test_every_choice_fits_its_schema(bench: Bench) -> None:
    spec = ConstraintSpec(kind="json_schema", value=json.dumps(SCHEMA))
    for text in bench.ask(spec, num_choices=4):
        value = json.loads(text)
        assert value.keys() == {"ok", "size"}
        assert isinstance(value["ok"], bool)
        assert value["size"] in ("small", "large")


def test_a_pattern_is_matched_whole(bench: Bench) -> None:
    (text,) = bench.ask(ConstraintSpec(kind="regex", value=r"[a-c]{3}-\d{2}"))
    assert re.fullmatch(r"[a-c]{3}-\d{2}", text)


def test_one_of_the_choices_is_said(bench: Bench) -> None:
    value = json.dumps(["blue", "blueish", "azure"])
    (text,) = bench.ask(ConstraintSpec(kind="choice", value=value))
    assert text in ("blue", "blueish", "azure")
