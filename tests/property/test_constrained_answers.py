"""A strict answer validates, and a greedy one is the same, however its tokens come to be: alone or
in company, preempted or not, forced or sampled, in chunks or whole, cold or from the cache."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from grammar.errors import UnsupportedConstraint
from grammar.spec import ConstraintSpec, PreparedConstraint
from runtime.messages import Sampling, Submit
from telemetry import names
from tests.constrained_model import Arrangement, ConstrainedModel, choices, load_byte_model
from tests.engine_harness import Answer
from tests.property.answer_schemas import schemas

# A model on cores that other work may share.
pytestmark = pytest.mark.timeout(180)

SETTINGS = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
MAX_TOKENS = 64
# Pages for one answer alone, not for it and its company.
SMALL_POOL = 6

Said = tuple[list[int], str | None]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConstrainedModel]:
    bench = ConstrainedModel(load_byte_model(tmp_path_factory.mktemp("tiny") / "bytes"))
    yield bench
    bench.close()


def enforced(bench: ConstrainedModel, schema: Any) -> PreparedConstraint:
    """Other schemas are skipped."""
    try:
        return bench.grammar.prepare(ConstraintSpec("json_schema", json.dumps(schema)))
    except UnsupportedConstraint:
        assume(False)
        raise


def company(bench: ConstrainedModel) -> list[Submit]:
    """A free request, a sampled one of another schema, and a pattern that ends soon."""
    person = {"properties": {"name": {"maxLength": 9}}, "required": ["name"], "type": "object"}
    specs = [
        None,
        ConstraintSpec("json_schema", json.dumps(person)),
        ConstraintSpec("regex", "[a-c]{2}(nothing else)?"),
    ]
    return [
        bench.request(
            f"other {number}",
            f"{number}: and they?",
            None if spec is None else bench.grammar.prepare(spec),
            sampling=Sampling(max_tokens=48, temperature=number % 2, ignore_eos=True),
            num_choices=1 + number % 2,
        )
        for number, spec in enumerate(specs)
    ]


def said(answers: list[Answer]) -> list[Said]:
    return [(answer.token_ids, answer.finish_reason) for answer in answers]


def in_company(bench: ConstrainedModel, request: Submit, arrangement: Arrangement) -> list[Answer]:
    """The request comes last, so that it is the first to go where memory gets short."""
    engine = bench.engine(arrangement)
    bench.run(engine, [*company(bench), request])
    return choices(engine, request)


def num_preemptions(answers: list[Answer]) -> int:
    """How often the choices were taken out while they were decoding."""
    decodes = [
        phase for answer in answers for phase in answer.phases if phase.name == names.SPAN_DECODE
    ]
    return sum(int(phase.attributes[names.ATTR_PREEMPTIONS]) for phase in decodes)


def test_a_greedy_answer_is_kept_and_the_same_in_all_arrangements(bench: ConstrainedModel) -> None:
    seen: Counter[str] = Counter()

    @settings(SETTINGS, max_examples=40)
    @given(schema=schemas, word=st.sampled_from(["", "yes", "list", "{"]), jumps=st.booleans())
    def check(schema: Any, word: str, jumps: bool) -> None:
        request = bench.request(
            "a",
            f"Say in JSON: {word}",
            enforced(bench, schema),
            sampling=Sampling(max_tokens=MAX_TOKENS, temperature=0.0),
        )
        plain = bench.answers(request, Arrangement(jump_forward=False))
        bench.assert_kept(schema, plain[0], max_tokens=MAX_TOKENS)
        forced = bench.engine(Arrangement())
        bench.run(forced, [request])
        assert said(choices(forced, request)) == said(plain), "forced tokens"
        forced.answers.clear()
        bench.run(forced, [request])
        warm = choices(forced, request)
        assert said(warm) == said(plain), "a warm cache"
        chunked = Arrangement(jump_forward=jumps, max_step_tokens=5)
        assert said(bench.answers(request, chunked)) == said(plain), "chunks of prefill"
        beside = in_company(bench, request, Arrangement(jump_forward=jumps))
        assert said(beside) == said(plain), "a batch"
        tight = Arrangement(jump_forward=not jumps, num_pages=SMALL_POOL, max_step_tokens=48)
        squeezed = in_company(bench, request, tight)
        assert said(squeezed) == said(plain), "a small pool"
        assert warm[0].last.usage is not None
        seen[str(plain[0].finish_reason)] += 1
        seen["forced"] += forced.stats.forced_tokens > 0
        seen["warm"] += warm[0].last.usage.cached_tokens > 0
        seen["preempted"] += num_preemptions(squeezed) > 0

    check()
    assert seen["warm"] == seen["stop"] + seen["length"]
    assert min(seen["stop"], seen["length"], seen["forced"], seen["preempted"]) >= 5, seen


def test_sampled_choices_are_kept_and_depend_on_their_seed_alone(bench: ConstrainedModel) -> None:
    seen: Counter[str] = Counter()

    @settings(SETTINGS, max_examples=15)
    @given(schema=schemas, seed=st.integers(0, 2**32))
    def check(schema: Any, seed: int) -> None:
        request = bench.request(
            "a",
            "Say in JSON:",
            enforced(bench, schema),
            sampling=Sampling(max_tokens=MAX_TOKENS, temperature=1.0, seed=seed),
            num_choices=3,
        )
        plain = bench.answers(request, Arrangement(jump_forward=False))
        for answer in plain:
            bench.assert_kept(schema, answer, max_tokens=MAX_TOKENS)
            seen[str(answer.finish_reason)] += 1
        tight = Arrangement(num_pages=SMALL_POOL, max_step_tokens=20)
        squeezed = in_company(bench, request, tight)
        assert said(squeezed) == said(plain)
        seen["different"] += len({tuple(answer.token_ids) for answer in plain}) > 1
        seen["preempted"] += num_preemptions(squeezed) > 0

    check()
    assert min(seen["stop"], seen["different"], seen["preempted"]) >= 5, seen


@st.composite
def samplings(draw: st.DrawFn, token_ids: st.SearchStrategy[int]) -> Sampling:
    """Everything that bends a choice of tokens, or says when it should end."""
    return Sampling(
        max_tokens=draw(st.sampled_from([MAX_TOKENS, MAX_TOKENS, MAX_TOKENS, 1, 9])),
        temperature=draw(st.sampled_from([0.0, 1e-9, 0.7, 2.0])),
        top_p=draw(st.sampled_from([1.0, 1e-6, 0.5])),
        top_k=draw(st.sampled_from([0, 1, 5])),
        min_p=draw(st.sampled_from([0.0, 0.3, 1.0])),
        frequency_penalty=draw(st.sampled_from([0.0, -2.0, 2.0])),
        presence_penalty=draw(st.sampled_from([0.0, -2.0, 2.0])),
        repetition_penalty=draw(st.sampled_from([1.0, 0.01, 10.0])),
        logit_bias=draw(st.dictionaries(token_ids, st.sampled_from([-100.0, 100.0]), max_size=9)),
        seed=draw(st.integers(0, 99)),
        min_tokens=draw(st.sampled_from([0, 1, MAX_TOKENS])),
        ignore_eos=draw(st.booleans()),
        stop_token_ids=tuple(draw(st.lists(token_ids, max_size=3))),
        num_logprobs=draw(st.sampled_from([None, None, 2])),
    )


def test_no_way_of_sampling_gets_out_of_the_grammar(bench: ConstrainedModel) -> None:
    seen: Counter[str] = Counter()
    ends = bench.vocabulary.eos_token_ids
    token_ids = st.sampled_from([*bench.model.encode('{}[]",:\\\ntrue019. '), *ends])

    @settings(SETTINGS, max_examples=50)
    @given(schema=schemas, sampling=samplings(token_ids))
    def check(schema: Any, sampling: Sampling) -> None:
        constraint = enforced(bench, schema)
        request = bench.request("a", "Say in JSON:", constraint, sampling=sampling, num_choices=2)
        sampled = bench.answers(request, Arrangement(jump_forward=False))
        for answer in sampled:
            bench.assert_kept(schema, answer, max_tokens=sampling.max_tokens)
            seen[str(answer.finish_reason)] += 1
        assert said(bench.answers(request, Arrangement())) == said(sampled)

    check()
    assert min(seen["stop"], seen["length"]) >= 20, seen
