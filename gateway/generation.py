"""The seam between routes and engines: what a route asks of a Generator, and what comes back.

Routes know only this module. The embedded runtime stands behind
`TokenGenerator` (token_generator.py); a foreign engine will be another Generator over HTTP.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from gateway.cache_plan import CachePlan
from gateway.cache_wish import Breakpoint, CacheWish
from gateway.schemas.cache_response import CacheExplanation, CacheFlush, CacheState
from gateway.tools.calls import ToolFragment, ToolRequest
from gateway.tools.constraint import ToolPlan
from grammar.spec import ConstraintKind, ConstraintSpec, PreparedConstraint, Reasoning
from runtime.cache_messages import TierName
from runtime.messages import Phase, Sampling

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages in the wire's shape after validation (plain dicts for the template). `tools` are
    those that the template shows, in the shape of chat requests; `options` further variables of the
    template. With `continues_last` the answer goes on with the last message. `breakpoints` are in
    the order of the prompt."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    adds_generation_prompt: bool = True
    continues_last: bool = False
    adds_special: bool = False
    breakpoints: tuple[Breakpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A legacy completion prompt: text to tokenize, or token ids as they are. With a `suffix` the
    answer is what stands between both."""

    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    suffix: str | None = None
    adds_special: bool = True


Prompt = ChatPrompt | TextPrompt


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How the tokens of an answer are shown.

    `includes_stop`: the stop string that ended it is part of it. `keeps_special`: control tokens
    appear as they are written. `returns_ids`: the ids of its tokens and of the prompt's are given,
    `tokens_as_ids`: log-probabilities name tokens by their ids. `echoes`: the prompt comes before
    it, with scores if log-probabilities are wanted. `splits_reasoning`: what a chat model thinks
    first is told apart, `shows_reasoning`: and given.
    """

    includes_stop: bool = False
    keeps_special: bool = False
    returns_ids: bool = False
    tokens_as_ids: bool = False
    echoes: bool = False
    splits_reasoning: bool = True
    shows_reasoning: bool = True


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One HTTP request, validated. `max_tokens` None = what the context leaves; a default one, that
    no client asked for, is cut to that.

    Several prompts (legacy completions) give choices prompt_index * num_choices + i.
    `stop` strings are text; everything about tokens is in `sampling` (its max_tokens is
    settled by prepare()). Of a prompt its last `truncate_prompt_tokens` are kept (None = all, -1 =
    what fits). `bad_words` never appear. `use_cache` False: nothing of it is taken from the cache
    or left there; what else it says of the cache is in `cache`. Deadlines are wall-clock ns, 0 =
    none. `constraint_param` is the request's field that the constraint came from, for errors. The
    generator appends each phase to `phase_log` as it becomes known, so that a request has its trace
    however it ends; to `retry_log` the number of tokens that were thrown away, for each retry of a
    checked answer; to `usage_log` what a request took that ends before it is complete. `log_fields`
    belong on each log line about it.
    """

    request_id: str
    prompts: tuple[Prompt, ...]
    sampling: Sampling
    max_tokens: int | None
    has_default_limit: bool = False
    num_choices: int = 1
    stop: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    text: TextOptions = TextOptions()
    truncate_prompt_tokens: int | None = None
    use_cache: bool = True
    cache: CacheWish = CacheWish()
    constraint: ConstraintSpec | None = None
    constraint_param: str = "response_format"
    tools: ToolRequest | None = None
    namespace: bytes = b""
    tenant: str = ""
    queue_deadline_ns: int = 0
    deadline_ns: int = 0
    traceparent: str | None = None
    tracestate: str = ""
    phase_log: list[Phase] = field(default_factory=list, compare=False)
    retry_log: list[int] = field(default_factory=list, compare=False)
    log_fields: Mapping[str, str] = field(default_factory=dict, compare=False)
    usage_log: list["Usage"] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True)
class PreparedGeneration:
    """A request that can be run: rendered, tokenized, checked, its constraint prepared. `sampling`
    is the request's with what is found out about tokens. `ignored` names parameters that this
    request gave and that have no effect on it. `compile_s` is None where the constraint was known.
    `reasoning` has what may come before an answer, for each prompt, `cache` what the cache is asked
    for; `tools` how calls are told from its text."""

    request: GenerationRequest
    prompt_token_ids: tuple[tuple[int, ...], ...]
    sampling: Sampling
    max_tokens: tuple[int, ...]
    constraint: PreparedConstraint | None = None
    tools: ToolPlan | None = None
    reasoning: tuple[Reasoning | None, ...] = ()
    compile_s: float | None = None
    ignored: tuple[str, ...] = ()
    cache: tuple[CachePlan, ...] = ()

    @property
    def is_checked(self) -> bool:
        """Whether the mask enforces the constraint in part, so that answers are held back."""
        return self.constraint is not None and bool(self.constraint.gaps)

    @property
    def constraint_kind(self) -> ConstraintKind | None:
        """Calls and what may stand instead of them are one constraint."""
        if self.tools is not None:
            return "tool_calls"
        return None if self.request.constraint is None else self.request.constraint.kind

    @property
    def enforcement(self) -> str:
        """What the client is told of its constraint: enforced, checked, or partial where tools that
        are not strict are not wholly held to their schemas."""
        if self.tools is not None and not self.tools.keeps_all:
            return "partial"
        return "" if self.constraint is None else self.constraint.enforcement

    def constraint_of(self, prompt_index: int) -> PreparedConstraint | None:
        """What the answers to this prompt are held to, after what reasoning they may begin with."""
        if self.constraint is None or not self.reasoning:
            return self.constraint
        return msgspec.structs.replace(self.constraint, reasoning=self.reasoning[prompt_index])

    def cache_of(self, prompt_index: int) -> CachePlan:
        """Without a plan: what the request says, and no hints."""
        return self.cache[prompt_index] if self.cache else CachePlan(self.request.use_cache)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(ids) for ids in self.prompt_token_ids)


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """What a prompt of text is to the model: a conversation is its text. `pieces` are the
    vocabulary's own spellings of the tokens, where asked for."""

    text: str
    token_ids: tuple[int, ...]
    max_model_len: int
    pieces: tuple[str, ...] | None = None


