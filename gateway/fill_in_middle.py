"""The tokens with which a model fills in the middle of a text, for prompts that have a suffix."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.tokenizer import Tokenizer

# The text before, the text after, and where the middle begins: Qwen2.5-Coder, StarCoder 2 and
# Granite, CodeLlama. Each model's card has the order prefix, suffix, middle.
_KNOWN = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),
)
# DeepSeek-Coder: one token begins, one stands for the hole, one ends.
_HOLED = (
    "<\uff5cfim\u2581begin\uff5c>",
    "<\uff5cfim\u2581hole\uff5c>",
    "<\uff5cfim\u2581end\uff5c>",
)
# What such models write where the middle is over and another file would begin.
_ENDS = ("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<file_sep>", "<fim_pad>", "\u2581<EOT>")


@dataclass(frozen=True, slots=True)
class FimTokens:
    """`before` the prefix, `between` prefix and suffix, `after` the suffix; any of `ends` ends the
    middle."""

    before: int
    between: int
    after: int
    ends: tuple[int, ...]

    def prompt(self, prefix: Sequence[int], suffix: Sequence[int]) -> tuple[int, ...]:
        """The token ids after which the model writes the middle."""
        return (self.before, *prefix, self.between, *suffix, self.after)


def find_fim_tokens(tokenizer: Tokenizer) -> FimTokens | None:
    """None for a model whose vocabulary has no such tokens."""
    for texts in (*_KNOWN, _HOLED):
        before, between, after = (tokenizer.added_token_id(text) for text in texts)
        if before is not None and between is not None and after is not None:
            found = map(tokenizer.added_token_id, _ENDS)
            ends = {before, between, after, *(end for end in found if end is not None)}
            return FimTokens(before, between, after, tuple(sorted(ends)))
    return None
