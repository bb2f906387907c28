"""When a choice ends, and which tokens may not be sampled yet. The grammar wins over all of it but
what the client allows and what may not come first, which leave what they leave."""

from dataclasses import dataclass

from runtime.messages import ErrorCode, FinishReason
from runtime.request import Sequence


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a choice ended; `stop_token_id` names the token that did it, which has no text."""

    reason: FinishReason
    stop_token_id: int | None = None


class ConstraintFailed(Exception):
    """A constrained choice got a token its matcher does not accept, or there is none for it."""

    code = ErrorCode.CONSTRAINT_FAILED


class NoTokenLeft(ConstraintFailed):
    """A request forbids, beside what its constraint does, all that could come."""

    code = ErrorCode.NO_TOKEN_LEFT


@dataclass(frozen=True, slots=True)
class FinishRules:
    """`max_model_len` bounds prompt and output together."""

    eos_token_ids: frozenset[int]
    max_model_len: int

    def forbidden_ids(self, sequence: Sequence) -> tuple[int, ...]:
        """What may not be sampled unless a grammar leaves nothing else: what would complete one of
        the bad words, or end the choice too early."""
        bad_words, ends = sequence.request.bad_words, self._forbidden_ends(sequence)
        if bad_words is None:
            return ends
        completing = bad_words.completing(sequence.token_ids, sequence.num_prompt_tokens)
        return tuple(sorted({*completing, *ends})) if ends else completing

    def forbidden_first_ids(self, sequence: Sequence) -> tuple[int, ...]:
        """What may not be the first token generated now, whatever else is left."""
        return sequence.request.submit.first_forbidden if not sequence.num_output_tokens else ()

    def take(self, sequence: Sequence, token_id: int) -> Ending | None:
        """Appends a sampled token and says whether the choice ends with it.

        Raises: ConstraintFailed, before anything is appended.
        """
        is_stop = self._is_stop(sequence, token_id)
        if sequence.matcher is not None and sequence.matcher.accept((token_id,)) != 1:
            raise ConstraintFailed(f"token {token_id} does not fit the constraint")
        sequence.token_ids.append(token_id)
        if is_stop:
            return Ending("stop", stop_token_id=token_id)
        return self.ending(sequence)

    def ending(self, sequence: Sequence) -> Ending | None:
        """Whether a choice is complete that no stop token ended."""
        if sequence.matcher is not None and sequence.matcher.is_terminated():
            return Ending("stop")
        return None if self.room(sequence) else Ending("length")

    def room(self, sequence: Sequence) -> int:
        """How many tokens more the choice may get."""
        return min(
            sequence.sampling.max_tokens - sequence.num_output_tokens,
            self.max_model_len - len(sequence.token_ids),
        )

    def nothing_left(self, sequence: Sequence) -> ConstraintFailed:
        """The error of a choice for which no token is left, with what it asked for."""
        sampling, submit = sequence.sampling, sequence.request.submit
        wishes = {
            "the constraint": sequence.matcher is not None,
            "allowed_token_ids": sampling.allowed_token_ids is not None,
            "bad_words": bool(sampling.bad_words),
            "logit_bias": bool(sampling.logit_bias),
            "min_tokens": sequence.num_answer_tokens < sampling.min_tokens,
            "ignore_eos": sampling.ignore_eos,
            "first_forbidden": bool(submit.first_forbidden) and not sequence.num_output_tokens,
        }
        names = [name for name, is_set in wishes.items() if is_set]
        # A grammar wins over all other wishes of a client.
        own = ["allowed_token_ids"] if sequence.matcher is not None else [*wishes][1:-1]
        is_own = not wishes["first_forbidden"] and any(wishes[name] for name in own)
        kind = NoTokenLeft if is_own else ConstraintFailed
        return kind(f"{' and '.join(names) or 'the scores of the model'} leave no token to sample")

    def _forbidden_ends(self, sequence: Sequence) -> tuple[int, ...]:
        """End-of-sequence under ignore_eos, and all that would stop it before min_tokens."""
        sampling = sequence.sampling
        is_early = sequence.num_answer_tokens < sampling.min_tokens
        if not is_early and not sampling.ignore_eos:
            return ()
        forbidden = set(sampling.stop_token_ids) if is_early else set()
        if is_early or sampling.ignore_eos:
            forbidden |= self.eos_token_ids
        return tuple(sorted(forbidden))

    def _is_stop(self, sequence: Sequence, token_id: int) -> bool:
        """Asked before the token is accepted. Under a constraint end-of-sequence ends whenever
        the mask let it through, a stop token only where the output may end before it."""
        sampling = sequence.sampling
        if sequence.matcher is not None:
            may_end = token_id in sampling.stop_token_ids and sequence.matcher.is_accepting()
            return token_id in self.eos_token_ids or may_end
        is_stop = token_id in self.eos_token_ids or token_id in sampling.stop_token_ids
        return is_stop and token_id not in self._forbidden_ends(sequence)
