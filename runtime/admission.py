"""What of a Submit the runtime checks itself, so that no message can crash a step.

The gateway has validated ranges and lengths in the client's terms; this is the last line.
"""

from itertools import chain

from runtime.messages import MAX_PIN_S, CacheHints, EngineInfo, Sampling, Submit

MAX_CHOICES = 128
# Of all tokens of a prompt together: each best one takes some hundred bytes until it is sent.
MAX_PROMPT_LOGPROBS = 1 << 20
# Tokens in all bad words together: they are compared with the end of the answer in every step.
MAX_BAD_WORDS_LEN = 1 << 16
MAX_PINS = 16


def find_fault(request: Submit, info: EngineInfo, *, max_model_len: int) -> str | None:
    """Why the request cannot run, in one line, or None."""
    prompt_len, prefix_len = len(request.prompt_token_ids), len(request.output_prefix)
    if request.sampling.max_tokens < 0:
        return f"max_tokens is {request.sampling.max_tokens}; it must be at least 0"
    # One token at least comes behind the prompt, unless none is wanted.
    max_len = max_model_len - min(1, request.sampling.max_tokens)
    if not 1 <= request.num_choices <= MAX_CHOICES:
        return f"num_choices is {request.num_choices}; it must be 1 to {MAX_CHOICES}"
    if prompt_len == 0:
        return "the prompt is empty; it needs at least one token"
    if prompt_len > max_len:
        return f"the prompt has {prompt_len} tokens; at most {max_len} fit the model"
    if prompt_len + prefix_len > max_len:
        num_tokens = prompt_len + prefix_len
        return f"prompt and output_prefix have {num_tokens} tokens; at most {max_len} fit"
    return (
        _find_strange_logprobs(request, info.vocab_size)
        or _find_strange_words(request.sampling)
        or _find_strange_hints(request.cache)
        or _find_strange_id(request, info.vocab_size)
    )


def choices_to_answer(request: Submit) -> range:
    """The choices that a refused request's error events go to; at least one."""
    return range(min(max(request.num_choices, 1), MAX_CHOICES))


def _find_strange_logprobs(request: Submit, vocab_size: int) -> str | None:
    """More best tokens than there are, or than fit a message."""
    num_logprobs = request.sampling.num_logprobs or 0
    if not 0 <= num_logprobs <= vocab_size:
        return f"num_logprobs is {num_logprobs}; the vocabulary has {vocab_size} tokens"
    num_best = request.num_prompt_logprobs or 0
    if not 0 <= num_best <= vocab_size:
        return f"num_prompt_logprobs is {num_best}; the vocabulary has {vocab_size} tokens"
    max_best = MAX_PROMPT_LOGPROBS // len(request.prompt_token_ids)
    if num_best > max_best:
        return f"num_prompt_logprobs is {num_best}; at most {max_best} for a prompt of this length"
    return None


def _find_strange_words(sampling: Sampling) -> str | None:
    """A restriction that means nothing, or that takes long to keep."""
    if sampling.allowed_token_ids == ():
        return "allowed_token_ids is empty; it must name at least one token"
    if not all(sampling.bad_words):
        return "bad_words holds an empty sequence of tokens"
    num_tokens = sum(map(len, sampling.bad_words))
    if num_tokens > MAX_BAD_WORDS_LEN:
        return f"bad_words holds {num_tokens} tokens; at most {MAX_BAD_WORDS_LEN} are taken"
    return None


def _find_strange_hints(hints: CacheHints) -> str | None:
    """Sizes and times that are none."""
    if len(hints.pins) > MAX_PINS:
        return f"there are {len(hints.pins)} pins; at most {MAX_PINS} are taken"
    if not all(pin.num_tokens >= 0 and 0 <= pin.ttl_s <= MAX_PIN_S for pin in hints.pins):
        return f"a pin has no sensible size, or no time from 0 to {MAX_PIN_S:g} s"
    if min(hints.keep_len or 0, hints.quota_bytes or 0) < 0:
        return "keep_len and quota_bytes must be at least 0"
    return None


def _find_strange_id(request: Submit, vocab_size: int) -> str | None:
    """An id that would index beyond the logits."""
    ids = {
        "prompt_token_ids": request.prompt_token_ids,
        "output_prefix": request.output_prefix,
        "first_forbidden": request.first_forbidden,
        "stop_token_ids": request.sampling.stop_token_ids,
        "logit_bias": tuple(request.sampling.logit_bias),
        "allowed_token_ids": request.sampling.allowed_token_ids or (),
        "bad_words": tuple(chain.from_iterable(request.sampling.bad_words)),
    }
    for name, token_ids in ids.items():
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
            return f"{name} holds an id outside of the vocabulary's 0 to {vocab_size - 1}"
    return None
