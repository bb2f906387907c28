"""Tokens and reasons of the prefix cache as text: where a prompt stops being cached, and why."""

import datetime
from collections.abc import Sequence

import msgspec

from gateway.prompt_positions import MessagePlace
from gateway.schemas.cache_response import (
    CacheExplanation,
    Difference,
    EvictedFor,
    PlaceShown,
    Reason,
    TokenShown,
)
from gateway.tokenizer import Tokenizer
from runtime.cache_messages import CacheExplanation as RuntimeExplanation
from runtime.cache_messages import TierName

# Of the text before and after a difference.
NUM_CONTEXT_TOKENS = 16
_NS = 1_000_000_000
_SENTENCES: dict[Reason, str] = {
    "grows": "No cached prompt goes on from there.",
    "differs": "The nearest cached prompt goes on with another token there.",
    "never_seen": "Nothing that goes on like this prompt has been cached for this key, as far as is"
    " remembered.",
    "evicted": "More of it was cached and has been evicted.",
    "other_salt": "More of it is cached under another cache_salt, which keeps them apart.",
    "other_tenant": "More of it is cached for another tenant, which keeps them apart.",
    "model_changed": "More of it was cached with another model, tokenizer or number format, which"
    " cannot be used.",
    "cache_prompt_false": "The request says cache_prompt false: it takes nothing from the cache and"
    " leaves nothing there.",
    "no_breakpoint": "The request caches up to its breakpoints only, and has none.",
    "prompt_scored": "The request wants the log-probabilities of its prompt, which is computed"
    " whole for them.",
}
_CAUSES: dict[EvictedFor, str] = {
    "own_request": "for another request of this key",
    "other_tenant": "for a request of another tenant",
    "memory": "for another request, which needed the memory",
    "quota": "as the cache quota was used up",
    "flush": "by a flush",
}


class CacheTexts:
    """Texts of tokens of one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def of(self, token_ids: Sequence[int]) -> str:
        """Control tokens as they are written. Characters that are cut at either end are left out;
        bytes that are none become U+FFFD."""
        raw = b"".join(map(self._tokenizer.token_bytes, token_ids))
        return _without_halves(raw).decode(errors="replace")

    def difference(self, token_ids: Sequence[int], found: RuntimeExplanation) -> Difference | None:
        """Where the prompt's first token that no tier has is; None where there is none."""
        in_tiers = sum(found.tier_tokens.values())
        index = found.matched_tokens + in_tiers
        if found.reason is None or index >= len(token_ids):
            return None
        # What the tree goes on with is not what comes after the tokens of a lower tier.
        cached_ids = [] if in_tiers else found.cached_ids
        return Difference(
            index=index,
            before=self.of(token_ids[max(0, index - NUM_CONTEXT_TOKENS) : index]),
            prompt=self._shown(token_ids[index : index + 1 + NUM_CONTEXT_TOKENS]),
            cached=self._shown(cached_ids) if cached_ids else None,
            message=None,
        )

    def placed(self, difference: Difference, place: MessagePlace | None) -> Difference:
        """With the message in which it is."""
        if place is None:
            return difference
        shown = PlaceShown(place.kind, place.index, place.role, place.part, place.offset)
        return msgspec.structs.replace(difference, message=shown)

    def _shown(self, token_ids: Sequence[int]) -> TokenShown:
        first, *others = token_ids
        text = self._tokenizer.token_bytes(first).decode(errors="replace")
        return TokenShown(first, text, self.of(others[:NUM_CONTEXT_TOKENS]))


def explanation_of(
    num_tokens: int,
    reason: Reason | None,
    *,
    model: str,
    found: RuntimeExplanation | None = None,
    difference: Difference | None = None,
    sees_all: bool = False,
) -> CacheExplanation:
    """`found` None: the cache was not asked, as the request keeps it out."""
    matched = 0 if found is None else found.matched_tokens
    tiers: dict[TierName, int] = {"device": matched}
    evicted_at_ns, evicted_for = None, None
    if found is not None:
        tiers |= found.tier_tokens
        evicted_at_ns, evicted_for = found.evicted_at_ns, _told_cause(found, sees_all=sees_all)
    cacheable = max(num_tokens - 1, 0)
    return CacheExplanation(
        model=model,
        prompt_tokens=num_tokens,
        cacheable_tokens=cacheable,
        matched_tokens=matched,
        tiers=tiers,
        reason=reason,
        explanation=_sentences(
            reason, tiers, cacheable=cacheable, difference=difference,
            evicted=_eviction(evicted_at_ns, evicted_for),
        ),
        first_difference=difference,
        evicted_at=None if evicted_at_ns is None else time_of(evicted_at_ns),
        evicted_at_s=None if evicted_at_ns is None else evicted_at_ns / _NS,
        evicted_for=evicted_for,
    )  # fmt: skip


def time_of(wall_ns: int) -> str | None:
    """As ISO 8601 in UTC; None for 0, which is never."""
    if not wall_ns:
        return None
    moment = datetime.datetime.fromtimestamp(wall_ns / _NS, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _told_cause(found: RuntimeExplanation, *, sees_all: bool) -> EvictedFor | None:
    """A tenant is not told whether it was another one that needed its pages."""
    if not sees_all and found.evicted_for in ("own_request", "other_tenant"):
        return "memory"
    return found.evicted_for


def _eviction(at_ns: int | None, cause: EvictedFor | None) -> str:
    moment = None if at_ns is None else time_of(at_ns)
    when = "" if moment is None else f" at {moment}"
    why = "" if cause is None else f", {_CAUSES[cause]}"
    return f"It was evicted{when}{why}." if when or why else ""


def _sentences(
    reason: Reason | None,
    tiers: dict[TierName, int],
    *,
    cacheable: int,
    difference: Difference | None,
    evicted: str,
) -> str:
    found = ", ".join(
        f"{count} in the tier {name}" for name, count in tiers.items() if count or name == "device"
    )
    told = [f"{sum(tiers.values())} of the {cacheable} tokens that can be cached are: {found}."]
    if reason is None:
        return " ".join([*told, "That is all that can be found."])
    told.append(_SENTENCES[reason])
    if evicted:
        told.append(evicted)
    if difference is not None:
        told.append(_where(difference))
    return " ".join(told)


def _where(difference: Difference) -> str:
    cached = difference.cached
    other = f", {cached.text!r} in the cache" if cached is not None else ""
    place = _place(difference.message)
    return f"Token {difference.index} is {difference.prompt.text!r} here{other}{place}."


def _place(place: PlaceShown | None) -> str:
    if place is None:
        return ""
    match place.kind:
        case "preamble":
            return ", before the first message's content"
        case "generation_prompt":
            return ", in what the template writes after all messages"
        case "message":
            return f", in what the template writes around message {place.index} ({place.role})"
        case "content":
            part = "" if place.part is None else f", part {place.part}"
            where = f"message {place.index} ({place.role}){part}"
            return f", after {place.offset} characters of the content of {where}"


def _without_halves(raw: bytes) -> bytes:
    """Without what is left of a character at the beginning and at the end."""
    start = 0
    while start < min(len(raw), 3) and raw[start] & 0xC0 == 0x80:
        start += 1
    end = len(raw)
    for back in range(1, min(4, end - start) + 1):
        byte = raw[end - back]
        if byte & 0xC0 == 0x80:
            continue
        length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        if back < length:
            end -= back
        break
    return raw[start:end]
