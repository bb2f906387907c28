"""Runs a terminal of llguidance's Lark dialect over whole texts."""

from functools import cache

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from tests.small_vocabulary import small_vocabulary


@cache
def tokenizer() -> LLTokenizer:
    vocabulary = small_vocabulary()
    return LLTokenizer(
        vocabulary.tokenizer_json,
        n_vocab=vocabulary.vocab_size,
        eos_token=list(vocabulary.eos_token_ids),
    )


class TerminalRun:
    """One terminal as a whole grammar."""

    def __init__(self, terminal: str) -> None:
        grammar = LLMatcher.grammar_from_lark(f"start: TEXT\nTEXT: {terminal}")
        limits = LLParserLimits(verbose_errors=False)
        self._matcher = LLMatcher(tokenizer(), grammar, log_level=0, limits=limits)
        assert not self._matcher.get_error(), self._matcher.get_error()

    def accepts(self, text: str) -> bool:
        fork = self._matcher.deep_copy()
        token_ids = tokenizer().tokenize_str(text)
        return fork.try_consume_tokens(token_ids) == len(token_ids) and fork.is_accepting()
