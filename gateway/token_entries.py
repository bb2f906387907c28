"""Tokens as log-probabilities name them: text, bytes and the values, finite for JSON."""

from gateway.generation import LogprobEntry
from gateway.tokenizer import Tokenizer
from runtime.messages import TokenLogprob

# JSON has no infinity; this is what OpenAI sends for a token that could not be sampled.
MIN_LOGPROB = -9999.0


class TokenEntries:
    """Makes the entries of one request. `num_top` are given with each token; with `as_ids` tokens
    are named token_id:N, as vLLM does, so that clients need no tokenizer. `keeps_special` says that
    control tokens are text."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        num_top: int,
        as_ids: bool = False,
        keeps_special: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._as_ids = as_ids
        self._keeps_special = keeps_special

    def of(self, token_id: int, logprob: TokenLogprob) -> LogprobEntry:
        """The sampled token with the best ones beside it."""
        best = sorted(logprob.top, key=lambda pair: -_clamp(pair[1]))[: self._num_top]
        return self._entry(
            token_id,
            _clamp(logprob.logprob),
            top=tuple(self._entry(top_id, _clamp(value)) for top_id, value in best),
        )

    def unscored(self, token_id: int) -> LogprobEntry:
        """The first token of a prompt, which nothing comes before."""
        return self._entry(token_id, None)

    def _entry(
        self, token_id: int, logprob: float | None, *, top: tuple[LogprobEntry, ...] = ()
    ) -> LogprobEntry:
        raw = self._tokenizer.token_bytes(token_id)
        return LogprobEntry(
            token=f"token_id:{token_id}" if self._as_ids else raw.decode(errors="replace"),
            # Control tokens add no bytes to the text, so that all bytes joined are the text's.
            raw=raw if self._keeps_special or not self._tokenizer.is_special(token_id) else b"",
            logprob=logprob,
            top=top,
        )


def _clamp(logprob: float) -> float:
    """Also turns NaN, which compares with nothing, into the minimum."""
    return logprob if logprob >= MIN_LOGPROB else MIN_LOGPROB
