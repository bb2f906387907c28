"""With jump-forward and without it models say the same: greedy, in float32, under real grammars."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from grammar.engines import load_engine
from grammar.matcher import Vocabulary
from grammar.spec import ConstraintSpec
from runtime.config import RuntimeConfig
from runtime.grammar_builder import GrammarBuilder
from runtime.messages import Sampling
from runtime.model_source import open_model
from runtime.worker import engine_info
from tests.engine_harness import Answer, EngineDriver, make_submit
from tests.model_file import needs_model
from tests.real_model import RealModel
from tests.tiny_model import write_tiny_model

# A real model on cores that other work may share.
pytestmark = pytest.mark.timeout(180)

PERSON = {
    "type": "object",
    "properties": {
        "full_name": {"type": "string", "maxLength": 30},
        "date_of_birth": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        "favourite colours": {
            "type": "array",
            "items": {"enum": ["red", "green", "blue"]},
            "maxItems": 3,
        },
        "is_admin": {"type": "boolean"},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string", "maxLength": 20}, "zip": {"const": "é 0"}},
            "required": ["street", "zip"],
            "additionalProperties": False,
        },
    },
    "required": ["full_name", "date_of_birth", "favourite colours", "is_admin", "address"],
    "additionalProperties": False,
}
SPECS = {
    "person": ConstraintSpec(kind="json_schema", value=json.dumps(PERSON)),
    "regex": ConstraintSpec(kind="regex", value="The answer is [a-z ]{3,20}, as I said before\\."),
    "choice": ConstraintSpec(kind="choice", value=json.dumps(["unbelievable", "unbelievably"])),
}
PROMPT = "Describe a person as JSON.\n"
MAX_TOKENS = 120


class Bench:
    """`ask` answers all of SPECS together, greedily, in an engine of its own."""

    def __init__(self, model: RealModel) -> None:
        self.model = model
        self.rings = threading.Semaphore(0)
        vocabulary = Vocabulary(
            model.tokenizer.to_str(), model.info.vocab_size, model.info.eos_token_ids
        )
        self.grammar = load_engine("llguidance", vocabulary)
        self.builder = GrammarBuilder(vocabulary, on_ready=self.rings.release)

    def ask(
        self, *, jump_forward: bool, num_pages: int | None = None, num_choices: int = 1
    ) -> EngineDriver:
        engine = self.model.engine(
            grammar=self.builder, jump_forward=jump_forward, num_pages=num_pages, watermark=0.0
        )
        engine.expect_short_answers()
        sampling = Sampling(max_tokens=MAX_TOKENS, temperature=0.0)
        for name, spec in SPECS.items():
            constraint, prompt = self.grammar.prepare(spec), self.model.encode(PROMPT)
            engine.submit(
                make_submit(
                    name,
                    prompt,
                    sampling=sampling,
                    constraint=constraint,
                    num_choices=num_choices,
                )
            )
        while not all(engine.is_done(name) for name in SPECS):
            if not engine.engine.has_work():
                assert self.rings.acquire(timeout=60.0), "a constraint was never built"
            engine.run()
        engine.assert_idle()
        return engine

    def said(self, engine: EngineDriver, choice: int = 0) -> dict[str, tuple[str, str | None]]:
        """Text and end of each answer."""
        answers: dict[str, Answer] = {name: engine.answer(name, choice) for name in SPECS}
        return {
            name: (str(self.model.tokenizer.decode(answer.token_ids)), answer.finish_reason)
            for name, answer in answers.items()
        }


@pytest.fixture(scope="module")
def real(real_model: RealModel) -> Iterator[Bench]:
    bench = Bench(real_model)
    yield bench
    bench.builder.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A random model whose tokens are single bytes: a text has one tokenization only. One with
    larger tokens would choose at random among the spellings that its own tokenizer never makes."""
    from runtime.model_runner import load_executor

    path = write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-bytes", vocab_size=259)
    config = RuntimeConfig(model=str(path), dtype="float32", kv_memory_bytes=32 * 1024 * 1024)
    source = open_model(Path(config.model))
    loaded = load_executor(source, config)
    info = engine_info("engine", source, loaded, config)
    tokenizer = Tokenizer.from_str(source.text.tokenizer_json)
    bench = Bench(RealModel(loaded.executor, info, config, tokenizer))
    yield bench
    bench.builder.close()


@needs_model
def test_the_default_model_says_the_same(real: Bench) -> None:
    """The forced text is cut into the tokens that the model chooses by itself."""
    on, off = real.ask(jump_forward=True), real.ask(jump_forward=False)
    assert real.said(on) == real.said(off)
    for name in SPECS:
        assert on.answer(name).token_ids == off.answer(name).token_ids
    assert on.stats.forced_tokens >= 0.25 * on.stats.generated_tokens
    assert on.stats.steps < 0.8 * off.stats.steps
    person = json.loads(real.said(on)["person"][0])
    assert list(person) == PERSON["required"]


def test_a_tiny_model_says_the_same_in_the_same_tokens(tiny: Bench) -> None:
    on, off = tiny.ask(jump_forward=True), tiny.ask(jump_forward=False)
    assert tiny.said(on) == tiny.said(off)
    for name in SPECS:
        assert on.answer(name).token_ids == off.answer(name).token_ids
    assert on.stats.forced_tokens >= 0.25 * on.stats.generated_tokens


def test_a_tiny_model_says_the_same_in_a_pool_too_small_for_all(tiny: Bench) -> None:
    small = tiny.ask(jump_forward=True, num_pages=10, num_choices=3)
    assert small.stats.preemptions > 0
    alone = tiny.said(tiny.ask(jump_forward=False))
    assert [tiny.said(small, choice) for choice in range(3)] == [alone] * 3
