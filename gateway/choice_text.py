"""From the tokens of one choice to its text and log-probabilities, whatever the engine's steps.

Owned by GenerationRun, one per choice. Decides whether a stop string ended the choice.
"""

from collections import deque
from collections.abc import Sequence

from gateway.called_tools import CalledTools
from gateway.detokenizer import Detokenizer
from gateway.generation import LogprobEntry, TextDelta, TextOptions
from gateway.reasoning import ReasoningBlock
from gateway.stop_strings import StopScanner
from gateway.token_entries import TokenEntries
from gateway.tokenizer import Tokenizer
from gateway.tools.calls import ToolFragment
from gateway.tools.constraint import ToolPlan
from gateway.tools.parser import ParsedText
from runtime.messages import Sampling, TokenEvent, TokenLogprob

DEFAULTS = TextOptions()


class ChoiceText:
    """`num_tokens` counts every generated token up to the one that ended the choice: end of
    sequence, or the token that completed a stop string. After `is_stopped` nothing is taken.
    The `block` before an answer is text of its own, without log-probabilities.

    A token's log-probability goes out when its first character does; so those of a trimmed stop
    string never do, and a token that only began before the stop keeps all its bytes. Those of tool
    calls have none. `tools` tells of them; None where the request has no tools.
    """

    def __init__(
        self,
        choice: int,
        *,
        tokenizer: Tokenizer,
        scanner: StopScanner,
        sampling: Sampling,
        options: TextOptions = DEFAULTS,
        drops_space: bool = False,
        block: ReasoningBlock | None = None,
        plan: ToolPlan | None = None,
    ) -> None:
        self._choice = choice
        self._detokenizer = Detokenizer(
            tokenizer, drops_space=drops_space, keeps_special=options.keeps_special
        )
        self._scanner = scanner
        self._options = options
        self._block = block
        self.tools = None if plan is None else CalledTools(plan, self._detokenizer)
        self._fragments: list[ToolFragment] = []
        self._has_calls = False
        self._is_trimmed = False
        self._min_tokens = sampling.min_tokens
        self._entries = token_entries(sampling, options, tokenizer)
        # Most answers are text that nothing but their last event can end.
        self._is_plain = (
            self._entries is None
            and block is None
            and plan is None
            and not scanner.has_stops
            and not options.returns_ids
        )
        self._num_chars = 0
        self._unsettled: deque[tuple[int, LogprobEntry]] = deque()
        self.num_tokens = 0
        self.num_reasoning_tokens = 0
        self.is_stopped = False

    def feed(self, event: TokenEvent) -> TextDelta:
        """What the event adds; the last event of a choice also lets out what was held back."""
        if self._is_plain and event.finish_reason is None:
            return self._plain_delta(event.token_ids)
        num_before = self.num_tokens
        num_texts = len(event.token_ids) - (event.stop_token_id is not None)
        logprobs = event.logprobs if self._entries is not None else []
        thoughts, pieces = [], []
        for index, token_id in enumerate(event.token_ids):
            self.num_tokens += 1
            if index == num_texts:
                break
            thought = self._think(token_id)
            if thought is not None:
                thoughts.append(thought)
                continue
            logprob = logprobs[index] if index < len(logprobs) else None
            pieces.append(self._take(token_id, logprob))
            if self.is_stopped:
                break
        if event.finish_reason is not None and not self.is_stopped:
            thoughts.append("" if self._block is None else self._block.flush())
            pieces.append(self._end())
        return TextDelta(
            choice=self._choice,
            text="".join(pieces),
            logprobs=self._settled_entries(is_end=event.finish_reason is not None),
            num_tokens=self.num_tokens - num_before,
            reasoning="".join(thoughts) if self._options.shows_reasoning else "",
            tool_calls=self._take_fragments(),
            token_ids=self._shown_ids(event, self.num_tokens - num_before),
        )

    def _take_fragments(self) -> tuple[ToolFragment, ...]:
        taken = tuple(self._fragments)
        self._fragments.clear()
        return taken

    def _plain_delta(self, token_ids: Sequence[int]) -> TextDelta:
        """As feed() gives it, for a small part of the time."""
        self.num_tokens += len(token_ids)
        text = "".join(map(self._detokenizer.feed, token_ids))
        return TextDelta(self._choice, text, num_tokens=len(token_ids))

    def _shown_ids(self, event: TokenEvent, num_taken: int) -> tuple[int, ...]:
        return tuple(event.token_ids[:num_taken]) if self._options.returns_ids else ()

    def _think(self, token_id: int) -> str | None:
        """The block's text that the token completes; None for a token of the answer."""
        thought = None if self._block is None else self._block.feed(token_id)
        self.num_reasoning_tokens += thought is not None
        return thought

    def _take(self, token_id: int, logprob: TokenLogprob | None) -> str:
        if logprob is not None and self._entries is not None and not self._has_calls:
            start = self._num_chars if self.tools is None else self.tools.num_chars
            self._unsettled.append((start, self._entries.of(token_id, logprob)))
        if self.tools is None:
            return self._scan(self._detokenizer.feed(token_id))
        return self._parse(self.tools.feed(token_id))

    def _end(self) -> str:
        if self.tools is None:
            text = self._scan(self._detokenizer.flush())
        else:
            text = self._parse(self.tools.finish())
        return text if self.is_stopped or self._is_trimmed else text + self._scanner.flush()

    def _parse(self, parsed: ParsedText) -> str:
        """Content that may go out. Nothing in a call is a stop string, and what was held back
        before one is none either."""
        text = self._scan(parsed.content)
        if self.is_stopped or not (parsed.fragments or parsed.cut):
            return text
        self._fragments += parsed.fragments
        self._has_calls = self._has_calls or bool(parsed.fragments)
        return text + self._scanner.flush() + self._trimmed(parsed.cut)

    def _trimmed(self, cut: str) -> str:
        """Of a block that was cut what comes before a stop string, which does not end the choice:
        that was its limit."""
        text = self._scan(cut)
        self._is_trimmed, self.is_stopped = self.is_stopped, False
        return text

    def _scan(self, text: str) -> str:
        self._num_chars += len(text)
        scan = self._scanner.feed(text, is_armed=self.num_tokens >= self._min_tokens)
        self.is_stopped = scan.is_stopped
        return scan.text

    def _settled_entries(self, *, is_end: bool) -> tuple[LogprobEntry, ...]:
        is_whole = not (self.is_stopped or self._is_trimmed or self._has_calls)
        keeps_all = is_end and is_whole
        settled = []
        while self._unsettled and (
            keeps_all or self._unsettled[0][0] < self._scanner.num_settled_chars
        ):
            settled.append(self._unsettled.popleft()[1])
        return tuple(settled)


def token_entries(
    sampling: Sampling, options: TextOptions, tokenizer: Tokenizer
) -> TokenEntries | None:
    """None where no log-probabilities are wanted."""
    if sampling.num_logprobs is None:
        return None
    return TokenEntries(
        tokenizer,
        num_top=sampling.num_logprobs,
        as_ids=options.tokens_as_ids,
        keeps_special=options.keeps_special,
    )
