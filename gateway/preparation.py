"""The first half of a generation: render, tokenize, check lengths and ids, try the constraint.

Everything that a client can get wrong is found here, before the first byte of an answer.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial

import msgspec

from gateway.bad_words import bad_word_tokens
from gateway.cache_plan import NO_CUT, CachedPrompt, CachePlan, plan_cache
from gateway.chat_template import ChatTemplate
from gateway.constraint_checker import ConstraintChecker
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
    TokenizedPrompt,
)
from gateway.kept_thoughts import ThoughtCuts
from gateway.prompt_encoding import PromptEncoder, PromptLimits, check_ids
from gateway.prompt_positions import PromptMap
from gateway.reasoning import Markers
from gateway.tokenizer import Tokenizer, check_unicode
from gateway.tools.calls import ToolRequest
from gateway.tools.constraint import ToolPlan, prepare_tools
from gateway.tools.families import HERMES
from grammar.errors import ConstraintTooExpensive, GrammarError, UnsupportedConstraint
from grammar.keyword_places import nameless_pointer
from grammar.probe import ProbeReport
from grammar.schema_document import steps_of
from grammar.spec import ConstraintSpec, Reasoning
from runtime.messages import AttributeValue, Phase, Sampling
from runtime.token_engine import TokenEngine
from telemetry import names

# The search keeps an object per character of the stop strings.
MAX_STOP_CHARS = 8_192
# Of a prompt with breakpoints: some milliseconds of the loop.
MAX_INLINE_POSITIONS = 4_096


class Preparation:
    """Turns requests into prepared ones. Owns the encoder of prompts."""

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
        self._encoder = PromptEncoder(tokenizer, template)
        self._template = template
        self._probe = probe
        self._markers = markers
        self._cuts = (
            None
            if markers is None or template is None
            else ThoughtCuts(template, markers, tokenizer)
        )
        self._dialect = HERMES if template is None else template.dialect
        self._clock = clock

    def close(self) -> None:
        """Ends the workers."""
        self._encoder.close()

    async def prepare(self, request: GenerationRequest) -> PreparedGeneration:
        """As Generator.prepare()."""
        async with self._deadline(request):
            return await self._prepare(request)

    async def tokenize(self, prompt: Prompt, *, with_pieces: bool) -> TokenizedPrompt:
        """As Generator.tokenize()."""
        limits = PromptLimits(self._max_model_len())
        return await self._encoder.tokenize(prompt, limits, with_pieces=with_pieces)

    async def locate(self, prompt: ChatPrompt, token_ids: Sequence[int]) -> PromptMap:
        """Where the messages are in a conversation's tokens."""
        return await self._encoder.locate(prompt, token_ids)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """As Generator.detokenize()."""
        return await self._encoder.detokenize(token_ids)

    async def _prepare(self, request: GenerationRequest) -> PreparedGeneration:
        limit = self._max_model_len()
        _check_stops(request.stop)
        _check_token_ids(request.sampling, vocab_size=self._tokenizer.vocab_size)
        limits = PromptLimits(limit, keep=_kept_tokens(request, limit))
        attributes: dict[str, AttributeValue] = {}
        with self._phase(request, names.SPAN_TOKENIZE, attributes):
            prompts = await self._encoder.encode(request.prompts, limits)
            sampling = self._sampling(request)
            attributes[names.ATTR_TOKENS] = sum(len(ids) for ids in prompts)
            if num_messages := _num_messages(request):
                attributes[names.ATTR_MESSAGES] = num_messages
        plans = await self._plan_cache(request, prompts)
        max_tokens = tuple(_settle_max_tokens(request, len(ids), limit=limit) for ids in prompts)
        prepared = PreparedGeneration(
            request=request,
            prompt_token_ids=tuple(prompts),
            sampling=sampling,
            max_tokens=max_tokens,
            reasoning=self._reasoning(request, prompts),
            ignored=(*self._ignored(request), *(name for plan in plans for name in plan.ignored)),
            cache=plans,
        )
        if request.tools is not None:
            plan = await self._plan_tools(request, request.tools)
            compile_s = None if plan.is_cached else plan.compile_ms / 1e3
            return replace(prepared, constraint=plan.prepared, tools=plan, compile_s=compile_s)
        if request.constraint is not None:
            report = await self._prepare_constraint(request, request.constraint)
            compile_s = None if report.cached else report.compile_ms / 1e3
            return replace(prepared, constraint=report.prepared, compile_s=compile_s)
        return prepared

    async def _plan_cache(
        self, request: GenerationRequest, prompts: Sequence[tuple[int, ...]]
    ) -> tuple[CachePlan, ...]:
        plans = []
        for index, (prompt, token_ids) in enumerate(zip(request.prompts, prompts, strict=True)):
            cached = CachedPrompt(len(token_ids), index=index)
            if isinstance(prompt, ChatPrompt):
                cached = await self._cached_chat(request, prompt, token_ids)
            # To ask for the ends of messages may take as long as to render them.
            is_long = cached.positions is not None and len(token_ids) > MAX_INLINE_POSITIONS
            plan = partial(plan_cache, request.cache, cached, use_cache=request.use_cache)
            plans.append(await asyncio.to_thread(plan) if is_long else plan())
        return tuple(plans)

    async def _cached_chat(
        self, request: GenerationRequest, prompt: ChatPrompt, token_ids: Sequence[int]
    ) -> CachedPrompt:
        positions = None
        if prompt.breakpoints and request.use_cache:
            positions = await self._encoder.locate(prompt, token_ids)
        cut = NO_CUT
        if self._cuts is not None:
            is_split = self._splits_reasoning(request)
            cut = self._cuts.of(prompt, token_ids, options=request.text, is_split=is_split)
        return CachedPrompt(
            len(token_ids),
            messages=prompt.messages,
            breakpoints=prompt.breakpoints,
            positions=positions,
            cut=cut,
        )

    async def _plan_tools(self, request: GenerationRequest, tools: ToolRequest) -> ToolPlan:
        for tool in tools.tools:
            check_unicode(tool.parameters, param=tool.param)
        if request.constraint is not None:
            check_unicode(request.constraint.value, param=request.constraint_param)
        with self._compiling(request) as attributes:
            attributes[names.ATTR_CONSTRAINT_KIND] = "tool_calls"
            plan = await prepare_tools(
                self._probe,
                tools,
                self._dialect,
                tokenizer=self._tokenizer,
                answer=request.constraint,
                answer_param=request.constraint_param,
            )
            attributes |= {
                names.ATTR_GRAMMAR_ENGINE: plan.prepared.engine,
                names.ATTR_COMPILE_CACHED: plan.is_cached,
                names.ATTR_COMPILE_MS: plan.compile_ms,
                names.ATTR_CONSTRAINT: "enforced" if plan.keeps_all else "partial",
                names.ATTR_CONSTRAINT_GAPS: plan.num_gaps,
            }
        return plan

    def _sampling(self, request: GenerationRequest) -> Sampling:
        """With what words and places are to this model's tokens."""
        sampling = request.sampling
        if request.bad_words:
            bad_words = bad_word_tokens(request.bad_words, self._tokenizer)
            sampling = msgspec.structs.replace(sampling, bad_words=bad_words)
        if any(isinstance(p, TextPrompt) and p.suffix is not None for p in request.prompts):
            ends = (*sampling.stop_token_ids, *self._encoder.fim_end_ids)
            sampling = msgspec.structs.replace(sampling, stop_token_ids=tuple(dict.fromkeys(ends)))
        return sampling

    def _ignored(self, request: GenerationRequest) -> tuple[str, ...]:
        """What this request gave and this model or its constraint cannot follow."""
        ignored = ["stop"] if request.stop and request.constraint is not None else []
        chats = (prompt for prompt in request.prompts if isinstance(prompt, ChatPrompt))
        asks_effort = any("reasoning_effort" in chat.options for chat in chats)
        if asks_effort and self._template is not None and not self._template.reads_effort:
            ignored.append("reasoning_effort")
        return tuple(ignored)

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

    @contextmanager
    def _compiling(self, request: GenerationRequest) -> Iterator[dict[str, AttributeValue]]:
        """The phase of a constraint that is tried out; gives its attributes. A refusal says for
        which keyword, and none of the client's words."""
        attributes: dict[str, AttributeValue] = {names.ATTR_GRAMMAR_WHERE: "gateway"}
        with self._phase(request, names.SPAN_GRAMMAR_COMPILE, attributes):
            try:
                yield attributes
            except InvalidConstraint as error:
                attributes[names.ATTR_CONSTRAINT] = "refused"
                if isinstance(cause := error.__cause__, UnsupportedConstraint) and cause.pointer:
                    steps = nameless_pointer(steps_of(cause.pointer))
                    attributes[names.ATTR_CONSTRAINT_POINTER] = steps
                    attributes[names.ATTR_CONSTRAINT_KEYWORD] = steps.rpartition("/")[2]
                raise

    def _reasoning(
        self, request: GenerationRequest, prompts: Sequence[tuple[int, ...]]
    ) -> tuple[Reasoning | None, ...]:
        """Of free answers only those to a conversation are told apart from what comes before."""
        markers, tokenizer = self._markers, self._tokenizer
        if markers is None or not self._splits_reasoning(request):
            return ()
        if _is_free(request) and not any(
            isinstance(prompt, ChatPrompt) for prompt in request.prompts
        ):
            return ()
        return tuple(
            markers.after_chat(token_ids, tokenizer)
            if isinstance(prompt, ChatPrompt)
            else markers.after_text(token_ids)
            for prompt, token_ids in zip(request.prompts, prompts, strict=True)
        )

    def _splits_reasoning(self, request: GenerationRequest) -> bool:
        """What is held to a constraint begins behind the thoughts."""
        return request.text.splits_reasoning or not _is_free(request)

    async def _prepare_constraint(
        self, request: GenerationRequest, spec: ConstraintSpec
    ) -> ProbeReport:
        param = request.constraint_param
        check_unicode(spec.value, param=param)
        with self._compiling(request) as attributes:
            attributes[names.ATTR_GRAMMAR_ENGINE] = spec.engine
            attributes[names.ATTR_CONSTRAINT_KIND] = spec.kind
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
            attributes |= {
                names.ATTR_GRAMMAR_ENGINE: report.prepared.engine,
                names.ATTR_COMPILE_CACHED: report.cached,
                names.ATTR_COMPILE_MS: report.compile_ms,
                names.ATTR_CONSTRAINT: report.prepared.enforcement,
                names.ATTR_CONSTRAINT_GAPS: len(report.prepared.gaps),
            }
        gaps = report.prepared.gaps
        if gaps and not spec.kind.startswith("json_"):
            # Only JSON can be validated when it is complete.
            first = UnsupportedConstraint(gaps[0].reason, pointer=gaps[0].pointer)
            raise _refused_constraint(spec, first, param=param)
        return report


