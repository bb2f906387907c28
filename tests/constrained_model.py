"""A model in float32 whose answers are held to real grammars, computed in any arrangement; and the
judge of what it says: jsonschema where an answer is complete, the grammar where it was cut."""

import json
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from tokenizers import Tokenizer

from grammar.engines import load_engine
from grammar.matcher import Matcher, Vocabulary, compile_constraint
from grammar.spec import ConstraintSpec, PreparedConstraint
from runtime.config import DTypeName, RuntimeConfig
from runtime.grammar_builder import GrammarBuilder
from runtime.messages import Sampling, Submit
from runtime.model_source import open_model
from runtime.worker import engine_info
from tests.engine_harness import Answer, EngineDriver, make_submit
from tests.grammar_walk import Texts
from tests.real_model import RealModel
from tests.tiny_model import write_tiny_model

# Walks by which a cut answer is tried to be completed, each keen to end.
MAX_WALKS = 20
MAX_WALK_TOKENS = 400
# Nothing but bytes and the special tokens: a text has one tokenization.
BYTE_VOCAB_SIZE = 259


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How requests are computed, which no answer may show. `num_pages` None: room for all."""

    jump_forward: bool = True
    num_pages: int | None = None
    max_step_tokens: int = 512


class ConstrainedModel:
    """One model with the grammar engine, builder thread and texts of its vocabulary."""

    def __init__(self, model: RealModel) -> None:
        self.model = model
        self.vocabulary = Vocabulary(
            model.tokenizer.to_str(), model.info.vocab_size, model.info.eos_token_ids
        )
        self.texts = Texts(self.vocabulary)
        self.grammar = load_engine("llguidance", self.vocabulary)
        self._rings = threading.Semaphore(0)
        self._builder = GrammarBuilder(self.vocabulary, on_ready=self._rings.release)

    def close(self) -> None:
        self._builder.close()

    def engine(self, arrangement: Arrangement) -> EngineDriver:
        """A fresh one with an empty cache, which lets requests in as if answers were short."""
        engine = self.model.engine(
            num_pages=arrangement.num_pages,
            max_step_tokens=arrangement.max_step_tokens,
            jump_forward=arrangement.jump_forward,
            watermark=0.0,
            grammar=self._builder,
        )
        engine.expect_short_answers()
        return engine

    def run(self, engine: EngineDriver, requests: Sequence[Submit]) -> None:
        """All together, to their ends."""
        for request in requests:
            engine.submit(request)
        while not all(engine.is_done(request.request_id) for request in requests):
            if not engine.engine.has_work():
                assert self._rings.acquire(timeout=60.0), "a constraint was never built"
            engine.run()
        engine.assert_idle()

    def answers(self, request: Submit, arrangement: Arrangement) -> list[Answer]:
        """The choices of a request that is alone in a fresh engine."""
        engine = self.engine(arrangement)
        self.run(engine, [request])
        return choices(engine, request)

    def request(
        self,
        request_id: str,
        prompt: str,
        constraint: PreparedConstraint | None,
        *,
        sampling: Sampling,
        num_choices: int = 1,
    ) -> Submit:
        return make_submit(
            request_id,
            self.model.encode(prompt),
            sampling=sampling,
            constraint=constraint,
            num_choices=num_choices,
        )

    def text(self, answer: Answer) -> str:
        """What the answer's tokens spell, without the one that ended it."""
        token_ids = answer.token_ids
        if answer.last.stop_token_id is not None:
            assert token_ids[-1] == answer.last.stop_token_id
            token_ids = token_ids[:-1]
        return self.texts.decode(token_ids)

    def assert_kept(self, schema: Any, answer: Answer, *, max_tokens: int) -> None:
        """Complete and valid, or cut by its limit and the beginning of what is valid."""
        assert answer.error_code is None, answer.last.error
        if answer.finish_reason == "stop":
            assert_valid(schema, self.text(answer))
            return
        assert (answer.finish_reason, len(answer.token_ids)) == ("length", max_tokens)
        spec = ConstraintSpec(kind="json_schema", value=json.dumps(schema))
        assert_valid(schema, self.completed(compile_constraint(self.grammar, spec), answer))

    def completed(self, matcher: Matcher, answer: Answer) -> str:
        """A complete output of the matcher that begins with a cut answer."""
        token_ids = answer.token_ids
        assert matcher.accept(token_ids) == len(token_ids), "the matcher does not take the answer"
        if matcher.is_accepting():
            return self.texts.decode(token_ids)
        for seed in range(MAX_WALKS):
            rest = self.texts.walk(matcher, random.Random(seed), max_tokens=MAX_WALK_TOKENS)
            if rest:
                return self.texts.decode([*token_ids, *rest])
        raise AssertionError(f"no way from the cut answer to an end was found: {token_ids}")


def choices(engine: EngineDriver, request: Submit) -> list[Answer]:
    """Of a request that was run."""
    return [engine.answer(request.request_id, choice) for choice in range(request.num_choices)]


def assert_valid(schema: Any, text: str) -> None:
    """The text is JSON that jsonschema takes, formats included."""
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    assert [error.message for error in validator.iter_errors(json.loads(text))] == [], text


def load_byte_model(folder: Path, *, dtype: DTypeName = "float32") -> RealModel:
    """A random model, written to `folder`, whose tokens are single bytes."""
    from runtime.model_runner import load_executor  # brings torch

    path = write_tiny_model(folder, vocab_size=BYTE_VOCAB_SIZE)
    config = RuntimeConfig(
        model=str(path), dtype=dtype, device="cpu", kv_memory_bytes=8 * 1024 * 1024
    )
    source = open_model(config.model)
    loaded = load_executor(source, config)
    info = engine_info("engine", source, loaded, config)
    return RealModel(loaded.executor, info, config, Tokenizer.from_str(source.text.tokenizer_json))
