"""The Generator over a TokenEngine: text on one side, token ids on the other.

prepare() is preparation.py, generate() is generation_run.py; this ties them to one model.
"""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import get_args

from gateway.answer_check import AnswerChecks
from gateway.chat_template import ChatTemplate
from gateway.checked_answers import CheckedEngine
from gateway.constraint_checker import ConstraintChecker
from gateway.engine_cache import EngineCache
from gateway.generation import (
    Capabilities,
    GenerationEvent,
    GenerationRequest,
    PreparedGeneration,
    Prompt,
    TokenizedPrompt,
)
from gateway.generation_run import GenerationRun
from gateway.preparation import Preparation
from gateway.reasoning import Markers
from gateway.tokenizer import Tokenizer
from gateway.tools.check import ToolCheck
from grammar.spec import ConstraintKind
from runtime.token_engine import TokenEngine


class TokenGenerator:
    """Implements gateway.generation.ServedModel. Starts and stops neither engine nor probe.

    `stop` strings do not apply to a constrained output: a hit could end it before it fits its
    constraint. prepare() then names `stop` in `ignored`.
    """

    def __init__(
        self,
        *,
        engine: TokenEngine,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        probe: ConstraintChecker,
        markers: Markers | None = None,
        checked_retries: int = 8,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """`template` None: chat is refused with a 400; `markers` None: the model does not reason.
        `clock` is wall-clock nanoseconds."""
        self._engine = engine
        self._tokenizer = tokenizer
        self._checked_retries = checked_retries
        self._clock = clock
        self._checks = AnswerChecks()
        self._preparation = Preparation(
            engine=engine,
            tokenizer=tokenizer,
            template=template,
            probe=probe,
            markers=markers,
            clock=clock,
        )
        self._cache = EngineCache(engine, tokenizer, self._preparation)

    @property
    def cache(self) -> EngineCache:
        return self._cache

    @property
    def capabilities(self) -> Capabilities:
        """`max_model_len` is known once the engine has said what it serves."""
        info = self._engine.info
        return Capabilities(
            token_prompts=True,
            constraints=frozenset(get_args(ConstraintKind)),
            logprobs=True,
            cached_tokens=True,
            max_model_len=None if info is None else info.max_model_len,
        )

    async def prepare(self, request: GenerationRequest) -> PreparedGeneration:
        """Raises: InvalidRequest and its kinds, Overloaded, DeadlineExceeded."""
        return await self._preparation.prepare(request)

    def generate(self, prepared: PreparedGeneration) -> AsyncGenerator[GenerationEvent, None]:
        """Raises: a GatewayError from the iterator; nothing is submitted before its first step."""
        spec = prepared.request.constraint
        check = None if spec is None else self._checks.of(spec)
        engine: TokenEngine | CheckedEngine = self._engine
        if check is not None and prepared.is_checked:
            engine = CheckedEngine(
                self._engine,
                check=check,
                tokenizer=self._tokenizer,
                max_retries=self._checked_retries,
                request=prepared.request,
                clock=self._clock,
            )
            check = None  # nothing leaves that engine unchecked
        tools = prepared.request.tools
        return GenerationRun(
            prepared,
            engine=engine,
            tokenizer=self._tokenizer,
            check=check,
            tool_check=None if tools is None else ToolCheck(self._checks, tools),
            clock=self._clock,
        ).events()

    async def tokenize(self, prompt: Prompt, *, with_pieces: bool = False) -> TokenizedPrompt:
        """Raises: InvalidRequest; Overloaded while the model is loaded."""
        return await self._preparation.tokenize(prompt, with_pieces=with_pieces)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """Raises: InvalidRequest naming an id that the model does not have."""
        return await self._preparation.detokenize(token_ids)

    def close(self) -> None:
        """Ends the workers for long prompts and answers."""
        self._preparation.close()
        self._checks.close()
