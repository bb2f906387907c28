"""The default model in float32: strict answers validate, and greedy ones are the same in each
arrangement."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from grammar.spec import ConstraintSpec
from runtime.messages import Sampling, Submit
from tests.constrained_model import Arrangement, ConstrainedModel, choices
from tests.engine_harness import EngineDriver, make_submit
from tests.model_file import needs_model
from tests.real_model import RealModel

# A real model on cores that other work may share.
pytestmark = [needs_model, pytest.mark.timeout(180)]

MAX_TOKENS = 48


def closed(**properties: Any) -> dict[str, Any]:
    """An object of exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


MORE = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}
SCHEMAS: dict[str, Any] = {
    "city": closed(
        capital_of={"enum": ["France", "Italy", "Spain"]},
        name={"type": "string", "maxLength": 12},
        founded={"type": "integer", "minimum": -3000, "maximum": 2000},
    ),
    "shopping": {
        "type": "array",
        "items": closed(thing={"type": "string", "maxLength": 8}, count={"enum": [1, 2, 12]}),
        "minItems": 2,
        "maxItems": 2,
    },
    "tree": {
        "$defs": {"node": closed(word={"type": "string", "maxLength": 5}, next=MORE)},
        "$ref": "#/$defs/node",
    },
    "date": {"type": "string", "format": "date"},
}


@pytest.fixture(scope="module")
def bench(real_model: RealModel) -> Iterator[ConstrainedModel]:
    bench = ConstrainedModel(real_model)
    yield bench
    bench.close()


def ask(bench: ConstrainedModel, name: str, *, prompt: str = "", **sampling: Any) -> Submit:
    spec = ConstraintSpec("json_schema", json.dumps(SCHEMAS[name]))
    return bench.request(
        f"{name} {prompt}",
        f"Answer with JSON. A {name} of your choice: {prompt}\n",
        bench.grammar.prepare(spec),
        sampling=Sampling(**{"max_tokens": MAX_TOKENS, "temperature": 0.0, **sampling}),
    )


def run(bench: ConstrainedModel, asked: list[Submit], arrangement: Arrangement) -> EngineDriver:
    engine = bench.engine(arrangement)
    bench.run(engine, asked)
    return engine


def said(engine: EngineDriver, asked: list[Submit]) -> list[tuple[list[int], str | None]]:
    answers = [choices(engine, one)[0] for one in asked]
    return [(answer.token_ids, answer.finish_reason) for answer in answers]


def test_greedy_answers_are_kept_and_the_same_alone_and_together(bench: ConstrainedModel) -> None:
    asked = [ask(bench, name) for name in SCHEMAS]
    alone = [bench.answers(one, Arrangement(jump_forward=False))[0] for one in asked]
    for schema, answer in zip(SCHEMAS.values(), alone, strict=True):
        bench.assert_kept(schema, answer, max_tokens=MAX_TOKENS)
    free = make_submit("free", bench.model.encode("Once upon a time"), max_tokens=MAX_TOKENS)
    together = run(bench, [free, *asked], Arrangement(max_step_tokens=16))
    expected = [(answer.token_ids, answer.finish_reason) for answer in alone]
    assert said(together, asked) == expected
    assert [reason for _, reason in expected].count("stop") >= 3
    assert together.stats.forced_tokens > 0


def test_greedy_answers_are_the_same_preempted_and_not(bench: ConstrainedModel) -> None:
    asked = [ask(bench, "tree", prompt=kind) for kind in ("oak", "elm", "fir", "ash")]
    roomy = run(bench, asked, Arrangement(jump_forward=False))
    small = run(bench, asked, Arrangement(num_pages=6))
    assert small.stats.preemptions > 0
    assert said(small, asked) == said(roomy, asked)


def test_sampled_answers_are_kept(bench: ConstrainedModel) -> None:
    wishes: dict[str, Any] = {"temperature": 1.0, "seed": 7, "min_tokens": 40, "ignore_eos": True}
    asked = [ask(bench, name, **wishes) for name in SCHEMAS]
    engine = run(bench, asked, Arrangement())
    for schema, one in zip(SCHEMAS.values(), asked, strict=True):
        bench.assert_kept(schema, choices(engine, one)[0], max_tokens=MAX_TOKENS)
