"""Which thoughts of earlier answers a chat template shows, and so where the next turn of a
conversation goes on otherwise than the one that is computed now. Found out once, by trying.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.cache_plan import NO_CUT, ThoughtCut
from gateway.chat_template import NEEDLE, ChatTemplate
from gateway.errors import InvalidRequest
from gateway.generation import ChatPrompt, TextOptions
from gateway.message_shapes import Message
from gateway.reasoning import Markers
from gateway.tokenizer import Tokenizer

_QUESTION, _ANSWER = "question_of_the_probe", "answer_of_the_probe"
# A block that is closed at once is a few tokens.
MAX_CLOSED_LEN = 16


@dataclass(frozen=True, slots=True)
class KeptThoughts:
    """What a later prompt has of an answer's thoughts: `given` back beside the answer, also before
    calls of tools (`before_calls`); `written` in its text, whole or from behind the marker that the
    prompt began with (`written_on`); an empty block for an answer without any (`empty`)."""

    given: bool = False
    before_calls: bool = False
    written: bool = False
    written_on: bool = False
    empty: bool = False


def find_kept_thoughts(
    template: ChatTemplate, markers: Markers, tokenizer: Tokenizer
) -> KeptThoughts:
    """Renders small conversations."""
    start, end = (tokenizer.decode([one]) for one in (markers.start_id, markers.end_id))
    written = f"{NEEDLE}\n{end}\n\n{_ANSWER}"
    call = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calling = {"content": "", "tool_calls": [call], "reasoning_content": NEEDLE}
    result = {"role": "tool", "content": "r", "tool_call_id": "call00001"}
    user: Message = {"role": "user", "content": _QUESTION}

    def shown(*, then: Message = user, **answer: object) -> str:
        try:
            return template.render([user, {"role": "assistant", **answer}, then])
        except InvalidRequest:
            return ""

    def has_block(text: str) -> bool:
        before, found, _ = text.partition(NEEDLE)
        begun = before.rpartition(_QUESTION)[2]
        return bool(found) and start in begun and end not in begun

    return KeptThoughts(
        given=has_block(shown(content=_ANSWER, reasoning_content=NEEDLE)),
        before_calls=has_block(shown(then=result, **calling)),
        written=has_block(shown(content=f"{start}\n{written}")),
        written_on=has_block(shown(content=written)),
        empty=end in shown(content=_ANSWER).partition(_ANSWER)[0],
    )


class ThoughtCuts:
    """Of one model that reasons."""

    def __init__(self, template: ChatTemplate, markers: Markers, tokenizer: Tokenizer) -> None:
        self._markers = markers
        self._tokenizer = tokenizer
        self._kept = find_kept_thoughts(template, markers, tokenizer)

    def of(
        self,
        prompt: ChatPrompt,
        token_ids: Sequence[int],
        *,
        options: TextOptions,
        is_split: bool,
    ) -> ThoughtCut:
        """Where what is computed for the prompt stops being the beginning of the next turn's.
        `is_split`: thoughts are told apart from the answer."""
        start_id = self._markers.start_id
        reasoning = self._markers.after_chat(token_ids, self._tokenizer)
        if reasoning is None:
            return NO_CUT if self._kept.empty else self._cut_before_block(token_ids)
        if self._keeps(prompt, options, is_split=is_split, is_open=reasoning.is_open):
            return NO_CUT
        return (
            self._cut_before_block(token_ids)
            if reasoning.is_open
            else ThoughtCut(dropped_from=start_id)
        )

    def _keeps(
        self, prompt: ChatPrompt, options: TextOptions, *, is_split: bool, is_open: bool
    ) -> bool:
        kept = self._kept
        if not is_split:
            return kept.written_on if is_open else kept.written
        if not options.shows_reasoning:
            return False
        return kept.given or (kept.before_calls and bool(prompt.tools))

    def _cut_before_block(self, token_ids: Sequence[int]) -> ThoughtCut:
        """The template has begun a block at the end of the prompt, or begun and ended one."""
        first = max(len(token_ids) - MAX_CLOSED_LEN, 0)
        places = range(len(token_ids) - 1, first - 1, -1)
        start = next((i for i in places if token_ids[i] == self._markers.start_id), None)
        return ThoughtCut(keep_len=start)
