"""Text to token ids for one vocabulary, byte for byte. Used by the child of a bench."""

from tokenizers import Tokenizer

from grammar.matcher import Vocabulary
from grammar.special_texts import without_special_texts
from grammar.token_bytes import token_bytes


class TokenTexts:
    """The tokenizer's own tokens, none of them special."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Raises: GrammarError for a vocabulary whose tokens have no exact bytes."""
        self._bytes = token_bytes(vocabulary.tokenizer_json, vocabulary.vocab_size)
        self._tokenizer = Tokenizer.from_str(without_special_texts(vocabulary.tokenizer_json))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._ids = {raw: token_id for token_id, raw in enumerate(self._bytes) if raw}
        self._max_bytes = max(map(len, self._ids), default=0)

    def encode(self, text: str) -> list[int] | None:
        """Tokens that spell exactly the text; None where the vocabulary cannot spell it.

        Tokenizers that put a space first, or normalise, spell another text: there the longest
        token that fits is taken at each place.
        """
        raw = text.encode()
        token_ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if all(token_id < len(self._bytes) for token_id in token_ids):
            if b"".join(self._bytes[token_id] for token_id in token_ids) == raw:
                return token_ids
        return self._longest_tokens(raw)

    def _longest_tokens(self, raw: bytes) -> list[int] | None:
        token_ids: list[int] = []
        position = 0
        while position < len(raw):
            for length in range(min(self._max_bytes, len(raw) - position), 0, -1):
                token_id = self._ids.get(raw[position : position + length])
                if token_id is not None:
                    break
            else:
                return None
            token_ids.append(token_id)
            position += length
        return token_ids
