"""The default model in float32 behind an engine, and the judge of what it says.

Whatever way tokens were computed (cached, in chunks, in company, after a preemption), the judge
runs prompt and answer once more as one whole uncached row and compares each token with the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from tokenizers import Tokenizer

from runtime.batch import (
    Executor,
    PageId,
    RowKey,
    SamplePlan,
    SampleRow,
    ScheduledBatch,
    ScheduledRow,
)
from runtime.config import RuntimeConfig
from runtime.grammar_builder import GrammarBuilder
from runtime.messages import EngineInfo, Sampling, TokenLogprob
from tests.engine_harness import EngineDriver

# Two logits nearer than this may change places when sums are taken in another order.
TIE = 1e-4

Candidate = tuple[int, float]  # a token and its log-probability


@dataclass(eq=False)
class RealModel:
    """One loaded executor, shared by all tests of a session; each engine has its own cache.

    `num_judged` and `num_ties` count over the session.
    """

    executor: Executor
    info: EngineInfo
    config: RuntimeConfig
    tokenizer: Tokenizer
    num_judged: int = 0
    num_ties: int = 0

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def engine(
        self,
        *,
        num_pages: int | None = None,
        max_step_tokens: int = 512,
        watermark: float = 0.01,
        grammar: GrammarBuilder | None = None,
        jump_forward: bool = True,
    ) -> EngineDriver:
        """A fresh engine with an empty cache over the first `num_pages` pages."""
        config = RuntimeConfig(
            model=self.config.model,
            max_step_tokens=max_step_tokens,
            watermark=watermark,
            jump_forward=jump_forward,
        )
        info = msgspec.structs.replace(self.info, num_pages=num_pages or self.info.num_pages)
        return EngineDriver(self.executor, info, config=config, grammar=grammar)

    def assert_best(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Each token of a greedy answer that ignores end-of-sequence is the best after all before
        it, or tied with the best."""
        assert answer
        for token_id, (best, second) in zip(answer, self._top_two(prompt, answer), strict=True):
            self.num_judged += 1
            if token_id != best[0]:
                assert token_id == second[0]
                assert best[1] - second[1] < TIE, f"{token_id} was chosen, {best[0]} is better"
                self.num_ties += 1

    def _top_two(
        self, prompt: Sequence[int], answer: Sequence[int]
    ) -> list[tuple[Candidate, Candidate]]:
        token_ids = (*prompt, *answer[:-1])
        num_pages = -(-len(token_ids) // self.info.page_size)
        row = ScheduledRow(
            key=RowKey(1 << 40),
            token_ids=token_ids,
            start=0,
            page_ids=tuple(PageId(page) for page in range(num_pages)),
            sample_offsets=tuple(range(len(prompt) - 1, len(token_ids))),
        )
        self.executor.forward(ScheduledBatch(step=0, rows=(row,)))
        num_eos = len(self.info.eos_token_ids)
        greedy = Sampling(max_tokens=1, temperature=0.0, num_logprobs=2 + num_eos)
        rows = tuple(SampleRow(greedy, choice=0, position=i) for i in range(len(answer)))
        sampled = self.executor.sample(SamplePlan(rows))
        return [self._best_and_second(outcome.logprob) for outcome in sampled]

    def _best_and_second(self, logprob: TokenLogprob | None) -> tuple[Candidate, Candidate]:
        """End-of-sequence does not stand for election: the answers are asked to ignore it."""
        assert logprob is not None
        best, second, *_ = (one for one in logprob.top if one[0] not in self.info.eos_token_ids)
        return best, second
