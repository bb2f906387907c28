"""The second half of a generation: one run of a prepared request through a TokenEngine.

Owns what is known of each choice until it ends, and sees to it that nothing stays behind in the
runtime, however the run ends.
"""

import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec

from gateway.answer_check import AnswerCheck
from gateway.checked_answers import CheckedEngine
from gateway.choice_text import ChoiceText
from gateway.engine_faults import RETRY_AFTER_S, to_gateway_error
from gateway.errors import Overloaded, ServerError
from gateway.final_check import FinalCheck
from gateway.generation import (
    Admitted,
    ChoiceFinished,
    Completed,
    FinishReason,
    GenerationEvent,
    PreparedGeneration,
    Submitted,
    TextDelta,
    Usage,
)
from gateway.merged_streams import merge_streams
from gateway.open_phases import OpenPhases
from gateway.prompt_part import PromptPart, wants_part, wants_scores
from gateway.reasoning import ReasoningBlock
from gateway.stop_strings import StopStrings
from gateway.tokenizer import Tokenizer
from gateway.tools.check import ToolCheck
from runtime.cache_messages import TierName
from runtime.messages import (
    ChoiceUsage,
    Phase,
    Submit,
    TokenEvent,
    TraceContext,
)
from runtime.token_engine import EngineUnavailable, TokenEngine
from telemetry import names

# Spreads the seeds of a request's prompts: two equal prompts must not give equal samples.
SEED_STRIDE = 0x9E3779B97F4A7C15
MAX_SEED = 2**63

_LOWER_TIERS: tuple[TierName, ...] = ("host", "disk", "redis")


class _ChoiceRun:
    """What is known of one choice of one prompt."""

    def __init__(self, text: ChoiceText, *, submitted_ns: int) -> None:
        self.text = text
        self.texts: list[str] = []
        self.cached_tokens: int | None = None
        self.usage: ChoiceUsage | None = None
        self.is_admitted = False
        self.is_finished = False
        self.open_phases = OpenPhases(submitted_ns)
        self._fetched: dict[TierName, int] = {}

    def note(self, event: TokenEvent, *, now_ns: int) -> None:
        """Takes from an event everything but its text."""
        self.is_admitted = self.is_admitted or event.admitted
        self.open_phases.note(event, now_ns=now_ns)
        for phase in event.phases:
            self._note_match(phase)
            self._note_fetch(phase)
        if event.usage is not None:
            # What goes on with a checked answer finds what its beginning left in the cache.
            first = self.usage or event.usage
            self.usage = msgspec.structs.replace(
                event.usage, written_tokens=first.written_tokens, tier_tokens=first.tier_tokens
            )
            if self.cached_tokens is None:
                self.cached_tokens = event.usage.cached_tokens

    def _note_match(self, phase: Phase) -> None:
        """The first match counts; one after a preemption finds the choice's own pages."""
        if phase.name == names.SPAN_CACHE_MATCH and self.cached_tokens is None:
            self.cached_tokens = int(phase.attributes.get(names.ATTR_CACHED_TOKENS, 0))

    def _note_fetch(self, phase: Phase) -> None:
        """What came, for an end before which the runtime does not say what of it was used."""
        if phase.attributes.get(names.ATTR_FETCH_DECISION) != "fetched":
            return
        for tier in _LOWER_TIERS:
            if phase.attributes.get(names.ATTR_CACHE_TIER) == tier:
                num_tokens = int(phase.attributes.get(names.ATTR_FETCH_TOKENS, 0))
                self._fetched[tier] = self._fetched.get(tier, 0) + num_tokens

    @property
    def is_computed(self) -> bool:
        """Whether its prompt is, as far as is known: tokens that are held back are not here."""
        return self.text.num_tokens > 0 or self.open_phases.has_decoded

    @property
    def forced_tokens(self) -> int:
        """0 where the runtime was told to stop before it said so."""
        return 0 if self.usage is None else self.usage.forced_tokens

    @property
    def tier_tokens(self) -> dict[TierName, int]:
        """As the runtime says at the end, or as far as what was fetched is what was found."""
        if self.usage is not None:
            return self.usage.tier_tokens
        left, counts = self.cached_tokens or 0, {}
        for tier, num_tokens in self._fetched.items():
            counts[tier] = min(num_tokens, left)
            left -= counts[tier]
        return counts

    def close_phases(
        self, index: int, *, now_ns: int, reason: FinishReason | None = None
    ) -> list[Phase]:
        """Those this choice was in, for an end that the runtime did not report."""
        return self.open_phases.close(
            index, now_ns=now_ns, num_tokens=self.text.num_tokens, reason=reason
        )


