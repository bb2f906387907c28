"""Reasoning before a constrained answer: which markers a model has, what a prompt leaves open, and
where in an answer's tokens the block ends. The tokens in it are free (grammar.reasoning_matcher).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from gateway.detokenizer import Detokenizer
from gateway.tokenizer import Tokenizer
from grammar.spec import Reasoning
from runtime.errors import ConfigError

# Qwen3 and what was distilled from DeepSeek-R1; Magistral.
KNOWN_MARKERS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))


@dataclass(frozen=True, slots=True)
class Markers:
    """The two tokens around a model's reasoning."""

    start_id: int
    end_id: int

    def after_chat(self, prompt_ids: Sequence[int], tokenizer: Tokenizer) -> Reasoning | None:
        """What a chat template leaves to the answer; None where it has closed the block, which is
        how thinking is switched off. Only its last words count: messages may speak of markers."""
        spoken = (i for i in reversed(prompt_ids) if tokenizer.token_bytes(i).strip())
        last_id = next(spoken, None)
        if last_id == self.end_id:
            return None
        if last_id == self.start_id:
            return self._open()
        return Reasoning(end_ids=(self.end_id,), start_ids=(self.start_id,))

    def after_text(self, prompt_ids: Sequence[int]) -> Reasoning | None:
        """What a prompt without a template leaves to the answer: it ends inside a block, or there
        is none."""
        marks = (i for i in reversed(prompt_ids) if i in (self.start_id, self.end_id))
        return self._open() if next(marks, None) == self.start_id else None

    def _open(self) -> Reasoning:
        return Reasoning(end_ids=(self.end_id,), is_open=True)


def find_markers(setting: str, tokenizer: Tokenizer, *, template: str | None) -> Markers | None:
    """`setting` is "auto", "none", or the two markers with a comma between them. Found are markers
    that are tokens of the model and of which its chat template speaks.

    Raises: ConfigError for markers of the setting that are no such tokens.
    """
    if setting == "none":
        return None
    if setting == "auto":
        pairs = (pair for pair in KNOWN_MARKERS if any(text in (template or "") for text in pair))
        found = (_markers(*pair, tokenizer=tokenizer) for pair in pairs)
        return next((markers for markers in found if markers is not None), None)
    start, _, end = setting.partition(",")
    markers = _markers(start, end, tokenizer=tokenizer)
    if markers is None:
        raise ConfigError(
            f"reasoning_markers: {start!r} and {end!r} must be two tokens that this model's"
            " tokenizer always reads as such; 'auto' or 'none' need no markers"
        )
    return markers


def _markers(start: str, end: str, *, tokenizer: Tokenizer) -> Markers | None:
    start_id, end_id = tokenizer.added_token_id(start), tokenizer.added_token_id(end)
    if start_id is None or end_id is None or start_id == end_id:
        return None
    is_end_of_answer = {start_id, end_id} & set(tokenizer.eos_token_ids)
    return None if is_end_of_answer else Markers(start_id, end_id)


class _Gate:
    """Walks the tokens of an answer up to the end of its block, as the matcher does."""

    def __init__(self, reasoning: Reasoning) -> None:
        (self._end_id,) = reasoning.end_ids
        self._start_ids = reasoning.start_ids
        self._is_inside = reasoning.is_open
        self._is_over = False

    @property
    def is_inside(self) -> bool:
        return self._is_inside

    def takes(self, token_id: int) -> bool:
        """Whether the next token belongs to the block, of which the markers are part."""
        if self._is_over:
            return False
        if self._is_inside:
            self._is_over = token_id == self._end_id
            self._is_inside = not self._is_over
            return True
        self._is_inside = token_id in self._start_ids
        self._is_over = not self._is_inside
        return self._is_inside


def answer_start(token_ids: Sequence[int], reasoning: Reasoning | None) -> int:
    """How many of these tokens are the block before the answer."""
    if reasoning is None:
        return 0
    return sum(1 for _ in takewhile(_Gate(reasoning).takes, token_ids))


class ReasoningBlock:
    """The text of one answer's block, as its tokens come."""

    def __init__(self, reasoning: Reasoning, tokenizer: Tokenizer) -> None:
        self._gate = _Gate(reasoning)
        self._detokenizer = Detokenizer(tokenizer)

    def feed(self, token_id: int) -> str | None:
        """Text that the token completes; None for a token after the block."""
        was_inside = self._gate.is_inside
        if not self._gate.takes(token_id):
            return None
        if not self._gate.is_inside:
            return self._detokenizer.flush()
        return self._detokenizer.feed(token_id) if was_inside else ""

    def flush(self) -> str:
        """The answer's end, which may come inside the block."""
        return self._detokenizer.flush()