# Made once a token, or more often: a struct is made in a tenth of a frozen dataclass's time.
class LogprobEntry(msgspec.Struct, frozen=True):
    """One token. `raw` are its bytes; `top` the k best, best first. Log-probabilities are finite,
    as JSON has no infinity; the first token of a prompt has none."""

    token: str
    raw: bytes
    logprob: float | None
    top: tuple["LogprobEntry", ...] = ()


@dataclass(frozen=True, slots=True)
class Submitted:
    """The request was given to an engine: which one, and which run of it."""

    engine_id: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The request left the queue: a stream may send its headers."""


class TextDelta(msgspec.Struct, frozen=True):
    """What one step gave to one choice. `text` may be empty (its characters are incomplete or
    may become a stop string): such a delta is counted, not sent. `reasoning` is text of the block
    before the answer, `tool_calls` come after `text`. `logprobs` are of the answer's tokens whose
    text is settled since the last delta, `num_tokens` of all those generated since it, as are
    `token_ids` where the request asked for them. The first deltas of a choice may give its prompt:
    `prompt_token_ids`, or its echo as text."""

    choice: int
    text: str
    logprobs: tuple[LogprobEntry, ...] = ()
    num_tokens: int = 0
    reasoning: str = ""
    tool_calls: tuple[ToolFragment, ...] = ()
    token_ids: tuple[int, ...] = ()
    prompt_token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChoiceFinished:
    """No more text for this choice."""

    choice: int
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Usage:
    """Prompt tokens are counted once per prompt, whatever the number of choices; cached tokens
    likewise (those of the prompt's first choice), and those that were computed for it and left in
    the cache (`written_tokens`); completion tokens over all choices, reasoning tokens among them,
    and those that a grammar left no choice about (`forced_tokens`). `tier_tokens` of the cached
    ones came from lower tiers. Tokens of answers that were thrown away are in `retried_tokens`
    only. Of a request that ended early the prompts count that left the queue, and of the answer
    what had come by then."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    retried_tokens: int = 0
    reasoning_tokens: int = 0
    written_tokens: int = 0
    forced_tokens: int = 0
    tier_tokens: Mapping[TierName, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Completed:
    """The last event: totals."""

    usage: Usage


GenerationEvent = Submitted | Admitted | TextDelta | ChoiceFinished | Completed


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this generator can do; a request for anything else is refused with a 400.
    `max_model_len` is None until it is known."""

    token_prompts: bool
    constraints: frozenset[ConstraintKind]
    logprobs: bool
    cached_tokens: bool
    max_model_len: int | None = None


class Generator(Protocol):
    """What answers a request."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def prepare(self, request: GenerationRequest) -> PreparedGeneration:
        """Renders, tokenizes, checks lengths and ids, compiles the constraint.

        Raises: a GatewayError (errors.py) with status 400, 503 or 504.
        """

    def generate(self, prepared: PreparedGeneration) -> AsyncIterator[GenerationEvent]:
        """Runs it. Closing the iterator early aborts the request in the runtime.

        Raises: a GatewayError.
        """


@dataclass(frozen=True, slots=True)
class CacheAsker:
    """Who asks about a cache: whose pages are its own, and whether it may know of others'."""

    owner: str
    sees_all: bool


class ServedCache(Protocol):
    """What a model's prefix cache says of itself. `model` is what answers call the model."""

    async def explain(
        self, prepared: PreparedGeneration, asker: CacheAsker, *, model: str
    ) -> tuple[CacheExplanation, ...]:
        """How much of each prompt is cached, and why not more. Nothing is generated or changed.

        Raises: Overloaded, ServerError.
        """

    async def describe(self, asker: CacheAsker, *, model: str, max_nodes: int) -> CacheState:
        """What is cached, and how well it serves. Raises: Overloaded, ServerError."""

    async def flush(self, *, model: str) -> CacheFlush:
        """Forgets all that no request uses. Raises: Overloaded, ServerError."""


class ServedModel(Generator, Protocol):
    """A model as routes find it: it answers, and says what text is to it."""

    @property
    def cache(self) -> ServedCache | None:
        """None where what stands behind cannot be asked about its cache."""

    async def tokenize(self, prompt: Prompt, *, with_pieces: bool = False) -> TokenizedPrompt:
        """A prompt of text as it is, without what an answer would need. It is not cut, and may be
        too long for the model.

        Raises: a GatewayError with status 400 or 503.
        """

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, control tokens as they are written.

        Raises: InvalidRequest naming an id that the model does not have.
        """
