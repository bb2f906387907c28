"""What the generation routes share: reading a body, and making a Call of it."""

import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

from starlette.requests import Request

from gateway.accounts import Account
from gateway.answer import Answer, Call, KeepAlive
from gateway.body_reader import BodyReader
from gateway.cache_wish import CacheWish
from gateway.constraint_request import ConstraintRequest
from gateway.errors import InvalidRequest
from gateway.generation import (
    Capabilities,
    GenerationRequest,
    Generator,
    PreparedGeneration,
    Prompt,
    ServedModel,
    TextOptions,
    TextPrompt,
)
from gateway.lifecycle import Lifecycle
from gateway.limiter import Admission, Limiter
from gateway.parameters import BodyRules
from gateway.rate_limits import RateLimits
from gateway.registry import ModelRegistry
from gateway.request_context import RequestContext, request_context
from gateway.sampling import cache_salt, given_request_id, new_seed, stop_strings, to_sampling
from gateway.schemas.answer import AnswerHead, Presenter
from gateway.schemas.fields import SamplingFields
from gateway.settings import Settings
from gateway.tools.calls import ToolRequest
from gateway.trace_content import request_content
from grammar.spec import ConstraintSpec
from prefix_cache.identity import tenant_salt
from telemetry import names

_NS = 1_000_000_000
_MIB = 1024 * 1024
Operation = Literal["chat", "text_completion", "response"]
_ID_PREFIXES: dict[Operation, str] = {
    "chat": "chatcmpl-",
    "text_completion": "cmpl-",
    "response": "resp_",
}
# The conventions' name for each; both ways to ask for a turn of a conversation have one.
_TRACED_OPERATIONS: dict[Operation, str] = {
    "chat": "chat",
    "text_completion": "text_completion",
    "response": "chat",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a route found in its body, before it is a GenerationRequest. `operation` is the
    endpoint; `logprobs` None = none wanted. `instructions` came apart from the conversation and are
    its first message; `conversation_id` None = the request belongs to none that has a name."""

    operation: Operation
    fields: SamplingFields
    prompts: tuple[Prompt, ...]
    max_tokens: int | None
    logprobs: int | None
    constraint: ConstraintRequest | None
    ignored: tuple[str, ...]
    text: TextOptions = TextOptions()
    tools: ToolRequest | None = None
    service_tier: str | None = None
    metadata: dict[str, str] | None = None
    has_default_limit: bool = False
    cache: CacheWish = CacheWish()
    instructions: str | None = None
    conversation_id: str | None = None
    answer_token: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def num_choices(self) -> int:
        return len(self.prompts) * (self.fields.n or 1)

    @property
    def answer_id(self) -> str:
        return _ID_PREFIXES[self.operation] + self.answer_token

    @property
    def is_stream(self) -> bool:
        return bool(self.fields.stream)


WantedT = TypeVar("WantedT", bound=Wanted)
ToWanted = Callable[[dict[str, Any], tuple[str, ...]], WantedT]


class Serving:
    """Made once per app; `bodies` reads those of all routes."""

    def __init__(
        self,
        settings: Settings,
        *,
        models: ModelRegistry,
        limiter: Limiter,
        rates: RateLimits,
        lifecycle: Lifecycle,
        fingerprint: Callable[[], str],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._settings = settings
        self._models = models
        self._limiter = limiter
        self._rates = rates
        self._fingerprint = fingerprint
        self._clock = clock
        self._secret = settings.server_secret.encode()
        self._keep_alive = KeepAlive(settings.keepalive, settings.keepalive_s)
        self.bodies = BodyReader(lifecycle, timeout_s=settings.request_timeout_s)

    async def read(
        self, request: Request, rules: BodyRules, to_wanted: ToWanted[WantedT]
    ) -> WantedT:
        """What the body asks for, as BodyReader.read() gives it, of a model that the key may use.

        Raises: a GatewayError with status 400, 404, 408, 413, 415 or 503.
        """
        wanted = await self.bodies.read(request, rules, to_wanted)
        context = request_context(request.scope)
        request_id = given_request_id(wanted.fields)
        if request_id is not None:
            context.rename(request_id)
        self._models.open_to(context.account).id_of(wanted.fields.model)
        return wanted

    def answer(
        self, request: Request, wanted: Wanted, present: Callable[[AnswerHead], Presenter]
    ) -> Answer:
        """The response that runs the request when it is sent.

        Raises: InvalidRequest, or NotFound for the model.
        """
        head = self.head(wanted)
        return self.run(self.call(request, wanted, head=head, presenter=present(head)))

    def head(self, wanted: Wanted) -> AnswerHead:
        """What the answer will be called. Raises: NotFound for the model."""
        options = wanted.fields.stream_options
        return AnswerHead(
            id=wanted.answer_id,
            created=self._clock() // _NS,
            model=self._models.name_in_answers(wanted.fields.model),
            system_fingerprint=self._fingerprint(),
            num_choices=wanted.num_choices,
            has_logprobs=wanted.logprobs is not None,
            includes_usage=options is not None and bool(options.include_usage),
            service_tier=wanted.service_tier,
            metadata=wanted.metadata,
        )

    def call(
        self, request: Request, wanted: Wanted, *, head: AnswerHead, presenter: Presenter
    ) -> Call:
        """The request, ready to be run. Raises: InvalidRequest, or NotFound for the model."""
        context = request_context(request.scope)
        generator = self.model(request, wanted.fields.model)
        self._check(wanted, generator.capabilities)
        call = Call(
            generator=generator,
            request=self._generation_request(wanted, context),
            presenter=presenter,
            num_choices=wanted.num_choices,
            is_stream=wanted.is_stream,
            ignored=wanted.ignored,
        )
        _describe(
            context,
            wanted,
            call.request,
            response_model=head.model,
            model_id=self._models.id_of(wanted.fields.model),
        )
        if self._settings.trace_content:
            _record_content(context, wanted, call.request)
        return call

    def run(self, call: Call) -> Answer:
        """The response that runs the call when it is sent."""
        return Answer(
            call,
            limiter=self._limiter,
            rates=self._rates,
            keep_alive=self._keep_alive,
            clock=self._clock,
        )

    async def prepare(
        self, request: Request, wanted: Wanted, generator: Generator | None = None
    ) -> PreparedGeneration:
        """What would be run, all of it checked and nothing run; by `generator` if the model answers
        through one.

        Raises: a GatewayError with status 400, 404, 429, 503 or 504.
        """
        context = request_context(request.scope)
        generator = generator or self.model(request, wanted.fields.model)
        self._check(wanted, generator.capabilities)
        generation = self._generation_request(wanted, context)
        if context.observation is not None:
            context.observation.only_prepares(generation)
        with self.place(request):
            return await generator.prepare(generation)

    def model(self, request: Request, name: str | None) -> ServedModel:
        """The model of this name that the key may use; None is the first of them.

        Raises: NotFound.
        """
        seen = self._models.open_to(request_context(request.scope).account)
        return seen.find(next(iter(seen.names), "") if name is None else name)

    def name_in_answers(self, request: Request, name: str | None) -> str:
        """What answers call the model of this name; None is the first that the key may use.

        Raises: NotFound.
        """
        if name is None:
            name = next(
                iter(self._models.open_to(request_context(request.scope).account).names), ""
            )
        return self._models.name_in_answers(name)

    def place(self, request: Request) -> AbstractContextManager[Admission]:
        """A place among the accepted requests for work that is no generation.

        Raises: RateLimited, Overloaded.
        """
        return self._limiter.admit(request_context(request.scope).account, 1)

    def _check(self, wanted: Wanted, capabilities: Capabilities) -> None:
        fields = wanted.fields
        if fields.n is not None and fields.n > self._settings.max_choices:
            raise InvalidRequest(
                f"Invalid value for 'n': this server gives at most {self._settings.max_choices}.",
                code="integer_above_max_value",
                param="n",
            )
        if fields.stream_options is not None and not wanted.is_stream:
            raise InvalidRequest(
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                param="stream_options",
            )
        if wanted.logprobs is not None and not capabilities.logprobs:
            raise _beyond_model("logprobs")
        has_ids = any(isinstance(p, TextPrompt) and p.token_ids is not None for p in wanted.prompts)
        if has_ids and not capabilities.token_prompts:
            raise _beyond_model("prompt")

    def _generation_request(self, wanted: Wanted, context: RequestContext) -> GenerationRequest:
        fields, now = wanted.fields, self._clock()
        assert context.observation is not None, "generation routes are observed"
        trace = context.observation.trace
        return GenerationRequest(
            request_id=wanted.answer_id,
            prompts=wanted.prompts,
            sampling=to_sampling(fields, num_logprobs=wanted.logprobs, seed=new_seed()),
            max_tokens=wanted.max_tokens,
            has_default_limit=wanted.has_default_limit,
            num_choices=fields.n or 1,
            stop=stop_strings(fields),
            bad_words=tuple(dict.fromkeys(fields.bad_words or ())),
            text=wanted.text,
            truncate_prompt_tokens=fields.truncate_prompt_tokens,
            use_cache=fields.cache_prompt is not False,
            cache=self._cache_wish(wanted, context.account),
            tools=wanted.tools,
            constraint=self._constraint(wanted),
            constraint_param="" if wanted.constraint is None else wanted.constraint.param,
            namespace=tenant_salt(self._secret, context.account.cache_owner, cache_salt(fields)),
            tenant=context.tenant,
            queue_deadline_ns=_deadline(now, self._settings.queue_timeout_s),
            deadline_ns=_deadline(now, self._settings.request_timeout_s),
            traceparent=trace.traceparent,
            tracestate=trace.tracestate,
            log_fields=context.log_fields,
        )

    def _cache_wish(self, wanted: Wanted, account: Account) -> CacheWish:
        """With whose cache it is, and for how long anything is kept there."""
        settings, quota_mb = self._settings, account.limits.cache_quota_mb
        return replace(
            wanted.cache,
            owner=account.cache_owner,
            quota_bytes=None if quota_mb is None else quota_mb * _MIB,
            max_ttl_s=settings.cache_max_ttl_s if settings.cache_pin_share else 0.0,
        )

    def _constraint(self, wanted: Wanted) -> ConstraintSpec | None:
        asked = wanted.constraint
        if asked is None:
            return None
        if asked.kind not in self._models.find(wanted.fields.model).capabilities.constraints:
            raise _beyond_model(asked.param)
        return asked.spec(
            engine=self._settings.grammar_engine, allows_checked=self._settings.allow_checked
        )


def _deadline(now_ns: int, timeout_s: float) -> int:
    """0 = none, as in GenerationRequest."""
    return now_ns + int(timeout_s * _NS) if timeout_s else 0


def _beyond_model(param: str) -> InvalidRequest:
    return InvalidRequest(
        f"Unsupported parameter: '{param}' is not supported with this model.",
        code="unsupported_parameter",
        param=param,
    )


def _describe(
    context: RequestContext,
    wanted: Wanted,
    request: GenerationRequest,
    *,
    response_model: str,
    model_id: str,
) -> None:
    """The request's shape on its trace, without what it says."""
    fields, sampling = wanted.fields, request.sampling
    assert context.observation is not None, "generation routes are observed"
    context.observation.describe(
        operation=_TRACED_OPERATIONS[wanted.operation],
        model=fields.model,
        attributes={
            names.GEN_AI_REQUEST_MAX_TOKENS: request.max_tokens,
            names.GEN_AI_REQUEST_TEMPERATURE: sampling.temperature,
            names.GEN_AI_REQUEST_TOP_P: sampling.top_p,
            names.GEN_AI_REQUEST_TOP_K: sampling.top_k or None,
            names.GEN_AI_REQUEST_SEED: fields.seed,
            names.GEN_AI_REQUEST_FREQUENCY_PENALTY: fields.frequency_penalty,
            names.GEN_AI_REQUEST_PRESENCE_PENALTY: fields.presence_penalty,
            names.GEN_AI_REQUEST_CHOICES: wanted.num_choices if wanted.num_choices > 1 else None,
            names.GEN_AI_REQUEST_STREAM: wanted.is_stream,
            names.GEN_AI_REQUEST_STOP: request.stop or None,
            names.GEN_AI_CONVERSATION: wanted.conversation_id,
            names.GEN_AI_OUTPUT_TYPE: _output_type(request.constraint),
            names.ATTR_CACHE_KEY: request.cache.key or None,
            names.GEN_AI_RESPONSE_ID: request.request_id,
            names.GEN_AI_RESPONSE_MODEL: response_model,
        },
        request=request,
        model_id=model_id,
    )


def _record_content(context: RequestContext, wanted: Wanted, request: GenerationRequest) -> None:
    assert context.observation is not None, "generation routes are observed"
    context.observation.record_content(partial(request_content, request, wanted.instructions))


def _output_type(constraint: ConstraintSpec | None) -> str:
    is_json = constraint is not None and constraint.kind in ("json_schema", "json_object")
    return "json" if is_json else "text"
