"""The engine over outlines-core: one regex as a table from states to tokens. Imports that library;
only grammar.engines imports this module, and only where the engine is asked for.
"""

from collections.abc import Sequence

import numpy as np
from outlines_core import Guide, Index
from outlines_core import Vocabulary as TokenTable

from grammar.ending_matcher import EndingMatcher, VocabularyBits
from grammar.errors import MatcherFailed, UnsupportedConstraint
from grammar.matcher import MaskRow, Vocabulary, mask_words
from grammar.outlines_notation import prepare_for_outlines
from grammar.spec import ConstraintSpec, EngineName, PreparedConstraint
from grammar.token_bytes import token_bytes

# About 100 bytes each (measured: [^a]{0,50} over 49,152 tokens has 2.7 million in 290 ms).
MAX_TRANSITIONS = 1_000_000
# Bytes that no text has: tokens that must never be allowed are given them. The library's masks are
# as long as it has tokens, so that each id needs one.
NO_TEXT = b"\xff"
# The library ends a text at the first alternative that fits, so that ab|abc would not allow abc,
# unless the end is spelled out; and it takes no assertion in what may be empty. So each text has
# this character, which has a token of its own, before it.
START = "\U0010ffff"
SPELLED_OUT = r"\x{{10ffff}}(?:{})\z"


class OutlinesEngine:
    """outlines-core bound to one vocabulary. Its methods may be called from any thread."""

    name: EngineName = "outlines"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._bits = VocabularyBits(
            vocab_size=vocabulary.vocab_size, eos_token_ids=vocabulary.eos_token_ids
        )
        end = vocabulary.eos_token_ids[0]
        tokens = token_bytes(vocabulary.tokenizer_json, vocabulary.vocab_size)
        by_text: dict[bytes, list[int]] = {}
        self._num_beginning = [0] * 256
        for token_id, text in enumerate(tokens):
            if token_id == end:
                continue
            if text and token_id not in self._bits.eos_token_ids:
                self._num_beginning[text[0]] += 1
            else:
                text = NO_TEXT
            by_text.setdefault(text, []).append(token_id)
        self._start_id = vocabulary.vocab_size
        by_text.setdefault(START.encode(), []).append(self._start_id)
        self._tokens = TokenTable(end, by_text)
        self._bytes = TokenTable(256, {bytes((byte,)): [byte] for byte in range(256)})

    def prepare(self, spec: ConstraintSpec) -> PreparedConstraint:
        """See GrammarEngine.prepare."""
        return prepare_for_outlines(spec)

    def build(self, prepared: PreparedConstraint) -> EndingMatcher:
        """See GrammarEngine.build. Refuses what would need a table without measure."""
        regex = SPELLED_OUT.format(prepared.grammar)
        try:
            self._check_size(Index(regex, self._bytes))
            index = Index(regex, self._tokens)
        except ValueError as error:
            raise UnsupportedConstraint(f"outlines cannot use the regex: {error}") from error
        return EndingMatcher(OutlinesParser(_Table(index, self._start_id), self._bits), self._bits)

    def _check_size(self, by_bytes: Index) -> None:
        """No state has more transitions than there are tokens that begin with one of its bytes."""
        most = sum(
            self._num_beginning[byte]
            for transitions in by_bytes.get_transitions().values()
            for byte in transitions
            if byte < 256
        )
        if most > MAX_TRANSITIONS:
            raise UnsupportedConstraint(
                f"outlines would need {most} transitions of tokens, more than {MAX_TRANSITIONS}"
            )


class _Table:
    """An Index, with what was looked up in it; shared by a matcher and its forks."""

    def __init__(self, index: Index, start_id: int) -> None:
        self.index = index
        self.start_id = start_id
        self.start_state: int = index.get_next_state(index.get_initial_state(), start_id)
        self._forced: dict[int, int | None] = {}

    def forced(self, state: int) -> int | None:
        """The only token that can follow, unless the text may end here."""
        if state not in self._forced:
            allowed = self.index.get_allowed_tokens(state) or []
            is_forced = len(allowed) == 1 and not self.index.is_final_state(state)
            self._forced[state] = allowed[0] if is_forced else None
        return self._forced[state]


class OutlinesParser:
    """A Parser over one table. The Guide, which alone can fill masks, follows when it has to."""

    def __init__(self, table: _Table, bits: VocabularyBits) -> None:
        self._table = table
        self._bits = bits
        self._token_ids: list[int] = []
        self._states = [table.start_state]
        self._guide = Guide(table.index)
        self._guide.advance(table.start_id, False)
        self._num_guided = 0
        self._row = np.zeros(mask_words(table.start_id + 1), dtype=np.int32)

    def fill(self, mask_row: MaskRow) -> None:
        for token_id in self._token_ids[self._num_guided :]:
            self._guide.advance(token_id, False)
        self._num_guided = len(self._token_ids)
        try:
            self._guide.write_mask_into(self._row.ctypes.data, self._row.size, self._row.itemsize)
        except ValueError as error:
            raise MatcherFailed(str(error)) from error
        np.copyto(mask_row, self._row[: mask_row.size])

    def accept(self, token_ids: Sequence[int]) -> int:
        for num_accepted, token_id in enumerate(token_ids):
            state = self._table.index.get_next_state(self._states[-1], token_id)
            if state is None or token_id == self._table.start_id:
                return num_accepted
            self._token_ids.append(token_id)
            self._states.append(state)
        return len(token_ids)

    def rollback(self, num_tokens: int) -> None:
        del self._token_ids[len(self._token_ids) - num_tokens :]
        del self._states[len(self._states) - num_tokens :]
        if self._num_guided > len(self._token_ids):
            self._guide.reset()
            self._guide.advance(self._table.start_id, False)
            self._num_guided = 0

    def fork(self) -> "OutlinesParser":
        twin = OutlinesParser(self._table, self._bits)
        twin._token_ids = list(self._token_ids)
        twin._states = list(self._states)
        return twin

    def forced_tokens(self) -> list[int]:
        """Where several spellings of a forced text are left, none is forced: the library does not
        know which one the tokenizer would choose."""
        forced: list[int] = []
        state = self._states[-1]
        while (token_id := self._table.forced(state)) is not None:
            forced.append(token_id)
            state = self._table.index.get_next_state(state, token_id)
        return forced

    def is_accepting(self) -> bool:
        return bool(self._table.index.is_final_state(self._states[-1]))

    def is_exhausted(self) -> bool:
        """The library has no word for it: what follows is looked up in a mask."""
        if not self.is_accepting():
            return False
        row = self._bits.empty_row()
        self.fill(row)
        self._bits.keep_text(row)
        return not row.any()
