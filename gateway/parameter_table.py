"""The one list of request parameters: what each endpoint does with a name.

A name with dots is a key inside an object (or inside each element of a list); a name that ends
in * stands for all names that begin so. Null always counts as absent.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Endpoint(enum.StrEnum):
    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    EMBEDDINGS = "/v1/embeddings"


# The rows of the others say what their endpoints would need; their paths answer 404.
SERVED = frozenset({Endpoint.CHAT, Endpoint.COMPLETIONS})


class Action(enum.StrEnum):
    """IGNORED: accepted, without effect, and named in the x-radixgate-ignored header."""

    IMPLEMENTED = "implemented"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row. `harmless` are values of a refused parameter that mean the same as its absence;
    `harmless_like` names another parameter with whose value (or 1) it may agree."""

    name: str
    endpoints: frozenset[Endpoint]
    action: Action
    reason: str = ""
    harmless: tuple[Any, ...] = ()
    harmless_like: str | None = None

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.name.split("."))

    @property
    def is_nested(self) -> bool:
        return "." in self.name

    @property
    def is_pattern(self) -> bool:
        return self.name.endswith("*")

    def matches(self, name: str) -> bool:
        """Whether a pattern row covers the name."""
        return name.startswith(self.name[:-1])

    def is_harmless(self, value: Any, body: Mapping[str, Any]) -> bool:
        """Whether a refused parameter asks for nothing."""
        if self.harmless_like is not None and _is_same(value, body.get(self.harmless_like) or 1):
            return True
        return any(_is_same(value, harmless) for harmless in self.harmless)


def _is_same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


_CHAT = frozenset({Endpoint.CHAT})
_COMPLETIONS = frozenset({Endpoint.COMPLETIONS})
_BOTH = _CHAT | _COMPLETIONS
_RESPONSES = frozenset({Endpoint.RESPONSES})
_EMBEDDINGS = frozenset({Endpoint.EMBEDDINGS})


def _implemented(endpoints: frozenset[Endpoint], names: str) -> list[Parameter]:
    return [Parameter(name, endpoints, Action.IMPLEMENTED) for name in names.split()]


def _ignored(endpoints: frozenset[Endpoint], names: str, reason: str) -> list[Parameter]:
    return [Parameter(name, endpoints, Action.IGNORED, reason) for name in names.split()]


def _refused(
    endpoints: frozenset[Endpoint],
    names: str,
    reason: str,
    *,
    harmless: tuple[Any, ...] = (),
    harmless_like: str | None = None,
) -> list[Parameter]:
    return [
        Parameter(name, endpoints, Action.REFUSED, reason, harmless, harmless_like)
        for name in names.split()
    ]


_OLD_TOOLS = "Use tools and tool_choice, which replace it."
_NO_AUDIO = "This server takes and gives text only."
_NO_CONSTRAINT = (
    "Use response_format or structured_outputs {json, regex, choice, grammar, structural_tag}."
)
_NO_SAMPLER = "This sampler is not supported."
_NOT_SERVED = "This endpoint is not served."

