"""What the runtime knows of one request: a Sequence per choice. Mutated by the engine loop only.

The scheduler owns a sequence's place in a queue, its lease and its counts of tokens; the engine
owns its matcher, its output and its events.
"""

import enum
from dataclasses import dataclass, field

from grammar.matcher import Matcher
from prefix_cache import Lease
from runtime.batch import RowKey
from runtime.cache_messages import TierName
from runtime.grammar_builder import Build
from runtime.messages import ChoiceUsage, Sampling, Submit, TokenLogprob
from runtime.phases import PhaseLog
from runtime.token_limits import AllowedTokens, BadWords

# So many rows a kernel of the native step takes at a time.
MAX_DECODE_TOKENS = 16


class SequenceState(enum.Enum):
    """BUILDING until its matcher is there (no slot, no page); FETCHING until pages of lower tiers
    are there or given up (neither); WAITING for admission, also after a preemption; RUNNING with
    a lease; FINISHED."""

    BUILDING = "building"
    FETCHING = "fetching"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class RestoredTokens:
    """[start, end) of the tokens came from a lower tier before the request was admitted."""

    tier: TierName
    start: int
    end: int


@dataclass(eq=False, slots=True)
class Request:
    """One Submit and its sequences, in the order of their choices; `allowed` and `bad_words` are
    those of its sampling, None where it has none."""

    gateway: bytes
    submit: Submit
    prompt_ids: tuple[int, ...]
    build: Build | None = None
    is_build_cached: bool = False
    restored: list[RestoredTokens] = field(default_factory=list)
    sequences: list["Sequence"] = field(default_factory=list)
    allowed: AllowedTokens | None = field(init=False)
    bad_words: BadWords | None = field(init=False)

    def __post_init__(self) -> None:
        sampling = self.submit.sampling
        allowed_ids = sampling.allowed_token_ids
        self.allowed = AllowedTokens(allowed_ids) if allowed_ids is not None else None
        self.bad_words = BadWords(sampling.bad_words) if sampling.bad_words else None

    @property
    def live_sequences(self) -> list["Sequence"]:
        return [one for one in self.sequences if one.state is not SequenceState.FINISHED]

    @property
    def is_finished(self) -> bool:
        return not self.live_sequences