class _PromptRun:
    """One prompt of the request: one Submit, `choices` in order."""

    def __init__(
        self,
        submit: Submit,
        choices: list[_ChoiceRun],
        *,
        first_choice: int,
        part: PromptPart | None,
    ) -> None:
        self.submit = submit
        self.choices = choices
        self.first_choice = first_choice
        self.part = part
        self.stream: AsyncIterator[TokenEvent] | None = None

    @property
    def is_finished(self) -> bool:
        # No generator, as this is asked for each token.
        for choice in self.choices:
            if not choice.is_finished:
                return False
        return True

    @property
    def num_cached(self) -> int:
        """Its first choice's, as the others find what that one computed."""
        return self.choices[0].cached_tokens or 0

    @property
    def num_written(self) -> int:
        """What the runtime says, or would have if it had not been told to stop before."""
        first = self.choices[0]
        if first.usage is not None:
            return first.usage.written_tokens
        is_computed = any(choice.is_computed for choice in self.choices)
        return self.submit.num_written(self.num_cached) if is_computed else 0

    @property
    def is_admitted(self) -> bool:
        return any(choice.is_admitted for choice in self.choices)

    async def close(self) -> None:
        # The engine's iterators are asynchronous generators or have at least their method.
        close = getattr(self.stream, "aclose", None)
        if close is not None:
            await close()

    def __aiter__(self) -> "_PromptRun":
        return self

    def __anext__(self) -> Awaitable[TokenEvent]:
        """The engine's events until the last choice ended here, which may be before it ended
        there."""
        if self.is_finished:
            raise StopAsyncIteration
        assert self.stream is not None
        return self.stream.__anext__()


