"""An engine over the fake executor whose constraints are written out token by token."""

import threading
from collections.abc import Callable

from grammar.matcher import Vocabulary
from runtime.grammar_builder import GrammarBuilder
from runtime.messages import Submit
from tests.engine_harness import EOS, VOCAB_SIZE, Answer, EngineHarness
from tests.fake_executor import Chooser
from tests.fake_grammar import FakeGrammarEngine

MakeHarness = Callable[..., "GrammarHarness"]


class GrammarHarness(EngineHarness):
    """An engine with a real builder thread over a fake grammar engine."""

    def __init__(
        self,
        *,
        num_pages: int = 256,
        watermark: float = 0.01,
        max_step_tokens: int = 512,
        max_model_len: int = 4096,
        max_running: int = 16,
        jump_forward: bool = True,
        choose: Chooser | None = None,
    ) -> None:
        self.grammar_engine = FakeGrammarEngine()
        self.rings = threading.Semaphore(0)
        self.builder = GrammarBuilder(
            Vocabulary("{}", VOCAB_SIZE, (EOS,)),
            load=self.grammar_engine.load,
            on_ready=self.rings.release,
        )
        super().__init__(
            grammar=self.builder,
            num_pages=num_pages,
            watermark=watermark,
            max_step_tokens=max_step_tokens,
            max_model_len=max_model_len,
            max_running=max_running,
            jump_forward=jump_forward,
            choose=choose,
        )

    def wait_for_build(self) -> None:
        assert self.rings.acquire(timeout=5.0), "no build became ready"

    def ask(self, request: Submit) -> Answer:
        """Also waits for the matcher of a constraint that is new."""
        self.submit(request)
        self.run()
        while not self.is_done(request.request_id):
            self.wait_for_build()
            self.run()
        return self.answer(request.request_id)

    def close(self) -> None:
        self.grammar_engine.gate.set()
        self.builder.close()
