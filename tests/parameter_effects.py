"""Which test shows the effect of a parameter, not only that it is accepted, for each implemented
row of the parameter table. tests/unit/house/test_parameter_effects.py keeps it whole."""

from gateway.parameter_table import Endpoint

Tests = tuple[str, ...]

_HTTP = "tests/integration/http"
_EFFECTS = f"{_HTTP}/test_parameter_effects.py::test_"
_SAMPLING = "tests/integration/test_whole_path_sampling.py::test_"
_PARTS = f"{_HTTP}/test_prompt_parts.py::test_"
_TOOLS = f"{_HTTP}/test_tools.py::test_"
_CACHE_FAULTS = f"{_HTTP}/faults/test_cache_faults.py::test_"
_SAMPLING_FAULTS = f"{_HTTP}/faults/test_sampling_faults.py::test_"
_STRUCTURED_FAULTS = f"{_HTTP}/faults/test_structured_faults.py::test_"
_TOOL_FAULTS = f"{_HTTP}/faults/test_tool_faults.py::test_"
_UNICODE_FAULTS = f"{_HTTP}/faults/test_unicode_faults.py::test_"
_WIRE_FAULTS = f"{_HTTP}/faults/test_wire_faults.py::test_"
_RESPONSES = f"{_HTTP}/test_responses.py::test_"
_KEPT = f"{_HTTP}/test_kept_responses.py::test_"
_TOKENIZE = f"{_HTTP}/test_tokenize.py::test_"
_REASONING = f"{_HTTP}/test_reasoning.py::test_"
_CONTROLS = f"{_HTTP}/test_cache_controls.py::test_"
_KEPT_PREFIXES = "tests/integration/test_whole_path_cache_controls.py::test_"
_STREAMS = "tests/conformance/raw_streams.py::test_"
_REUSE = "tests/integration/test_engine_prefix_reuse.py::test_"
_MIDDLE = "tests/unit/gateway/test_fill_in_middle.py::test_"
_NAMES = f"{_HTTP}/test_model_names.py::test_"
_CONSTRAINTS = "tests/unit/gateway/test_constraints.py::test_"

_SAMPLED = f"{_EFFECTS}each_sampling_parameter_changes_its_own_part_of_the_sampling"
_FILTERED = (
    _SAMPLED,
    f"{_SAMPLING}a_filter_that_leaves_one_token_leaves_the_best",
    f"{_SAMPLING}filters_narrow_what_is_drawn",
)
_PENALIZED = (
    _SAMPLED,
    f"{_SAMPLING}penalties_count_what_was_generated_and_only_repetition_counts_the_prompt",
)
_CONSTRAINED = (
    f"{_CONSTRAINTS}each_field_is_a_constraint_under_its_own_name",
    f"{_EFFECTS}constraints_hold_beyond_chat_as_well",
    f"{_STRUCTURED_FAULTS}a_constraint_is_enforced_or_refused_by_name_and_never_dropped",
)
_SPACED = (
    f"{_CONSTRAINTS}a_whitespace_pattern_that_matches_a_space_allows_whitespace",
    f"{_STRUCTURED_FAULTS}whitespace_never_fills_an_answer_up_to_its_limit",
)
_ENGINES = (
    f"{_CONSTRAINTS}the_engine_may_be_named",
    f"{_EFFECTS}constraints_hold_beyond_chat_as_well",
)
_CHECKED = (
    f"{_CONSTRAINTS}checked_answers_are_the_requests_own_choice",
    f"{_HTTP}/test_constraints.py::test_a_checked_answer_is_mended_before_anything_of_it_is_told",
)
_LIMITED = (f"{_SAMPLING_FAULTS}an_endless_answer_stops_at_its_limit_under_every_name",)
_SALTED = (
    f"{_EFFECTS}salt_and_cache_are_the_requests_own_choice_on_every_route",
    f"{_CACHE_FAULTS}no_page_is_reused_under_another_salt_however_it_is_written",
)
_PINNED = (
    f"{_CONTROLS}a_ttl_keeps_the_whole_prompt_for_that_long",
    f"{_KEPT_PREFIXES}a_pinned_prompt_outlives_newer_ones_and_its_time_does_not",
)
_EXPLICIT = (
    f"{_CONTROLS}explicit_mode_without_a_breakpoint_keeps_out_of_the_cache",
    f"{_CONTROLS}explicit_mode_leaves_nothing_behind_the_last_breakpoint",
    f"{_KEPT_PREFIXES}explicit_breakpoints_are_all_that_is_left",
)
_MARKED = (
    f"{_CONTROLS}breakpoints_on_parts_pin_up_to_the_end_of_the_part",
    f"{_KEPT_PREFIXES}a_breakpoint_outlives_newer_prompts_and_what_is_behind_it_does_not",
)
_MARKED_ITEMS = (f"{_CONTROLS}items_of_a_response_take_breakpoints_too",)
_ENDED = (f"{_SAMPLING}the_end_of_sequence_waits_for_min_tokens_and_for_ever_if_ignored",)
_ALLOWED = (f"{_SAMPLING}allowed_tokens_and_bad_words_decide_what_may_come",)
_NAMED = (f"{_EFFECTS}a_request_has_the_name_that_it_gives_itself_on_every_route",)
_KEPT_STOP = (f"{_EFFECTS}a_stop_string_is_kept_on_every_route",)
_TEMPLATE = (f"{_EFFECTS}effort_and_template_variables_reach_the_template",)
_USAGE = (f"{_EFFECTS}usage_is_streamed_only_where_it_is_asked_for_and_nothing_is_padded",)
_THOUGHT = (
    f"{_HTTP}/test_reasoning.py::test_free_answers_are_split_unless_the_request_says_otherwise",
)
_LOGPROBS = (
    f"{_EFFECTS}logprobs_are_asked_of_the_engine_only_where_they_are_wanted",
    f"{_WIRE_FAULTS}logprobs_without_top_logprobs_are_given_with_empty_lists",
    f"{_WIRE_FAULTS}logprobs_of_a_completion_have_the_legacy_shape",
)
_BEST = (
    f"{_EFFECTS}top_logprobs_are_exactly_as_many_as_asked_for_the_best_first",
    f"{_SAMPLING}top_logprobs_are_sorted_and_hold_the_token_that_won",
)