PARAMETERS: tuple[Parameter, ...] = (
    # Both generation endpoints
    *_implemented(
        _BOTH,
        "model max_tokens temperature top_p frequency_penalty presence_penalty logit_bias logprobs "
        "n seed stop stream stream_options stream_options.include_usage",
    ),
    *_implemented(
        _BOTH,
        "response_format structured_outputs structured_outputs.json structured_outputs.regex "
        "structured_outputs.choice structured_outputs.grammar structured_outputs.json_object "
        "structured_outputs.structural_tag structured_outputs.whitespace_pattern "
        "structured_outputs.disable_any_whitespace structured_outputs.backend "
        "structured_outputs.allow_checked guided_json guided_regex guided_choice guided_grammar "
        "guided_decoding_backend guided_whitespace_pattern regex ebnf json_schema grammar "
        "allow_checked",
    ),
    *_implemented(
        _BOTH,
        "top_k min_p repetition_penalty repeat_penalty min_tokens ignore_eos stop_token_ids "
        "cache_salt extra_key n_predict allowed_token_ids bad_words include_stop_str_in_output "
        "no_stop_trim skip_special_tokens add_special_tokens return_token_ids "
        "return_tokens_as_token_ids truncate_prompt_tokens cache_prompt request_id rid",
    ),
    *_ignored(_BOTH, "user safety_identifier", "Users are told apart by API key."),
    *_ignored(_BOTH, "stream_options.include_obfuscation", "Chunks are never padded."),
    *_ignored(
        _BOTH,
        "stream_options.continuous_usage_stats",
        "Usage comes once, as clients add up what they get.",
    ),
    # Chat
    *_implemented(
        _CHAT,
        "messages max_completion_tokens top_logprobs modalities tools tools.function.strict "
        "tool_choice parallel_tool_calls reasoning_effort chat_template_kwargs "
        "add_generation_prompt continue_final_message include_reasoning separate_reasoning",
    ),
    *_ignored(_CHAT, "metadata service_tier", "Echoed in the answer."),
    *_ignored(_CHAT, "store", "Answers are not kept."),
    *_ignored(_CHAT, "verbosity prediction", "The model has no such control."),
    *_ignored(
        _CHAT,
        "prompt_cache_key prompt_cache_options prompt_cache_retention "
        "messages.content.prompt_cache_breakpoint",
        "Every prompt is cached, to the token.",
    ),
    *_refused(_CHAT, "audio messages.audio", _NO_AUDIO),
    *_refused(_CHAT, "moderation", "There is no moderation; it must not seem as if there were."),
    *_refused(_CHAT, "web_search_options", "There is no web search."),
    *_refused(_CHAT, "functions", _OLD_TOOLS, harmless=([],)),
    *_refused(_CHAT, "function_call", _OLD_TOOLS, harmless=("none", "auto")),
    # Completions
    *_implemented(_COMPLETIONS, "prompt echo suffix"),
    *_ignored(_COMPLETIONS, "service_tier metadata store", "There is one tier, nothing is kept."),
    *_refused(
        _COMPLETIONS,
        "best_of",
        "Ask for n choices and choose.",
        harmless_like="n",
    ),
    # Extras of other servers: constraints, where silence would be the worst answer
    *_refused(
        _BOTH,
        "structured_outputs.disable_additional_properties",
        "Write additionalProperties: false into the schema.",
        harmless=(False,),
    ),
    *_refused(
        _BOTH,
        "guided_* grammar_* stop_regex logit_processors logits_processors structural_tag",
        _NO_CONSTRAINT,
    ),
    # Extras: sampling
    *_refused(_BOTH, "samplers sampler_seq", _NO_SAMPLER, harmless=([],)),
    *_refused(_BOTH, "mirostat mirostat_* dry_* xtc_*", _NO_SAMPLER, harmless=(0,)),
    *_refused(_BOTH, "use_beam_search", _NO_SAMPLER, harmless=(False,)),
    *_refused(_BOTH, "length_penalty", _NO_SAMPLER, harmless=(1,)),
    *_refused(_BOTH, "prompt_logprobs", "Prompts are not scored."),
    *_ignored(_BOTH, "typical_p repeat_last_n n_probs", "The sampler has no such control."),
    # Extras: text and tokens
    *_ignored(_BOTH, "spaces_between_special_tokens", "Special tokens are written as they are."),
    *_refused(_BOTH, "logprob_token_ids", "Use top_logprobs.", harmless=([],)),
    *_refused(_BOTH, "documents", "Put documents into messages.", harmless=([],)),
    *_refused(_BOTH, "chat_template", "A request never brings a template."),
    *_refused(
        _COMPLETIONS, "chat_template_kwargs", "There is no template here.", harmless=({},)
    ),
    *_refused(_CHAT, "echo", "Messages are not repeated.", harmless=(False,)),
    # Extras: running and routing
    *_refused(_BOTH, "lora_path", "There are no adapters."),
    *_refused(_BOTH, "kv_transfer_params vllm_xargs", "It belongs to another engine."),
    *_ignored(_BOTH, "priority", "Requests are served in the order of their arrival."),
    *_ignored(
        _BOTH,
        "session_id id_slot t_max_predict_ms return_progress sse_ping_interval response_fields",
        "It belongs to another engine.",
    ),
    *_ignored(_BOTH, "thinking_token_budget reasoning", "Thinking has no budget here."),
    *_ignored(
        _COMPLETIONS,
        "separate_reasoning include_reasoning reasoning_effort",
        "A text has no thinking to tell apart.",
    ),
    # Endpoints that are not served
    *_refused(
        _RESPONSES,
        "model input instructions max_output_tokens temperature top_p tools tool_choice "
        "parallel_tool_calls max_tool_calls text text.format text.verbosity stream stream_options "
        "store previous_response_id background include top_logprobs reasoning truncation metadata "
        "user safety_identifier service_tier prompt_cache_key prompt_cache_options "
        "prompt_cache_retention prompt context_management moderation conversation",
        _NOT_SERVED,
    ),
    *_refused(_EMBEDDINGS, "input model dimensions encoding_format user", _NOT_SERVED),
)  # fmt: skip
