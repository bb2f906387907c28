"""The engine over llguidance. Imports that library; only grammar.engines imports this module.

Its matcher never raises: it enters an error state in which it would allow nothing or, worse, be
read as finished. Every call here therefore looks at the error state before it answers.
"""

from collections.abc import Sequence
from typing import Protocol

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from grammar.ecma_regex import rust_pattern
from grammar.ending_matcher import EndingMatcher, VocabularyBits
from grammar.errors import GrammarError, MatcherFailed, UnsupportedConstraint
from grammar.gbnf_lark import gbnf_to_lark
from grammar.lark_grammar import checked_lark
from grammar.literals import checked_regex, choice_strings, escaped_regex
from grammar.matcher import MaskRow, Vocabulary
from grammar.schema.compiler import compile_schema, not_enforced
from grammar.spec import (
    ConstraintKind,
    ConstraintSpec,
    EngineName,
    Gap,
    GrammarForm,
    PreparedConstraint,
)
from grammar.special_texts import without_special_texts
from grammar.tag_lark import tags_to_lark
from grammar.tool_lark import tool_calls_to_lark


class ToLark(Protocol):
    """Makes a grammar of a constraint's text, and says what it does not enforce."""

    def __call__(self, value: str, /, *, whitespace: bool) -> tuple[str, tuple[Gap, ...]]: ...


JSON_OBJECT = '{"type":"object"}'
# Ten to twenty times the library's defaults, at which schemas with many alternatives or overlapping
# patterns fail in the middle of an answer. The probe's own limits of time and memory come first.
LIMITS = LLParserLimits(
    verbose_errors=False,
    max_items_in_row=20_000,
    step_max_items=500_000,
    initial_lexer_fuel=2_000_000,
    step_lexer_fuel=5_000_000,
)

_TO_LARK: dict[ConstraintKind, ToLark] = {
    "lark": checked_lark,
    "structural_tag": tags_to_lark,
    "tool_calls": tool_calls_to_lark,
}


class LLGuidanceEngine:
    """llguidance bound to one vocabulary. Its methods may be called from any thread."""

    name: EngineName = "llguidance"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._bits = VocabularyBits(
            vocab_size=vocabulary.vocab_size, eos_token_ids=vocabulary.eos_token_ids
        )
        self._limits = LIMITS
        try:
            self._tokenizer = LLTokenizer(
                without_special_texts(vocabulary.tokenizer_json),
                n_vocab=vocabulary.vocab_size,
                eos_token=list(vocabulary.eos_token_ids),
            )
        except (ValueError, RuntimeError) as error:
            raise GrammarError(f"llguidance cannot use this tokenizer: {error}") from error

    def prepare(self, spec: ConstraintSpec) -> PreparedConstraint:
        """See GrammarEngine.prepare."""
        to_lark = _TO_LARK.get(spec.kind)
        if to_lark is not None:
            lark, gaps = to_lark(spec.value, whitespace=spec.allows_whitespace)
            if gaps and not spec.allows_checked:
                raise not_enforced(gaps[0])
            return PreparedConstraint(self.name, "lark", lark, gaps)
        if spec.kind in ("json_schema", "json_object"):
            return self._prepare_schema(spec)
        form, grammar = _grammar(spec)
        return PreparedConstraint(self.name, form, grammar)

    def _prepare_schema(self, spec: ConstraintSpec) -> PreparedConstraint:
        text = spec.value if spec.kind == "json_schema" else JSON_OBJECT
        compiled = compile_schema(text, whitespace=spec.allows_whitespace)
        if compiled.gaps and not spec.allows_checked:
            raise not_enforced(compiled.gaps[0])
        return PreparedConstraint(self.name, "lark", compiled.lark, compiled.gaps)

    def build(self, prepared: PreparedConstraint) -> EndingMatcher:
        """See GrammarEngine.build. Releases the GIL while the grammar is built."""
        grammar = _wrapped(prepared)
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        complaint = matcher.get_error() or "; ".join(matcher.get_grammar_warnings())
        if complaint:
            raise UnsupportedConstraint(_one_line(complaint))
        return EndingMatcher(LLGuidanceParser(matcher), self._bits)


class LLGuidanceParser:
    """A Parser over one LLMatcher."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def fill(self, mask_row: MaskRow) -> None:
        self._matcher.unsafe_compute_mask_ptr(mask_row.ctypes.data, mask_row.nbytes)
        self._raise_on_error()

    def accept(self, token_ids: Sequence[int]) -> int:
        num_accepted = self._matcher.try_consume_tokens(list(token_ids))
        self._raise_on_error()
        return num_accepted

    def rollback(self, num_tokens: int) -> None:
        self._matcher.rollback(num_tokens)
        self._raise_on_error()

    def fork(self) -> "LLGuidanceParser":
        return LLGuidanceParser(self._matcher.deep_copy())

    def forced_tokens(self) -> list[int]:
        tokens = self._matcher.compute_ff_tokens()
        self._raise_on_error()
        return tokens

    def is_accepting(self) -> bool:
        is_accepting = self._matcher.is_accepting()
        self._raise_on_error()
        return is_accepting

    def is_exhausted(self) -> bool:
        is_stopped = self._matcher.is_stopped()
        self._raise_on_error()
        return is_stopped

    def _raise_on_error(self) -> None:
        if self._matcher.is_error():
            raise MatcherFailed(_one_line(self._matcher.get_error()))


def _grammar(spec: ConstraintSpec) -> tuple[GrammarForm, str]:
    if spec.kind == "regex":
        return "regex", rust_pattern(checked_regex(spec.value), pointer="")
    if spec.kind == "choice":
        # One regex, not alternatives of a grammar: those are limited to 2,000 a row.
        return "regex", "|".join(map(escaped_regex, choice_strings(spec.value)))
    if spec.kind == "gbnf":
        return "lark", gbnf_to_lark(spec.value)
    raise UnsupportedConstraint(f"llguidance takes no {spec.kind}")


def _wrapped(prepared: PreparedConstraint) -> str:
    if prepared.form == "regex":
        return LLMatcher.grammar_from_regex(prepared.grammar)
    return LLMatcher.grammar_from_lark(prepared.grammar)


def _one_line(message: str) -> str:
    """One line for the client: llguidance appends its state, and draws regex errors over lines."""
    message = message.split("\n<state>", 1)[0].strip()
    if "regex parse error" in message:
        causes = [line for line in message.splitlines() if line.startswith("error: ")]
        return "the regex cannot be parsed: " + "; ".join(c.removeprefix("error: ") for c in causes)
    return " ".join(message.split())
