"""The first half of a generation: render, tokenize, check lengths and ids, try the constraint.

Everything that a client can get wrong is found here, before the first byte of an answer.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

from gateway.chat_template import ChatTemplate
from gateway.engine_faults import RETRY_AFTER_S
from gateway.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    InvalidConstraint,
    InvalidRequest,
    Overloaded,
)
from gateway.generation import (
    ChatPrompt,
    GenerationRequest,
    PreparedGeneration,
    Prompt,
    TextPrompt,
)
from gateway.message_shapes import Message
from gateway.reasoning import Markers
from gateway.tokenizer import Tokenizer, check_unicode
from grammar.errors import ConstraintTooExpensive, GrammarError, UnsupportedConstraint
from grammar.spec import ConstraintSpec, PreparedConstraint, Reasoning
from runtime.messages import AttributeValue, Phase
from runtime.token_engine import TokenEngine
from telemetry import names

# Above this many characters a request's prompts are made in a worker: about 10 ms of the loop.
MAX_INLINE_CHARS = 50_000
NUM_WORKERS = 2
# What a prompt, message or part costs beside its text, so that many empty ones count too.
OVERHEAD_CHARS = 100
# The search keeps an object per character of the stop strings.
MAX_STOP_CHARS = 8_192


class ProbeReportLike(Protocol):
    """What grammar.probe says of a constraint that compiles."""

    @property
    def cached(self) -> bool: ...
    @property
    def compile_ms(self) -> float: ...
    @property
    def prepared(self) -> PreparedConstraint: ...


class ConstraintChecker(Protocol):
    """grammar.probe.ConstraintProbe, as far as it matters here."""

    async def check(self, spec: ConstraintSpec) -> ProbeReportLike:
        """Raises: UnsupportedConstraint, ConstraintTooExpensive; GrammarError when it could not
        be tried out at all."""


class Preparation:
    """Turns requests into prepared ones. Owns the workers for long prompts."""

    def __init__(
        self,
        *,
        engine: TokenEngine,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        probe: ConstraintChecker,
        markers: Markers | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._template = template
        self._probe = probe
        self._markers = markers
        self._clock = clock
        self._workers = ThreadPoolExecutor(NUM_WORKERS, thread_name_prefix="tokenize")

    def close(self) -> None:
        """Ends the workers; a prompt in work is finished, waiting ones are dropped."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def prepare(self, request: GenerationRequest) -> PreparedGeneration:
        """As Generator.prepare()."""
        async with self._deadline(request):
            return await self._prepare(request)

    async def _prepare(self, request: GenerationRequest) -> PreparedGeneration:
        limit = self._max_model_len()
        _check_stops(request.stop)
        _check_token_ids(request, vocab_size=self._tokenizer.vocab_size)
        attributes: dict[str, AttributeValue] = {}
        with self._phase(request, names.SPAN_TOKENIZE, attributes):
            is_long = sum(map(_num_chars, request.prompts)) > MAX_INLINE_CHARS
            prompts = [
                await self._token_ids(p, is_long=is_long, limit=limit) for p in request.prompts
            ]
            attributes[names.ATTR_TOKENS] = sum(len(ids) for ids in prompts)
        max_tokens = tuple(_settle_max_tokens(request, len(ids), limit=limit) for ids in prompts)
        report = None
        if request.constraint is not None:
            report = await self._prepare_constraint(request, request.constraint)
        return PreparedGeneration(
            request=request,
            prompt_token_ids=tuple(prompts),
            max_tokens=max_tokens,
            constraint=None if report is None else report.prepared,
            reasoning=self._reasoning(request, prompts),
            compile_s=None if report is None or report.cached else report.compile_ms / 1e3,
            ignored=("stop",) if request.stop and request.constraint is not None else (),
        )

    def _max_model_len(self) -> int:
        info = self._engine.info
        if info is None:
            raise Overloaded("The model is still being loaded.", retry_after_s=RETRY_AFTER_S)
        return info.max_model_len

    @asynccontextmanager
    async def _deadline(self, request: GenerationRequest) -> AsyncIterator[None]:
        """Raises: DeadlineExceeded when the request's deadline passes inside."""
        if not request.deadline_ns:
            yield
            return
        seconds = (request.deadline_ns - self._clock()) / 1e9
        late = DeadlineExceeded(
            "The request's deadline passed while its prompt and constraint were prepared."
        )
        if seconds <= 0:
            raise late
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise late from None

    @contextmanager
    def _phase(
        self, request: GenerationRequest, name: str, attributes: Mapping[str, AttributeValue]
    ) -> Iterator[None]:
        """Records what happens inside, also when it fails or is cancelled."""
        start_ns = self._clock()
        try:
            yield
        finally:
            request.phase_log.append(
                Phase(
                    name=name,
                    start_ns=start_ns,
                    end_ns=self._clock(),
                    attributes=dict(attributes),
                )
            )

    async def _token_ids(self, prompt: Prompt, *, is_long: bool, limit: int) -> tuple[int, ...]:
        if isinstance(prompt, TextPrompt) and prompt.token_ids is not None:
            return self._given_ids(prompt.token_ids, limit)
        if not is_long:
            return self._encode(prompt, limit)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, self._encode, prompt, limit)

    def _given_ids(self, token_ids: tuple[int, ...], limit: int) -> tuple[int, ...]:
        if not token_ids:
            raise InvalidRequest(
                "'prompt' must have at least one token.", code="empty_array", param="prompt"
            )
        if len(token_ids) < limit:  # millions of them are refused for their number alone
            _check_ids(token_ids, vocab_size=self._tokenizer.vocab_size, param="prompt")
        return token_ids

    def _encode(self, prompt: Prompt, limit: int) -> tuple[int, ...]:
        if isinstance(prompt, ChatPrompt):
            if self._template is None:
                raise InvalidRequest(
                    "This model has no chat template: use /v1/completions.", param="messages"
                )
            text = self._template.render(prompt.messages)
            self._check_text_len(text, limit=limit, param="messages")
            return tuple(self._tokenizer.encode(text, add_special=False, param="messages"))
        self._check_text_len(prompt.text or "", limit=limit, param="prompt")
        token_ids = self._tokenizer.encode(prompt.text or "", add_special=True, param="prompt")
        return tuple(token_ids) or (self._document_start(),)

    def _check_text_len(self, text: str, *, limit: int, param: str) -> None:
        """Megabytes that cannot fit are not worth the seconds of tokenizing them."""
        num_tokens = self._tokenizer.min_num_tokens(text)
        if num_tokens >= limit:
            raise ContextLengthExceeded(
                f"This model's maximum context length is {limit} tokens. However, the {param} have"
                f" {len(text)} characters, which are {num_tokens} tokens at the least. Please"
                f" reduce the length of the {param}.",
                param=param,
            )

    def _reasoning(
        self, request: GenerationRequest, prompts: Sequence[tuple[int, ...]]
    ) -> tuple[Reasoning | None, ...]:
        markers, tokenizer = self._markers, self._tokenizer
        if markers is None or request.constraint is None:
            return ()
        return tuple(
            markers.after_chat(token_ids, tokenizer)
            if isinstance(prompt, ChatPrompt)
            else markers.after_text(token_ids)
            for prompt, token_ids in zip(request.prompts, prompts, strict=True)
        )

    def _document_start(self) -> int:
        """What an empty prompt is to the model: the token that documents begin with."""
        if self._tokenizer.bos_token_id is not None:
            return self._tokenizer.bos_token_id
        if self._tokenizer.eos_token_ids:
            return self._tokenizer.eos_token_ids[0]
        raise InvalidRequest("This model cannot continue an empty prompt.", param="prompt")

    async def _prepare_constraint(
        self, request: GenerationRequest, spec: ConstraintSpec
    ) -> ProbeReportLike:
        param = request.constraint_param
        check_unicode(spec.value, param=param)
        attributes: dict[str, AttributeValue] = {
            names.ATTR_GRAMMAR_ENGINE: spec.engine,
            names.ATTR_GRAMMAR_WHERE: "gateway",
        }
        with self._phase(request, names.SPAN_GRAMMAR_COMPILE, attributes):
            try:
                report = await self._probe.check(spec)
            except UnsupportedConstraint as error:
                raise _refused_constraint(spec, error, param=param) from error
            except ConstraintTooExpensive as error:
                raise InvalidConstraint(
                    f"Invalid '{param}': {error}.", code="schema_too_complex", param=param
                ) from error
            except GrammarError as error:
                raise Overloaded(
                    f"The constraint could not be tried out: {error}.",
                    retry_after_s=RETRY_AFTER_S,
                ) from error
            attributes[names.ATTR_GRAMMAR_ENGINE] = report.prepared.engine
            attributes[names.ATTR_COMPILE_CACHED] = report.cached
        gaps = report.prepared.gaps
        if gaps and not spec.kind.startswith("json_"):
            # Only JSON can be validated when it is complete.
            first = UnsupportedConstraint(gaps[0].reason, pointer=gaps[0].pointer)
            raise _refused_constraint(spec, first, param=param)
        return report