EFFECTS: dict[str, Tests] = {
    "model": (f"{_NAMES}unknown_model_is_a_404_that_lists_what_is_served",),
    "temperature": (
        _SAMPLED,
        f"{_SAMPLING}a_seed_decides_what_is_drawn_and_nothing_at_temperature_zero",
    ),
    "top_p": _FILTERED,
    "top_k": _FILTERED,
    "min_p": _FILTERED,
    "frequency_penalty": _PENALIZED,
    "presence_penalty": _PENALIZED,
    "repetition_penalty": _PENALIZED,
    "repeat_penalty": _PENALIZED,
    "logit_bias": (_SAMPLED, f"{_SAMPLING}a_bias_makes_a_token_sure_or_impossible"),
    "seed": (_SAMPLED, f"{_SAMPLING}each_choice_has_its_own_draws_and_the_same_ones_again"),
    "stop": (
        f"{_EFFECTS}stop_strings_may_be_one_or_many_or_null",
        f"{_UNICODE_FAULTS}nothing_of_a_stop_string_is_streamed_wherever_tokens_split_it",
    ),
    "stream": (f"{_STREAMS}stream_and_whole_answer_agree_in_text_reason_and_usage",),
    "stream_options": _USAGE,
    "stream_options.include_usage": _USAGE,
    "max_tokens": _LIMITED,
    "max_completion_tokens": (
        f"{_EFFECTS}max_completion_tokens_win_over_max_tokens_and_those_over_n_predict",
    ),
    "n_predict": (
        *_LIMITED,
        f"{_EFFECTS}without_a_limit_a_chat_may_fill_the_context_and_a_completion_has_16",
    ),
    "logprobs": _LOGPROBS,
    "top_logprobs": _BEST,
    "n": (
        f"{_SAMPLING}each_choice_has_its_own_draws_and_the_same_ones_again",
        f"{_EFFECTS}choices_are_numbered_prompt_by_prompt",
    ),
    "response_format": _CONSTRAINED,
    "structured_outputs": _CONSTRAINED,
    "structured_outputs.json": _CONSTRAINED,
    "structured_outputs.regex": _CONSTRAINED,
    "structured_outputs.choice": _CONSTRAINED,
    "structured_outputs.grammar": _CONSTRAINED,
    "structured_outputs.json_object": _CONSTRAINED,
    "structured_outputs.structural_tag": _CONSTRAINED,
    "structured_outputs.whitespace_pattern": _SPACED,
    "structured_outputs.disable_any_whitespace": (
        f"{_CONSTRAINTS}json_is_compact_unless_whitespace_is_asked_for",
    ),
    "structured_outputs.backend": _ENGINES,
    "structured_outputs.allow_checked": _CHECKED,
    "guided_json": _CONSTRAINED,
    "guided_regex": _CONSTRAINED,
    "guided_choice": _CONSTRAINED,
    "guided_grammar": _CONSTRAINED,
    "guided_decoding_backend": _ENGINES,
    "guided_whitespace_pattern": _SPACED,
    "regex": _CONSTRAINED,
    "ebnf": _CONSTRAINED,
    "json_schema": _CONSTRAINED,
    "grammar": _CONSTRAINED,
    "allow_checked": _CHECKED,
    "min_tokens": (
        *_ENDED,
        f"{_EFFECTS}no_stop_string_ends_an_answer_before_its_min_tokens",
    ),
    "ignore_eos": _ENDED,
    "stop_token_ids": (f"{_SAMPLING}a_stop_token_ends_the_answer_and_is_no_part_of_its_text",),
    "cache_salt": _SALTED,
    "extra_key": _SALTED,
    "allowed_token_ids": _ALLOWED,
    "bad_words": _ALLOWED,
    "include_stop_str_in_output": _KEPT_STOP,
    "no_stop_trim": _KEPT_STOP,
    "skip_special_tokens": (f"{_EFFECTS}control_tokens_are_shown_on_every_route",),
    "add_special_tokens": (f"{_EFFECTS}the_first_token_of_a_document_is_added_as_asked",),
    "return_tokens_as_token_ids": (f"{_EFFECTS}tokens_may_be_named_by_their_ids",),
    "cache_prompt": (
        _SALTED[0],
        f"{_REUSE}without_the_cache_nothing_is_matched_and_nothing_left",
    ),
    "prompt_cache_key": (
        f"{_CONTROLS}a_key_names_the_family_and_is_on_the_trace",
        f"{_KEPT_PREFIXES}a_newer_prompt_of_a_family_takes_the_place_of_the_older",
    ),
    "prompt_cache_options": (*_PINNED, *_EXPLICIT),
    "prompt_cache_options.mode": _EXPLICIT,
    "prompt_cache_options.ttl": _PINNED,
    "prompt_cache_retention": (f"{_CONTROLS}retention_of_a_day_keeps_the_whole_prompt_for_a_day",),
    "messages.content.prompt_cache_breakpoint": _MARKED,
    "messages.content.cache_control": _MARKED,
    "messages.cache_control": (f"{_CONTROLS}cache_control_on_a_message_pins_up_to_its_end",),
    "tools.cache_control": (f"{_CONTROLS}cache_control_on_a_tool_pins_all_tools",),
    "request_id": _NAMED,
    "rid": _NAMED,
    "return_token_ids": (f"{_PARTS}token_ids_of_prompt_and_answer_are_given_when_asked_for",),
    "truncate_prompt_tokens": (
        f"{_PARTS}of_a_long_prompt_the_last_tokens_are_kept",
        f"{_HTTP}/test_render.py::test_a_prompt_that_is_cut_has_the_tokens_that_are_left",
    ),
    "messages": ("tests/unit/gateway/test_preparation.py::test_a_chat_is_rendered_and_tokenized",),
    "modalities": (f"{_EFFECTS}modalities_of_text_are_what_there_is",),
    "tools": (f"{_TOOLS}a_call_is_told_from_the_answer_and_content_is_null",),
    "tools.function.strict": (
        f"{_TOOLS}a_strict_call_that_breaks_its_schema_is_an_error_and_no_answer",
    ),
    "tool_choice": (
        f"{_TOOLS}the_choice_of_tools_is_a_constraint",
        f"{_TOOLS}a_call_demanded_by_name_ends_as_openai_has_it",
        f"{_TOOLS}only_allowed_tools_can_be_called_and_all_are_shown",
    ),
    "parallel_tool_calls": (
        f"{_TOOL_FAULTS}calls_that_may_not_be_parallel_are_not_even_generated",
    ),
    "reasoning_effort": _TEMPLATE,
    "chat_template_kwargs": _TEMPLATE,
    "add_generation_prompt": (f"{_PARTS}a_message_may_be_left_without_the_beginning_of_an_answer",),
    "continue_final_message": (f"{_PARTS}a_conversation_may_go_on_with_its_last_message",),
    "include_reasoning": _THOUGHT,
    "separate_reasoning": _THOUGHT,
    "prompt": (f"{_EFFECTS}choices_are_numbered_prompt_by_prompt",),
    "echo": (f"{_PARTS}every_choice_of_every_prompt_has_its_own_echo",),
    "suffix": (f"{_MIDDLE}a_suffix_makes_the_prompt_and_ends_where_another_file_would_begin",),
}

