"""What of a Submit the runtime checks itself, so that no message can crash a step.

The gateway has validated ranges and lengths in the client's terms; this is the last line.
"""

from runtime.messages import EngineInfo, Submit

MAX_CHOICES = 128


def find_fault(request: Submit, info: EngineInfo, *, max_model_len: int) -> str | None:
    """Why the request cannot run, in one line, or None."""
    prompt_len, prefix_len = len(request.prompt_token_ids), len(request.output_prefix)
    if not 1 <= request.num_choices <= MAX_CHOICES:
        return f"num_choices is {request.num_choices}; it must be 1 to {MAX_CHOICES}"
    if prompt_len == 0:
        return "the prompt is empty; it needs at least one token"
    if prompt_len >= max_model_len:
        return f"the prompt has {prompt_len} tokens; at most {max_model_len - 1} fit the model"
    if prompt_len + prefix_len >= max_model_len:
        num_tokens = prompt_len + prefix_len
        return f"prompt and output_prefix have {num_tokens} tokens; at most {max_model_len - 1} fit"
    if request.sampling.max_tokens < 1:
        return f"max_tokens is {request.sampling.max_tokens}; it must be at least 1"
    return _find_strange_id(request, info.vocab_size)


def choices_to_answer(request: Submit) -> range:
    """The choices that a refused request's error events go to; at least one."""
    return range(min(max(request.num_choices, 1), MAX_CHOICES))


def _find_strange_id(request: Submit, vocab_size: int) -> str | None:
    """An id that would index beyond the logits."""
    num_logprobs = request.sampling.num_logprobs or 0
    if not 0 <= num_logprobs <= vocab_size:
        return f"num_logprobs is {num_logprobs}; the vocabulary has {vocab_size} tokens"
    ids = {
        "prompt_token_ids": request.prompt_token_ids,
        "output_prefix": request.output_prefix,
        "first_forbidden": request.first_forbidden,
        "stop_token_ids": request.sampling.stop_token_ids,
        "logit_bias": tuple(request.sampling.logit_bias),
    }
    for name, token_ids in ids.items():
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
            return f"{name} holds an id outside of the vocabulary's 0 to {vocab_size - 1}"
    return None