def _num_chars(prompt: Prompt) -> int:
    """About how much text a prompt has, for choosing where it is tokenized."""
    if isinstance(prompt, TextPrompt):
        return OVERHEAD_CHARS + len(prompt.text or "")
    return sum(OVERHEAD_CHARS + _content_chars(message) for message in prompt.messages)


def _content_chars(message: Message) -> int:
    content = message.get("content")
    if isinstance(content, list):
        return sum(OVERHEAD_CHARS + len(str(part.get("text", ""))) for part in content)
    return len(content or "") + len(str(message.get("tool_calls") or ""))


def _check_stops(stops: Sequence[str]) -> None:
    for stop in stops:
        check_unicode(stop, param="stop")
    if any(not stop for stop in stops):
        raise InvalidRequest("'stop' must not have an empty string.", param="stop")
    if sum(map(len, stops)) > MAX_STOP_CHARS:
        raise InvalidRequest(
            f"The strings of 'stop' may have {MAX_STOP_CHARS} characters together.", param="stop"
        )


def _check_token_ids(request: GenerationRequest, *, vocab_size: int) -> None:
    sampling = request.sampling
    _check_ids(sampling.logit_bias, vocab_size=vocab_size, param="logit_bias")
    _check_ids(sampling.stop_token_ids, vocab_size=vocab_size, param="stop_token_ids")


