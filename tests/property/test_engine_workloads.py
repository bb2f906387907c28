"""Whatever arrives whenever, in whatever pool: each request gets the tokens and the scores of its
prompt that it gets alone."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.messages import Submit, TokenLogprob
from tests.engine_harness import Answer, EngineHarness, alone, make_submit
from tests.fake_executor import score_by_hash

BASE = [(i * 31) % 96 for i in range(200)]


@dataclass(frozen=True)
class Arrival:
    """A prompt made of the start of a shared text and a token of its own, some steps later."""

    num_shared: int
    own_token: int
    max_tokens: int
    num_choices: int
    use_cache: bool
    namespace: bytes
    tenant: str
    num_prompt_logprobs: int | None
    num_steps_before: int

    def submit(self, number: int) -> Submit:
        return make_submit(
            f"r{number}",
            [*BASE[: self.num_shared], self.own_token],
            max_tokens=self.max_tokens,
            num_choices=self.num_choices,
            use_cache=self.use_cache,
            namespace=self.namespace,
            tenant=self.tenant,
            num_prompt_logprobs=self.num_prompt_logprobs,
        )


arrivals = st.builds(
    Arrival,
    num_shared=st.integers(0, 100),
    own_token=st.integers(0, 5),
    max_tokens=st.integers(0, 40),
    num_choices=st.sampled_from([1, 1, 2]),
    use_cache=st.sampled_from([True, True, True, False]),
    namespace=st.sampled_from([b"", b"other"]),
    tenant=st.sampled_from(["", "", "", "a", "b"]),
    num_prompt_logprobs=st.sampled_from([None, None, 0, 2]),
    num_steps_before=st.integers(0, 12),
)


def scores_of(answer: Answer) -> list[TokenLogprob]:
    return [score for event in answer.events for score in event.prompt_logprobs]


def expected_scores(request: Submit) -> list[TokenLogprob]:
    prompt, num_best = request.prompt_token_ids, request.num_prompt_logprobs
    if num_best is None:
        return []
    return [
        score_by_hash(tuple(prompt[:end]), prompt[end], num_best=num_best)
        for end in range(1, len(prompt))
    ]


@settings(max_examples=60, deadline=None)
@given(
    workload=st.lists(arrivals, min_size=1, max_size=8),
    num_pages=st.integers(10, 40),
    max_step_tokens=st.sampled_from([3, 7, 33, 512]),
    max_running=st.integers(1, 6),
    watermark=st.sampled_from([0.0, 0.1]),
    expects_short=st.booleans(),
)
def test_company_chunks_cache_and_preemption_change_no_token(
    workload: list[Arrival],
    num_pages: int,
    max_step_tokens: int,
    max_running: int,
    watermark: float,
    expects_short: bool,
) -> None:
    harness = EngineHarness(
        num_pages=num_pages,
        max_step_tokens=max_step_tokens,
        max_running=max_running,
        watermark=watermark,
    )
    if expects_short:
        harness.expect_short_answers()
    requests = [arrival.submit(number) for number, arrival in enumerate(workload)]
    for arrival, request in zip(workload, requests, strict=True):
        for _ in range(arrival.num_steps_before):
            harness.step()
        harness.submit(request)
    harness.run()
    for request in requests:
        for choice in range(request.num_choices):
            answer = harness.answer(request.request_id, choice)
            assert answer.token_ids == alone(request, choice)
            assert scores_of(answer) == (expected_scores(request) if choice == 0 else [])
    stats = harness.stats
    assert stats.cached_tokens + stats.computed_prompt_tokens == stats.prompt_tokens
    harness.assert_idle()
