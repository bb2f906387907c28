"""A model that always wants the same and says what it may, behind HTTP and under real grammars."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from grammar.spec import ConstraintSpec, PreparedConstraint
from runtime.batch import SampledToken, SamplePlan, SampleRow
from tests.byte_tokenizer import IM_END, VOCAB_SIZE
from tests.fake_executor import FakeExecutor, History, is_allowed
from tests.tool_probe import tool_engine
from tests.whole_path import PAGE_SIZE, WholePath, byte_engine, serving

# Of what was said so far, the tokens that would come next, the most wanted first.
Wish = Callable[[bytes], Iterable[int]]
NUM_TOKENS = 263


class WishfulExecutor(FakeExecutor):
    """Samples the most wanted of the allowed tokens; those that nobody wants come by their ids,
    and the end of the answer last of all."""

    def __init__(self, wish: Wish) -> None:
        super().__init__(PAGE_SIZE, VOCAB_SIZE)
        self._wish = wish

    def _sample(self, row: SampleRow, history: History, plan: SamplePlan) -> SampledToken:
        said = history[len(history) - row.position :]
        rest = [token_id for token_id in range(NUM_TOKENS) if token_id != IM_END]
        wanted = (*self._wish(bytes(one for one in said if one < 256)), *rest, IM_END)
        return SampledToken(next((one for one in wanted if is_allowed(one, row, plan)), None))


@asynccontextmanager
async def wishing(wish: Wish, **settings: Any) -> AsyncIterator[WholePath]:
    """The model behind a gateway that tries constraints out with the engine that enforces them."""
    engine, grammar = byte_engine(WishfulExecutor(wish)), tool_engine(has_tokens=False)

    def tried_out(spec: ConstraintSpec) -> PreparedConstraint:
        prepared = grammar.prepare(spec)
        grammar.build(prepared)
        return prepared

    async with serving(engine, **settings) as path:
        path.probe.prepare = tried_out
        yield path
        engine.assert_idle()