_TOOL_CHOICE = (f"{_EFFECTS}the_choice_of_tools_of_a_response_is_a_constraint",)
_EMBEDDED = (
    f"{_HTTP}/test_embeddings.py::test_a_malformed_request_hears_of_that",
    f"{_HTTP}/test_embeddings.py::test_a_good_request_hears_that_the_model_makes_no_vectors",
)
_COUNTED = (
    f"{_EFFECTS}a_conversation_is_counted_as_it_would_be_answered",
    f"{_TOKENIZE}a_chat_has_the_tokens_that_it_would_be_answered_with",
)
_TEXT_COUNTED = (
    f"{_TOKENIZE}a_text_is_counted_and_its_tokens_spelled_as_the_vocabulary_does",
    f"{_TOKENIZE}a_document_begins_with_its_token_unless_told_not_to",
)

# Where a name means something else on a route, or is its own.
EFFECTS_ON: dict[Endpoint, dict[str, Tests]] = {
    Endpoint.RESPONSES: {
        "stream": (f"{_RESPONSES}a_stream_ends_in_the_response_that_is_given_whole",),
        "stream_options": (f"{_EFFECTS}a_response_streams_its_usage_and_nothing_is_padded",),
        "input": (
            "tests/unit/gateway/test_responses_request.py::test_every_shape_of_a_message_is_read",
            f"{_RESPONSES}output_can_be_sent_back_as_it_came",
        ),
        "instructions": (f"{_RESPONSES}instructions_come_first_and_are_not_carried_over",),
        "max_output_tokens": _LIMITED,
        "tools": (f"{_RESPONSES}calls_are_read_out_of_what_the_model_writes",),
        "tools.strict": (f"{_EFFECTS}a_strict_tool_of_a_response_is_held_to_its_schema",),
        "tool_choice": _TOOL_CHOICE,
        "parallel_tool_calls": _TOOL_CHOICE,
        "text": (f"{_RESPONSES}the_answers_schema_is_enforced_under_its_flat_name",),
        "text.format": (f"{_RESPONSES}the_answers_schema_is_enforced_under_its_flat_name",),
        "reasoning": _TEMPLATE,
        "reasoning.effort": _TEMPLATE,
        "include": (f"{_EFFECTS}without_include_a_response_has_no_logprobs", *_BEST),
        **dict.fromkeys(
            (
                "input.content.prompt_cache_breakpoint",
                "input.content.cache_control",
                "input.output.prompt_cache_breakpoint",
                "input.output.cache_control",
                "input.cache_control",
            ),
            _MARKED_ITEMS,
        ),
        "truncation": (f"{_KEPT}an_input_that_does_not_fit_is_named_unless_it_may_be_cut",),
        "store": (f"{_KEPT}what_shall_not_be_kept_is_not",),
        "previous_response_id": (f"{_RESPONSES}a_tool_round_trip_goes_on_with_the_stored_call",),
    },
    Endpoint.EMBEDDINGS: dict.fromkeys(
        ("model", "input", "dimensions", "encoding_format"), _EMBEDDED
    ),
    Endpoint.TOKENIZE: {
        **dict.fromkeys(
            (
                "messages",
                "tools",
                "tool_choice",
                "parallel_tool_calls",
                "reasoning_effort",
                "chat_template_kwargs",
                "add_generation_prompt",
                "continue_final_message",
            ),
            _COUNTED,
        ),
        **dict.fromkeys(("prompt", "content", "add_special_tokens", "add_special"), _TEXT_COUNTED),
        "model": (f"{_TOKENIZE}unknown_model_is_a_404",),
        "return_token_strs": (f"{_TOKENIZE}strings_come_only_when_asked_for",),
    },
    Endpoint.DETOKENIZE: {
        "model": (f"{_TOKENIZE}unknown_model_is_a_404",),
        "tokens": (f"{_TOKENIZE}tokens_become_the_text_they_came_from",),
    },
}


def effects_of(name: str, endpoint: Endpoint) -> Tests:
    """The tests of a parameter on a route; none where nobody has named them."""
    return EFFECTS_ON.get(endpoint, {}).get(name) or EFFECTS.get(name, ())
