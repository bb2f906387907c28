"""From a validated body to how tokens are chosen, in the runtime's terms."""

import re
import secrets
from collections.abc import Mapping
from typing import TypeVar

from gateway.errors import InvalidRequest
from gateway.generation import TextOptions
from gateway.schemas.fields import SamplingFields
from runtime.messages import Sampling

T = TypeVar("T")

_TOKEN_ID = re.compile(r"[0-9]{1,18}")
# What Sampling.max_tokens holds until Generator.prepare() knows the length of the prompt.
UNSETTLED = 1


def new_seed() -> int:
    """A seed for a request that gave none."""
    return secrets.randbits(63)


def to_sampling(fields: SamplingFields, *, num_logprobs: int | None, seed: int) -> Sampling:
    """Defaults are OpenAI's. `seed` is used when the request has none.

    Raises: InvalidRequest for values that are valid alone and wrong together.
    """
    top_p, top_k = _or(fields.top_p, 1.0), max(0, _or(fields.top_k, 0))
    if top_p == 0:  # no probability mass at all can only mean the single best token
        top_p, top_k = 1.0, 1
    return Sampling(
        max_tokens=UNSETTLED,
        temperature=_or(fields.temperature, 1.0),
        top_p=top_p,
        top_k=top_k,
        min_p=_or(fields.min_p, 0.0),
        frequency_penalty=_or(fields.frequency_penalty, 0.0),
        presence_penalty=_or(fields.presence_penalty, 0.0),
        repetition_penalty=_repetition_penalty(fields),
        logit_bias=_logit_bias(fields),
        seed=_or(fields.seed, seed),
        min_tokens=_or(fields.min_tokens, 0),
        ignore_eos=bool(fields.ignore_eos),
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        num_logprobs=num_logprobs,
        allowed_token_ids=_unless_none(fields.allowed_token_ids),
    )


def text_options(fields: SamplingFields, *, echoes: bool = False) -> TextOptions:
    """How the answer's tokens shall be shown.

    Raises: InvalidRequest for two names of one wish that differ.
    """
    return TextOptions(
        includes_stop=bool(
            _agreed(
                fields.include_stop_str_in_output,
                fields.no_stop_trim,
                names=("include_stop_str_in_output", "no_stop_trim"),
            )
        ),
        keeps_special=fields.skip_special_tokens is False,
        returns_ids=bool(fields.return_token_ids),
        tokens_as_ids=bool(fields.return_tokens_as_token_ids),
        echoes=echoes,
    )


def given_request_id(fields: SamplingFields) -> str | None:
    """The client's name for its request. Raises: InvalidRequest when it has two."""
    return _agreed(fields.request_id, fields.rid, names=("request_id", "rid"))


def stop_strings(fields: SamplingFields) -> tuple[str, ...]:
    """Each once, in the client's order."""
    if fields.stop is None:
        return ()
    given = [fields.stop] if isinstance(fields.stop, str) else fields.stop
    return tuple(dict.fromkeys(given))


def token_limit(
    limits: Mapping[str, int | None], *, min_tokens: int | None, allows_zero: bool = False
) -> int | None:
    """The first limit given; the mapping is in the order in which they win. llama.cpp's -1 and
    no limit at all give None.

    Raises: InvalidRequest when it is 0 and may not be, or below min_tokens.
    """
    name, limit = next(((n, v) for n, v in limits.items() if v is not None), ("", None))
    if limit is None or limit == -1:
        return None
    if limit == 0 and not allows_zero:
        raise InvalidRequest(
            f"Invalid value for '{name}': it must be at least 1.",
            code="integer_below_min_value",
            param=name,
        )
    if min_tokens is not None and min_tokens > limit:
        raise InvalidRequest(
            f"Invalid value for 'min_tokens': {min_tokens} tokens cannot fit into a limit of "
            f"{limit}.",
            param="min_tokens",
        )
    return limit


def cache_salt(fields: SamplingFields) -> str | None:
    """The client's salt under either of its names. Raises: InvalidRequest when they differ."""
    return _agreed(fields.cache_salt, fields.extra_key, names=("cache_salt", "extra_key"))


def _repetition_penalty(fields: SamplingFields) -> float:
    names = ("repetition_penalty", "repeat_penalty")
    return _or(_agreed(fields.repetition_penalty, fields.repeat_penalty, names=names), 1.0)


def _logit_bias(fields: SamplingFields) -> dict[int, float]:
    biases = fields.logit_bias or {}
    for key in biases:
        if not _TOKEN_ID.fullmatch(key):
            raise InvalidRequest(
                "Invalid value for 'logit_bias': its keys must be token ids.", param="logit_bias"
            )
    return {int(key): float(bias) for key, bias in biases.items()}


def _agreed(first: T | None, second: T | None, *, names: tuple[str, str]) -> T | None:
    if first is not None and second is not None and first != second:
        raise InvalidRequest(
            f"Invalid value for '{names[1]}': it differs from '{names[0]}'.", param=names[1]
        )
    return second if first is None else first


def _unless_none(items: list[int] | None) -> tuple[int, ...] | None:
    return None if items is None else tuple(dict.fromkeys(items))


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