def _check_ids(
    token_ids: Sequence[int] | Mapping[int, float], *, vocab_size: int, param: str
) -> None:
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                f"Invalid token id in '{param}': {token_id}; this model has the ids 0 to"
                f" {vocab_size - 1}.",
                param=param,
            )


def _settle_max_tokens(request: GenerationRequest, prompt_len: int, *, limit: int) -> int:
    """What the request asks for or, without a wish, all that the context leaves.

    Raises: ContextLengthExceeded; InvalidRequest when min_tokens cannot be reached.
    """
    wanted = request.max_tokens
    if prompt_len >= limit or (wanted is not None and prompt_len + wanted > limit):
        raise _too_long(request, prompt_len, limit=limit)
    max_tokens = limit - prompt_len if wanted is None else wanted
    if request.sampling.min_tokens > max_tokens:
        raise InvalidRequest(
            f"'min_tokens' is {request.sampling.min_tokens}, but at most {max_tokens} tokens can"
            " be generated.",
            param="min_tokens",
        )
    return max_tokens


def _too_long(request: GenerationRequest, prompt_len: int, *, limit: int) -> ContextLengthExceeded:
    param = "messages" if isinstance(request.prompts[0], ChatPrompt) else "prompt"
    asked = f"{prompt_len} in the {param}"
    if request.max_tokens is not None:
        asked += f", {request.max_tokens} for the completion"
    total = prompt_len + (request.max_tokens or 0)
    return ContextLengthExceeded(
        f"This model's maximum context length is {limit} tokens. However, you requested {total}"
        f" tokens ({asked}). Please reduce the length of the {param} or of the completion.",
        param=param,
    )


def _constraint_code(spec: ConstraintSpec) -> str:
    return "invalid_json_schema" if spec.kind.startswith("json_") else "invalid_grammar"


def _refused_constraint(
    spec: ConstraintSpec, error: UnsupportedConstraint, *, param: str
) -> InvalidConstraint:
    where = f" at '{error.pointer}'" if error.pointer else ""
    noun = "schema" if spec.kind.startswith("json_") else spec.kind
    return InvalidConstraint(
        f"Invalid {noun} in '{param}'{where}: {error.reason}",
        code=_constraint_code(spec),
        param=param,
    )