@dataclass(eq=False, slots=True)
class Sequence:
    """One choice. `key` grows with arrival; `joined_ns` is when it first joined the queue.

    | range of token_ids                      | what                                       |
    | --------------------------------------- | ------------------------------------------ |
    | [0, num_prompt_tokens)                  | the prompt                                 |
    | [num_prompt_tokens, num_given_tokens)   | the answer's beginning, from the Submit    |
    | [num_given_tokens, len)                 | generated so far, sampled or forced        |
    | [0, num_computed_tokens)                | KV in the lease's pages                    |
    | [num_computed_tokens, input_len)        | prefill; input_len is len at admission     |
    | [0, num_provided_tokens)                | matched or computed at least once in life  |

    Of what was generated the first `num_told_tokens` were in events already; `num_forced_tokens`
    of these were not sampled. Where the prompt is scored, which the first choice has done,
    `wants_scores` until tokens [1, num_scored_tokens] are all of it; the log-probabilities that no
    event had yet are in `prompt_logprobs`.

    The cache may keep the first `keep_len` tokens (None = all): what the hints say, and what is
    before the token that the next turn of a conversation lacks, of which the first
    `num_searched_tokens` hold none.

    Until the copy of a partial page that was found in the tree has run (`has_tail_copy`), the
    tokens behind the shared pages count as computed but are not there yet.
    """

    key: RowKey
    request: Request
    choice: int
    token_ids: list[int]
    phases: PhaseLog
    state: SequenceState
    matcher: Matcher | None = None
    lease: Lease | None = None
    input_len: int = 0
    num_computed_tokens: int = 0
    num_provided_tokens: int = 0
    num_cached_tokens: int = 0
    num_recomputed_tokens: int = 0
    was_admitted: bool = False
    joined_ns: int = 0
    leader: "Sequence | None" = None
    leader_len: int = 0
    following_since_ns: int | None = None
    num_events: int = 0
    num_told_tokens: int = 0
    num_forced_tokens: int = 0
    num_scored_tokens: int = 0
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    wants_scores: bool = field(init=False)
    sampling: Sampling = field(init=False)
    keep_len: int | None = field(init=False)
    num_searched_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        # Both are asked of every sequence in every step.
        self.sampling = self.request.submit.sampling
        is_scored = self.choice == 0 and self.request.submit.num_prompt_logprobs is not None
        self.wants_scores = is_scored and self.num_prompt_tokens > 1
        self.keep_len = self.request.submit.cache.keep_len
        self.num_searched_tokens = self.num_prompt_tokens

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def num_given_tokens(self) -> int:
        return len(self.request.prompt_ids) + len(self.request.submit.output_prefix)

    @property
    def num_output_tokens(self) -> int:
        """Generated now."""
        return len(self.token_ids) - self.num_given_tokens

    @property
    def num_answer_tokens(self) -> int:
        """Generated now, and before in an answer that is gone on with."""
        return len(self.token_ids) - len(self.request.prompt_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def takes_prefix(self) -> bool:
        """Whether pages that others computed are of use. They hold no logits."""
        return self.request.submit.use_cache and not self.wants_scores

    @property
    def num_matchable_tokens(self) -> int:
        """How many tokens may come from the cache: none whose logits are wanted, as the last one's
        always are."""
        return self.num_scored_tokens if self.wants_scores else len(self.token_ids) - 1

    @property
    def has_tail_copy(self) -> bool:
        return self.lease is not None and self.lease.tail is not None

    @property
    def is_decoding(self) -> bool:
        """Running, with no more to compute than a sampled token and a few that were forced. Many
        forced ones are a chunk that others must not have to wait for, as a prompt's are."""
        is_short = self.num_uncomputed_tokens <= MAX_DECODE_TOKENS
        has_input = self.num_computed_tokens >= self.input_len
        return self.state is SequenceState.RUNNING and (
            self.num_uncomputed_tokens == 1 or (has_input and is_short)
        )

    @property
    def is_prefilling(self) -> bool:
        """Running, with a part of its input not computed yet."""
        return self.state is SequenceState.RUNNING and self.num_computed_tokens < self.input_len

    def take_untold_ids(self) -> list[int]:
        """The generated tokens that no event had yet: one that was sampled, and those that were
        forced before and after it."""
        untold = self.token_ids[self.num_given_tokens + self.num_told_tokens :]
        self.num_told_tokens += len(untold)
        self.num_forced_tokens += len(untold) - 1
        return untold

    def add_scores(self, logprobs: list[TokenLogprob]) -> None:
        """Those of the next tokens of the prompt."""
        self.prompt_logprobs += logprobs
        self.num_scored_tokens += len(logprobs)
        if self.num_scored_tokens == self.num_prompt_tokens - 1:
            self.wants_scores = False

    def take_prompt_logprobs(self) -> list[TokenLogprob]:
        """Those that no event had yet."""
        taken, self.prompt_logprobs = self.prompt_logprobs, []
        return taken

    def num_kept(self, num_tokens: int) -> int:
        """How many of the first `num_tokens` tokens the cache may keep."""
        self._find_cut(num_tokens)
        return num_tokens if self.keep_len is None else min(self.keep_len, num_tokens)

    def cacheable_ids(self) -> list[int] | None:
        """The tokens whose KV is in the lease's pages and may stay, None where the tree must not
        have any."""
        assert not self.has_tail_copy, "a sequence ends between steps, when its copy has run"
        if not self.request.submit.use_cache:
            return None
        return self.token_ids[: self.num_kept(self.num_computed_tokens)]

    def usage(self) -> ChoiceUsage:
        """Counts so far. Output includes a token that ends the choice, as OpenAI counts."""
        return ChoiceUsage(
            prompt_tokens=self.num_prompt_tokens,
            cached_tokens=self.num_cached_tokens,
            completion_tokens=self.num_output_tokens,
            recomputed_tokens=self.num_recomputed_tokens,
            forced_tokens=self.num_forced_tokens,
            written_tokens=self.request.submit.num_written(self.num_cached_tokens),
            tier_tokens=self._tier_tokens() if self.request.restored else {},
        )

    def _tier_tokens(self) -> dict[TierName, int]:
        """Of the tokens that were found in the cache, those that lower tiers had given."""
        counts: dict[TierName, int] = {}
        for run in self.request.restored:
            num_tokens = min(run.end, self.num_cached_tokens) - run.start
            if num_tokens > 0:
                counts[run.tier] = counts.get(run.tier, 0) + num_tokens
        return counts

    def _find_cut(self, num_tokens: int) -> None:
        """Looks for the token from which on the answer is dropped, among those not seen yet."""
        marker = self.request.submit.cache.dropped_from
        if marker is None or num_tokens <= self.num_searched_tokens:
            return
        start, self.num_searched_tokens = self.num_searched_tokens, num_tokens
        if marker in (searched := self.token_ids[start:num_tokens]):
            place = start + searched.index(marker)
            self.keep_len = place if self.keep_len is None else min(self.keep_len, place)
