"""The engine over xgrammar. Imports that library, and with it torch and transformers (2 s,
270 MB); only grammar.engines imports this module, and only where the engine is asked for.
"""

import re
from collections.abc import Sequence

import torch
import xgrammar

from grammar.ending_matcher import EndingMatcher, VocabularyBits
from grammar.errors import MatcherFailed, UnsupportedConstraint
from grammar.matcher import MaskRow, Vocabulary
from grammar.schema.punctuation import MAX_SPACES
from grammar.spec import ConstraintSpec, EngineName, PreparedConstraint
from grammar.token_bytes import token_bytes
from grammar.xgrammar_notation import prepare_for_xgrammar

# Tokens that xgrammar gets without their bytes, so that it never allows them. It takes the
# surrogates' bytes ED A0..BF for a character, which UTF-8 does not have; without tokens that end
# in ED the byte after it is always in the same token, where it can be seen.
UNTRUSTED = re.compile(rb"\xed(?:[\xa0-\xbf]|\Z)")
# Its strings with a length or a pattern let raw control characters through, which JSON forbids.
UNTRUSTED_IN_JSON = re.compile(rb"[\x00-\x1f]|\xed(?:[\xa0-\xbf]|\Z)")
SOURCE_PLACE = re.compile(r"^\[[0-9:]+\] \S+:\d+: ")


class XGrammarEngine:
    """xgrammar bound to one vocabulary. Its methods may be called from any thread."""

    name: EngineName = "xgrammar"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._bits = VocabularyBits(
            vocab_size=vocabulary.vocab_size, eos_token_ids=vocabulary.eos_token_ids
        )
        tokens = token_bytes(vocabulary.tokenizer_json, vocabulary.vocab_size)
        self._compiler = self._new_compiler(vocabulary, UNTRUSTED, tokens)
        self._json_compiler = self._new_compiler(vocabulary, UNTRUSTED_IN_JSON, tokens)

    def prepare(self, spec: ConstraintSpec) -> PreparedConstraint:
        """See GrammarEngine.prepare."""
        return prepare_for_xgrammar(spec)

    def build(self, prepared: PreparedConstraint) -> EndingMatcher:
        """See GrammarEngine.build."""
        try:
            matcher = xgrammar.GrammarMatcher(self._compiled(prepared))
        except (RuntimeError, ValueError) as error:
            raise UnsupportedConstraint(SOURCE_PLACE.sub("", str(error)).strip()) from error
        return EndingMatcher(XGrammarParser(matcher, self._bits), self._bits)

    def _compiled(self, prepared: PreparedConstraint) -> xgrammar.CompiledGrammar:
        if prepared.form == "regex":
            return self._compiler.compile_regex(prepared.grammar)
        if prepared.form == "ebnf":
            return self._compiler.compile_grammar(prepared.grammar)
        is_spaced = prepared.form == "spaced_json_schema"
        return self._json_compiler.compile_json_schema(
            prepared.grammar,
            any_whitespace=is_spaced,
            max_whitespace_cnt=MAX_SPACES if is_spaced else None,
            separators=(",", ":"),
            strict_mode=False,
        )

    def _new_compiler(
        self, vocabulary: Vocabulary, untrusted: re.Pattern[bytes], tokens: list[bytes]
    ) -> xgrammar.GrammarCompiler:
        tokenizer_info = xgrammar.TokenizerInfo(
            [b"" if untrusted.search(token) else token for token in tokens],
            xgrammar.VocabType.RAW,
            vocab_size=vocabulary.vocab_size,
            stop_token_ids=list(vocabulary.eos_token_ids),
        )
        return xgrammar.GrammarCompiler(tokenizer_info, max_threads=1, cache_enabled=False)


class XGrammarParser:
    """A Parser over one GrammarMatcher, which raises RuntimeError by itself."""

    def __init__(self, matcher: xgrammar.GrammarMatcher, bits: VocabularyBits) -> None:
        self._matcher = matcher
        self._bits = bits

    def fill(self, mask_row: MaskRow) -> None:
        try:
            self._matcher.fill_next_token_bitmask(torch.from_numpy(mask_row).unsqueeze(0))
        except RuntimeError as error:
            raise MatcherFailed(str(error).strip()) from error

    def accept(self, token_ids: Sequence[int]) -> int:
        for num_accepted, token_id in enumerate(token_ids):
            if not self._matcher.accept_token(token_id):
                return num_accepted
        return len(token_ids)

    def rollback(self, num_tokens: int) -> None:
        self._matcher.rollback(num_tokens)

    def fork(self) -> "XGrammarParser":
        return XGrammarParser(self._matcher.fork(), self._bits)

    def forced_tokens(self) -> list[int]:
        return self._matcher.find_jump_forward_tokens()

    def is_accepting(self) -> bool:
        return self._matcher.is_completed()

    def is_exhausted(self) -> bool:
        """xgrammar has no word for it: what follows is looked up in a mask."""
        if not self._matcher.is_completed():
            return False
        row = self._bits.empty_row()
        self.fill(row)
        self._bits.keep_text(row)
        return not row.any()
