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
from grammar.rust_regex import without_last_plane, written_out
from grammar.spec import ConstraintSpec, EngineName, PreparedConstraint
from grammar.token_bytes import token_bytes

# About 100 bytes each (measured: [^a]{0,50} over 49,152 tokens has 2.7 million in 290 ms).
MAX_TRANSITIONS = 1_000_000
# That counts add to a regex; bounds the automaton that is made before its transitions are counted.
MAX_POSITIONS = 5_000
NO_BYTE = 256
# Bytes that no text has: tokens that must never be allowed are given them. The library's masks are
# as long as it has tokens, so that each id needs one.
NO_TEXT = b"\xff"
# The library's automaton ends at the first alternative that fits (ab|abc would not allow abc) and
# can also begin in the middle of a text, which takes exponentially many states. So each text
# begins and ends with a character of its own, which has a token that no one can choose and which
# nothing between matches. Tokens with the first byte of these are never allowed.
START, END = "\U0010fffe", "\U0010ffff"
FIRST_BYTE = END.encode()[:1]
ENCLOSED = r"\x{{10fffe}}(?:{})\x{{10ffff}}"


class OutlinesEngine:
    """outlines-core bound to one vocabulary. Its methods may be called from any thread."""

    name: EngineName = "outlines"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._bits = VocabularyBits(
            vocab_size=vocabulary.vocab_size, eos_token_ids=vocabulary.eos_token_ids
        )
        library_end = vocabulary.eos_token_ids[0]
        self._size = vocabulary.vocab_size
        by_text: dict[bytes, list[int]] = {
            START.encode(): [self._size],
            END.encode(): [self._size + 1],
        }
        self._num_beginning = [0] * 256
        texts = token_bytes(vocabulary.tokenizer_json, vocabulary.vocab_size)
        for token_id, text in enumerate(texts):
            if token_id in self._bits.eos_token_ids or FIRST_BYTE in text:
                text = b""
            if text:
                self._num_beginning[text[0]] += 1
            if token_id != library_end:
                by_text.setdefault(text or NO_TEXT, []).append(token_id)
        self._tokens = TokenTable(library_end, by_text)
        self._bytes = TokenTable(NO_BYTE, {bytes((byte,)): [byte] for byte in range(NO_BYTE)})

    def prepare(self, spec: ConstraintSpec) -> PreparedConstraint:
        """See GrammarEngine.prepare."""
        return prepare_for_outlines(spec)

    def build(self, prepared: PreparedConstraint) -> EndingMatcher:
        """See GrammarEngine.build. Refuses what would need a table without measure."""
        if written_out(prepared.grammar) > MAX_POSITIONS + len(prepared.grammar):
            raise UnsupportedConstraint(
                f"outlines would have to write counts out to more than {MAX_POSITIONS} positions"
            )
        regex = ENCLOSED.format(without_last_plane(prepared.grammar))
        try:
            self._check_size(Index(regex, self._bytes))
            index = Index(regex, self._tokens)
        except ValueError as error:
            raise UnsupportedConstraint(f"outlines cannot use the regex: {error}") from error
        return EndingMatcher(OutlinesParser(_Table(index, self._size), self._bits), self._bits)

    def _check_size(self, by_bytes: Index) -> None:
        """No state has more transitions than there are tokens that begin with one of its bytes."""
        most = 0
        seen = {by_bytes.get_initial_state()}
        waiting = list(seen)
        while waiting:
            state = waiting.pop()
            for byte in by_bytes.get_allowed_tokens(state) or ():
                if byte == NO_BYTE:
                    continue
                most += self._num_beginning[byte]
                following = by_bytes.get_next_state(state, byte)
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
            if most > MAX_TRANSITIONS:
                raise UnsupportedConstraint(
                    f"outlines would need more than {MAX_TRANSITIONS} transitions of tokens"
                )


class _Table:
    """An Index, with what was looked up in it; shared by a matcher and its forks."""

    def __init__(self, index: Index, vocab_size: int) -> None:
        self.index = index
        self.vocab_size = vocab_size
        self.start: int = index.get_next_state(index.get_initial_state(), vocab_size)
        self._forced: dict[int, int | None] = {}

    def following(self, state: int, token_id: int) -> int | None:
        """None where the token may not come."""
        if token_id >= self.vocab_size:
            return None
        following: int | None = self.index.get_next_state(state, token_id)
        return following

    def is_final(self, state: int) -> bool:
        return self.index.get_next_state(state, self.vocab_size + 1) is not None

    def new_guide(self) -> Guide:
        guide = Guide(self.index)
        guide.advance(self.vocab_size, False)
        return guide

    def forced(self, state: int) -> int | None:
        """The only token that can follow, unless the text may end here."""
        if state not in self._forced:
            allowed = self.index.get_allowed_tokens(state) or []
            is_forced = len(allowed) == 1 and allowed[0] < self.vocab_size
            self._forced[state] = allowed[0] if is_forced else None
        return self._forced[state]


class OutlinesParser:
    """A Parser over one table. The Guide, which alone can fill masks, follows when it has to."""

    def __init__(self, table: _Table, bits: VocabularyBits) -> None:
        self._table = table
        self._bits = bits
        self._token_ids: list[int] = []
        self._states = [table.start]
        self._guide = table.new_guide()
        self._num_guided = 0
        self._row = np.zeros(mask_words(table.vocab_size + 2), dtype=np.int32)

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
            state = self._table.following(self._states[-1], token_id)
            if state is None:
                return num_accepted
            self._token_ids.append(token_id)
            self._states.append(state)
        return len(token_ids)

    def rollback(self, num_tokens: int) -> None:
        del self._token_ids[len(self._token_ids) - num_tokens :]
        del self._states[len(self._states) - num_tokens :]
        if self._num_guided > len(self._token_ids):
            self._guide = self._table.new_guide()
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
        state: int | None = self._states[-1]
        while state is not None and (token_id := self._table.forced(state)) is not None:
            forced.append(token_id)
            state = self._table.following(state, token_id)
        return forced

    def is_accepting(self) -> bool:
        return self._table.is_final(self._states[-1])

    def is_exhausted(self) -> bool:
        """The library has no word for it: what follows is looked up in a mask."""
        if not self.is_accepting():
            return False
        row = self._bits.empty_row()
        self.fill(row)
        self._bits.keep_text(row)
        return not row.any()