class GenerationRun:
    """One run. `events()` may be iterated once. With a `check` each complete answer is looked at
    before it is called so."""

    def __init__(
        self,
        prepared: PreparedGeneration,
        *,
        engine: TokenEngine | CheckedEngine,
        tokenizer: Tokenizer,
        check: AnswerCheck | None = None,
        tool_check: ToolCheck | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._prepared = prepared
        self._engine = engine
        self._final = FinalCheck(prepared.request, check=check, tool_check=tool_check, clock=clock)
        self._tokenizer = tokenizer
        self._clock = clock
        self._phase_log = prepared.request.phase_log
        self._is_admitted = False
        self._prompts = self._make_prompts()

    async def events(self) -> AsyncGenerator[GenerationEvent, None]:
        """As Generator.generate()."""
        is_complete = False
        try:
            yield self._submit()
            async with aclosing(merge_streams(self._prompts)) as merged:
                async for index, event in merged:
                    for news in self._take(self._prompts[index], event):
                        if isinstance(news, ChoiceFinished):
                            await self._verify(news)
                        yield news
            self._check_finished()
            is_complete = True
            yield Completed(self._usage(self._prompts))
        finally:
            self._abort_unfinished()
            if not is_complete and (begun := [one for one in self._prompts if one.is_admitted]):
                self._prepared.request.usage_log.append(self._usage(begun))
            for prompt in self._prompts:
                await prompt.close()

    def _make_prompts(self) -> list[_PromptRun]:
        request = self._prepared.request
        # A stop string inside a constrained output would cut it before it fits its constraint.
        stops = StopStrings(request.stop if request.constraint is None else ())
        includes_stop = request.text.includes_stop
        prompts = []
        for index in range(len(self._prepared.prompt_token_ids)):
            first_choice = index * request.num_choices
            choices = [
                _ChoiceRun(
                    ChoiceText(
                        first_choice + choice,
                        tokenizer=self._tokenizer,
                        scanner=stops.scanner(includes_stop=includes_stop),
                        sampling=request.sampling,
                        options=request.text,
                        drops_space=self._drops_space(index),
                        block=self._block(index),
                        plan=self._prepared.tools,
                    ),
                    submitted_ns=self._clock(),
                )
                for choice in range(request.num_choices)
            ]
            prompts.append(
                _PromptRun(
                    self._submit_of(index),
                    choices,
                    first_choice=first_choice,
                    part=self._part(index),
                )
            )
        return prompts

    def _part(self, index: int) -> PromptPart | None:
        if not wants_part(self._prepared.request):
            return None
        token_ids = self._prepared.prompt_token_ids[index]
        return PromptPart(
            self._prepared.request, index, token_ids=token_ids, tokenizer=self._tokenizer
        )

    def _drops_space(self, index: int) -> bool:
        """A constrained output is text to the last byte: nothing put a space before it."""
        prompt = self._prepared.prompt_token_ids[index]
        is_free = self._prepared.request.constraint is None
        return is_free and bool(prompt) and self._tokenizer.puts_space_after(prompt[-1])

    def _block(self, index: int) -> ReasoningBlock | None:
        reasoning = self._prepared.reasoning[index] if self._prepared.reasoning else None
        return None if reasoning is None else ReasoningBlock(reasoning, self._tokenizer)

    def _submit_of(self, index: int) -> Submit:
        request = self._prepared.request
        plan = self._prepared.cache_of(index)
        is_single = len(self._prepared.prompt_token_ids) == 1
        trace = None
        if request.traceparent is not None:
            trace = TraceContext(
                request.traceparent,
                request.tracestate,
                request.log_fields.get("request_id", ""),
            )
        return Submit(
            request_id=request.request_id if is_single else f"{request.request_id}.{index}",
            prompt_token_ids=list(self._prepared.prompt_token_ids[index]),
            sampling=msgspec.structs.replace(
                self._prepared.sampling,
                max_tokens=self._prepared.max_tokens[index],
                seed=prompt_seed(request.sampling.seed, index),
            ),
            num_choices=request.num_choices,
            constraint=self._prepared.constraint_of(index),
            namespace=request.namespace,
            tenant=request.tenant,
            use_cache=plan.is_used,
            cache=plan.hints,
            num_prompt_logprobs=(request.sampling.num_logprobs if wants_scores(request) else None),
            queue_deadline_ns=request.queue_deadline_ns,
            deadline_ns=request.deadline_ns,
            trace=trace,
        )

    def _submit(self) -> Submitted:
        for prompt in self._prompts:
            try:
                prompt.stream = self._engine.submit(prompt.submit)
            except EngineUnavailable as error:
                raise Overloaded(str(error), retry_after_s=RETRY_AFTER_S) from error
        info = self._engine.info
        assert info is not None, "an engine that takes requests has said what it is"
        return Submitted(info.engine_id, info.incarnation)

    def _take(self, prompt: _PromptRun, event: TokenEvent) -> Sequence[GenerationEvent]:
        choice = prompt.choices[event.choice]
        if choice.is_finished:
            return ()
        if not choice.text.num_tokens or event.phases or event.is_last:
            choice.note(event, now_ns=self._clock())
            self._phase_log.extend(event.phases)
        if event.error is not None:
            choice.is_finished = bool(event.phases)  # else its open phase is still to be closed
            raise to_gateway_error(event.error)
        told: list[GenerationEvent] = []
        if not self._is_admitted and (event.admitted or event.token_ids):
            self._is_admitted = True
            told.append(Admitted())
        if not event.token_ids and event.finish_reason is None and not event.prompt_logprobs:
            return told
        for news in (event,) if prompt.part is None else prompt.part.take(event):
            if isinstance(news, TextDelta):
                told.append(news)
            # Of events that waited together one may have ended its choice.
            elif not prompt.choices[news.choice].is_finished:
                told += self._take_tokens(prompt, prompt.choices[news.choice], news)
        return told

    def _take_tokens(
        self, prompt: _PromptRun, choice: _ChoiceRun, event: TokenEvent
    ) -> tuple[GenerationEvent, ...]:
        delta: TextDelta = choice.text.feed(event)
        reason = self._reason(choice.text, event)
        if reason is not None:
            choice.is_finished = True
        if reason is not None and event.finish_reason is None:
            self._engine.abort(prompt.submit.request_id, event.choice)
            self._phase_log += choice.close_phases(
                delta.choice, now_ns=self._clock(), reason=reason
            )
        if self._final.reads_texts:
            choice.texts.append(delta.text)
        if reason is None:
            return (delta,)
        return delta, ChoiceFinished(choice=delta.choice, reason=reason)

    def _reason(self, text: ChoiceText, event: TokenEvent) -> FinishReason | None:
        """As OpenAI has it, a call that was demanded by name ends with "stop"."""
        if text.is_stopped:
            return "stop"
        tools = self._prepared.request.tools
        if event.finish_reason != "stop" or tools is None or tools.mode == "named":
            return event.finish_reason
        has_calls = text.tools is not None and text.tools.are_complete
        return "tool_calls" if has_calls else "stop"

    async def _verify(self, finished: ChoiceFinished) -> None:
        """Raises: ConstraintViolated for a complete answer that is not what was asked for."""
        if finished.reason == "length":
            return
        num_choices = self._prepared.request.num_choices
        prompt = self._prompts[finished.choice // num_choices]
        choice = prompt.choices[finished.choice % num_choices]
        calls = () if choice.text.tools is None else choice.text.tools.calls
        await self._final.verify(finished.choice, "".join(choice.texts), calls)

    def _check_finished(self) -> None:
        if not all(prompt.is_finished for prompt in self._prompts):
            raise ServerError("The engine ended the request without an answer.")

    def _usage(self, prompts: Sequence[_PromptRun]) -> Usage:
        choices = [choice for prompt in prompts for choice in prompt.choices]
        tier_tokens: Counter[TierName] = Counter()
        for prompt in prompts:
            tier_tokens.update(prompt.choices[0].tier_tokens)
        return Usage(
            prompt_tokens=sum(len(prompt.submit.prompt_token_ids) for prompt in prompts),
            completion_tokens=sum(choice.text.num_tokens for choice in choices),
            cached_tokens=sum(prompt.num_cached for prompt in prompts),
            written_tokens=sum(prompt.num_written for prompt in prompts),
            retried_tokens=sum(self._prepared.request.retry_log),
            reasoning_tokens=sum(choice.text.num_reasoning_tokens for choice in choices),
            forced_tokens=sum(choice.forced_tokens for choice in choices),
            tier_tokens=dict(tier_tokens),
        )

    def _abort_unfinished(self) -> None:
        """Idempotent: what is aborted here counts as finished."""
        now_ns = self._clock()
        for prompt in self._prompts:
            if prompt.stream is None or prompt.is_finished:
                continue
            self._engine.abort(prompt.submit.request_id)
            for index, choice in enumerate(prompt.choices, start=prompt.first_choice):
                if not choice.is_finished:
                    choice.is_finished = True
                    self._phase_log += choice.close_phases(index, now_ns=now_ns)


def prompt_seed(seed: int, prompt_index: int) -> int:
    """The first prompt has the request's own seed, so alone or first it gives the same tokens."""
    return (seed + prompt_index * SEED_STRIDE) % MAX_SEED if prompt_index else seed
