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
    TOKENIZE = "/tokenize"
    DETOKENIZE = "/detokenize"


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
_ALL = _BOTH | _RESPONSES
_EMBEDDINGS = frozenset({Endpoint.EMBEDDINGS})
_TOKENIZE = frozenset({Endpoint.TOKENIZE})
_DETOKENIZE = frozenset({Endpoint.DETOKENIZE})


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
_NO_PLACE = "A prompt cannot be marked there: mark the message, a part of its content, or the tool."
_NO_SAMPLER = "This sampler is not supported."

PARAMETERS: tuple[Parameter, ...] = (
    # All that generate
    *_implemented(
        _ALL,
        "model temperature top_p frequency_penalty presence_penalty logit_bias seed stop stream "
        "stream_options",
    ),
    *_implemented(
        _BOTH, "max_tokens logprobs n n_predict stream_options.include_usage response_format"
    ),
    *_implemented(
        _ALL,
        "structured_outputs structured_outputs.json structured_outputs.regex "
        "structured_outputs.choice structured_outputs.grammar structured_outputs.json_object "
        "structured_outputs.structural_tag structured_outputs.whitespace_pattern "
        "structured_outputs.disable_any_whitespace structured_outputs.backend "
        "structured_outputs.allow_checked guided_json guided_regex guided_choice guided_grammar "
        "guided_decoding_backend guided_whitespace_pattern regex ebnf json_schema grammar "
        "allow_checked",
    ),
    *_implemented(
        _ALL,
        "top_k min_p repetition_penalty repeat_penalty min_tokens ignore_eos stop_token_ids "
        "cache_salt extra_key allowed_token_ids bad_words include_stop_str_in_output "
        "no_stop_trim skip_special_tokens add_special_tokens return_tokens_as_token_ids "
        "cache_prompt prompt_cache_key prompt_cache_options prompt_cache_options.mode "
        "prompt_cache_options.ttl prompt_cache_retention request_id rid",
    ),
    *_implemented(_BOTH, "return_token_ids truncate_prompt_tokens"),
    *_ignored(_ALL, "user safety_identifier", "Users are told apart by API key."),
    *_ignored(_ALL, "stream_options.include_obfuscation", "Chunks are never padded."),
    *_ignored(
        _ALL,
        "stream_options.continuous_usage_stats",
        "Usage comes once, as clients add up what they get.",
    ),
    # Chat
    *_implemented(
        _CHAT,
        "messages max_completion_tokens top_logprobs modalities tools tools.function.strict "
        "tool_choice parallel_tool_calls reasoning_effort chat_template_kwargs "
        "add_generation_prompt continue_final_message include_reasoning separate_reasoning "
        "messages.content.prompt_cache_breakpoint messages.content.cache_control "
        "messages.cache_control tools.cache_control",
    ),
    *_ignored(
        _CHAT,
        "messages.prompt_cache_breakpoint messages.tool_calls.prompt_cache_breakpoint "
        "messages.tool_calls.function.prompt_cache_breakpoint tools.prompt_cache_breakpoint "
        "tools.function.prompt_cache_breakpoint messages.tool_calls.cache_control "
        "messages.tool_calls.function.cache_control tools.function.cache_control",
        _NO_PLACE,
    ),
    *_ignored(_CHAT, "metadata service_tier", "Echoed in the answer."),
    *_ignored(_CHAT, "store", "Answers are not kept."),
    *_ignored(_CHAT, "verbosity prediction", "The model has no such control."),
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
        _ALL,
        "structured_outputs.disable_additional_properties",
        "Write additionalProperties: false into the schema.",
        harmless=(False,),
    ),
    *_refused(
        _ALL,
        "guided_* grammar_* stop_regex logit_processors logits_processors structural_tag format",
        _NO_CONSTRAINT,
    ),
    *_refused(
        _ALL,
        "extra_body",
        "It is an argument of the client; what is in it belongs beside the other parameters.",
        harmless=({},),
    ),
    # Extras: sampling
    *_refused(_ALL, "samplers sampler_seq", _NO_SAMPLER, harmless=([],)),
    *_refused(_ALL, "mirostat mirostat_* dry_* xtc_*", _NO_SAMPLER, harmless=(0,)),
    *_refused(_ALL, "use_beam_search", _NO_SAMPLER, harmless=(False,)),
    *_refused(_ALL, "length_penalty", _NO_SAMPLER, harmless=(1,)),
    *_refused(_ALL, "prompt_logprobs", "Use echo and logprobs of completions."),
    *_ignored(_ALL, "typical_p repeat_last_n n_probs", "The sampler has no such control."),
    # Extras: text and tokens
    *_ignored(_ALL, "spaces_between_special_tokens", "Special tokens are written as they are."),
    *_refused(_ALL, "logprob_token_ids", "Use top_logprobs.", harmless=([],)),
    *_refused(_ALL, "documents", "Put documents into the conversation.", harmless=([],)),
    *_refused(_ALL, "chat_template", "A request never brings a template."),
    *_refused(
        _COMPLETIONS, "chat_template_kwargs", "There is no template here.", harmless=({},)
    ),
    *_refused(_CHAT, "echo", "Messages are not repeated.", harmless=(False,)),
    # Extras: running and routing
    *_refused(_ALL, "lora_path", "There are no adapters."),
    *_refused(_ALL, "kv_transfer_params vllm_xargs", "It belongs to another engine."),
    *_ignored(_ALL, "priority", "The server decides who comes next."),
    *_ignored(
        _ALL,
        "session_id id_slot t_max_predict_ms return_progress sse_ping_interval response_fields",
        "It belongs to another engine.",
    ),
    *_ignored(_ALL, "thinking_token_budget", "Thinking has no budget here."),
    *_ignored(_BOTH, "reasoning", "Thinking has no budget here."),
    *_ignored(
        _COMPLETIONS,
        "separate_reasoning include_reasoning reasoning_effort",
        "A text has no thinking to tell apart.",
    ),
    # Responses
    *_implemented(
        _RESPONSES,
        "input instructions max_output_tokens tools tools.strict tool_choice parallel_tool_calls "
        "text text.format reasoning reasoning.effort include top_logprobs truncation store "
        "previous_response_id chat_template_kwargs input.content.prompt_cache_breakpoint "
        "input.content.cache_control input.output.prompt_cache_breakpoint "
        "input.output.cache_control input.cache_control tools.cache_control",
    ),
    *_ignored(
        _RESPONSES,
        "input.prompt_cache_breakpoint input.summary.prompt_cache_breakpoint "
        "input.summary.cache_control tools.prompt_cache_breakpoint",
        _NO_PLACE,
    ),
    *_ignored(_RESPONSES, "metadata service_tier", "Echoed in the answer."),
    *_ignored(_RESPONSES, "max_tool_calls", "It counts built-in tools, and there are none."),
    *_ignored(_RESPONSES, "text.verbosity", "The model has no such control."),
    *_ignored(
        _RESPONSES,
        "reasoning.summary reasoning.generate_summary reasoning.context reasoning.mode "
        "separate_reasoning include_reasoning",
        "What the model thinks is an item of its own, as it is.",
    ),
    *_ignored(
        _RESPONSES,
        "tools.allowed_callers tools.async tools.defer_loading tools.output_schema",
        "All tools are shown, and called by the model alone.",
    ),
    *_ignored(_RESPONSES, "stream_options.include_usage", "Usage is part of every response."),
    *_refused(_RESPONSES, "background", "Every response is waited for.", harmless=(False,)),
    *_refused(_RESPONSES, "conversation", "Use previous_response_id."),
    *_refused(_RESPONSES, "prompt", "There are no stored prompts: use input and instructions."),
    *_refused(_RESPONSES, "context_management", "Use truncation.", harmless=([],)),
    *_refused(_RESPONSES, "truncate_prompt_tokens", "Use truncation.", harmless=(-1,)),
    *_refused(
        _RESPONSES, "moderation", "There is no moderation; it must not seem as if there were."
    ),
    # Chat's names for what Responses calls otherwise: silence would be an answer without end
    *_refused(_RESPONSES, "messages", "It is called input here."),
    *_refused(
        _RESPONSES, "max_tokens max_completion_tokens n_predict", "Use max_output_tokens."
    ),
    *_refused(_RESPONSES, "response_format", "Use text.format."),
    *_refused(_RESPONSES, "reasoning_effort", "Use reasoning.effort."),
    *_refused(_RESPONSES, "logprobs", "Use include and top_logprobs.", harmless=(False,)),
    *_refused(_RESPONSES, "n", "A response is one answer.", harmless=(1,)),
    *_refused(_RESPONSES, "functions", _OLD_TOOLS, harmless=([],)),
    *_refused(_RESPONSES, "function_call", _OLD_TOOLS, harmless=("none", "auto")),
    *_refused(_RESPONSES, "modalities", _NO_AUDIO, harmless=(["text"],)),
    *_refused(_RESPONSES, "audio", _NO_AUDIO),
    *_refused(_RESPONSES, "return_token_ids", "It has no place in items.", harmless=(False,)),
    *_refused(_RESPONSES, "add_generation_prompt", "Use chat.", harmless=(True,)),
    *_refused(_RESPONSES, "continue_final_message", "Use chat.", harmless=(False,)),
    # Embeddings: read, so that the first thing wrong is said; then it is the model
    *_implemented(_EMBEDDINGS, "model input dimensions encoding_format"),
    *_ignored(_EMBEDDINGS, "user", "Users are told apart by API key."),
    # Tokens of texts and conversations
    *_implemented(
        _TOKENIZE,
        "model prompt content messages tools tool_choice parallel_tool_calls reasoning_effort "
        "chat_template_kwargs add_generation_prompt continue_final_message add_special_tokens "
        "add_special return_token_strs",
    ),
    *_refused(_TOKENIZE, "chat_template", "A request never brings a template."),
    *_refused(_TOKENIZE, "with_pieces", "Ask for return_token_strs.", harmless=(False,)),
    *_refused(_TOKENIZE, "parse_special", "Special tokens are always read.", harmless=(True,)),
    *_implemented(_DETOKENIZE, "model tokens"),
)  # fmt: skip
