"""Token ids of one choice to text, as they come: characters appear when their bytes are whole."""

import codecs

from gateway.tokenizer import Tokenizer


class Detokenizer:
    """The texts of all feed() calls and of flush() joined are the decoding of all bytes at once,
    U+FFFD where they are not UTF-8. Control tokens have no text. It starts with nothing: bytes of
    the prompt never appear, even when the prompt ended inside a character. `drops_space`: a space
    at the very beginning is not text but what the tokenizer puts before one. `keeps_special`:
    control tokens appear as they are written.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, drops_space: bool = False, keeps_special: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._drops_space = drops_space
        self._keeps_special = keeps_special
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        # Between two characters, where a token with whole ones of its own needs no decoder.
        self._is_between = not drops_space

    def feed(self, token_id: int) -> str:
        """Text that this token completes; an unfinished character is held back."""
        if self._is_between:
            text = self._tokenizer.whole_text(token_id)
            if text is not None:
                return text
        text = self._decode(token_id)
        self._is_between = not self._drops_space and not self._decoder.getstate()[0]
        return text

    def _decode(self, token_id: int) -> str:
        if not self._keeps_special and self._tokenizer.is_special(token_id):
            return ""
        raw = self._tokenizer.token_bytes(token_id)
        if self._drops_space and raw:
            raw, self._drops_space = raw.removeprefix(b" "), False
        return self._decoder.decode(raw)

    def flush(self) -> str:
        """The end: an unfinished character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)