def _is_free(request: GenerationRequest) -> bool:
    return request.constraint is None and request.tools is None


def _num_messages(request: GenerationRequest) -> int:
    chats = (prompt for prompt in request.prompts if isinstance(prompt, ChatPrompt))
    return sum(len(chat.messages) for chat in chats)


def _check_stops(stops: Sequence[str]) -> None:
    for stop in stops:
        check_unicode(stop, param="stop")
    if any(not stop for stop in stops):
        raise InvalidRequest("'stop' must not have an empty string.", param="stop")
    if sum(map(len, stops)) > MAX_STOP_CHARS:
        raise InvalidRequest(
            f"The strings of 'stop' may have {MAX_STOP_CHARS} characters together.", param="stop"
        )


def _check_token_ids(sampling: Sampling, *, vocab_size: int) -> None:
    check_ids(tuple(sampling.logit_bias), vocab_size=vocab_size, param="logit_bias")
    check_ids(sampling.stop_token_ids, vocab_size=vocab_size, param="stop_token_ids")
    check_ids(sampling.allowed_token_ids or (), vocab_size=vocab_size, param="allowed_token_ids")


def _kept_tokens(request: GenerationRequest, limit: int) -> int | None:
    """How many of a prompt's tokens are taken at the most; None = it is never cut."""
    wanted = request.truncate_prompt_tokens
    if wanted is None:
        return None
    return limit - (request.max_tokens or 1) if wanted == -1 else wanted


def _settle_max_tokens(request: GenerationRequest, prompt_len: int, *, limit: int) -> int:
    """What the request asks for or, without a wish, all that the context leaves.

    Raises: ContextLengthExceeded; InvalidRequest when min_tokens cannot be reached.
    """
    wanted = request.max_tokens
    if wanted is not None and request.has_default_limit:
        wanted = min(wanted, limit - prompt_len)
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
    wanted = None if request.has_default_limit else request.max_tokens
    if wanted is not None:
        asked += f", {wanted} for the completion"
    total = prompt_len + (wanted or 0)
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
