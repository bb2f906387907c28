"""Text to token ids, and the exact bytes of each token. Knows no template and no request.

Special tokens written out in the text become control tokens: templates rely on it, and a client
that owns the messages owns the roles too, so this is no boundary between clients.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import tokenizers

from gateway.errors import InvalidRequest
from runtime.errors import ModelError
from runtime.text_assets import TextAssets

SPACE_MARK = "\u2581"
_BYTE_PIECE = re.compile("<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """The tokenizer of one model, made from its tokenizer.json. Thread-safe."""

    def __init__(self, assets: TextAssets) -> None:
        """Raises: ModelError when the tokenizer is damaged or of a kind without exact bytes."""
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(assets.tokenizer_json)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises plain Exception, or panics
            raise ModelError(f"the model's tokenizer cannot be read: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # It adds no token that is asked for here, and would cut spaces off the tokens' places.
        self._tokenizer.post_processor = None
        self._add_bos = assets.add_bos
        self.vocab_size = assets.vocab_size
        self.bos_token_id = assets.bos_token_id
        self.eos_token_ids = assets.eos_token_ids
        # Asked for each request with tools; the library would make it anew each time.
        added = self._tokenizer.get_added_tokens_decoder()
        self._added_ids = frozenset(added)
        self._special_ids = frozenset(one for one, token in added.items() if token.special)
        self._bytes = self._read_token_bytes()
        self._whole_texts: dict[int, str | None] = {}
        self._max_token_bytes = self._read_max_token_bytes()
        self._puts_space = self._read_puts_space()

    def encode(self, text: str, *, add_special: bool, param: str = "prompt") -> list[int]:
        """Token ids of a text; `add_special` puts the model's first token before it.

        Raises: InvalidRequest naming `param` when the text is not Unicode (a lone surrogate).
        """
        check_unicode(text, param=param)
        token_ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [*self._first_ids(token_ids, add_special=add_special), *token_ids]

    def encode_with_offsets(
        self, text: str, *, add_special: bool, param: str = "prompt"
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of encode(), and for each the characters of the text that it stands for. Those of
        a character that is several tokens are the same for all of them.

        Raises: InvalidRequest as encode() does.
        """
        check_unicode(text, param=param)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        first = self._first_ids(encoding.ids, add_special=add_special)
        return [*first, *encoding.ids], [*[(0, 0)] * len(first), *encoding.offsets]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, control tokens as they are written. What is no whole character
        becomes U+FFFD; ids that the tokenizer does not know are nothing."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=False)
        return text

    def piece(self, token_id: int) -> str:
        """The vocabulary's own spelling of a token; nothing for an id it does not know."""
        piece: str | None = self._tokenizer.id_to_token(token_id)
        return piece or ""

    def min_num_tokens(self, text: str) -> int:
        """Tokens that the text has at the least, told from its length alone; 0 where this
        tokenizer might drop or join any amount of text."""
        if self._max_token_bytes is None:
            return 0
        return -(-len(text) // self._max_token_bytes)

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a control token, which has no text in an answer."""
        return token_id in self._special_ids

    def added_token_id(self, text: str) -> int | None:
        """The token that this text always becomes, whatever stands around it; None where it is
        read piece by piece."""
        token_id: int | None = self._tokenizer.token_to_id(text)
        return token_id if token_id in self._added_ids else None

    def puts_space_after(self, token_id: int) -> bool:
        """Whether a text that follows this token is encoded with a space put before it, which
        therefore is no part of a text decoded from there."""
        return self._puts_space and self.is_special(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; those of its written form for a control token, none for
        an id that the model's output has room for and the tokenizer does not know."""
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def whole_text(self, token_id: int) -> str | None:
        """What a token says wherever it stands; None for a control token, and for bytes that are no
        whole characters by themselves."""
        try:
            return self._whole_texts[token_id]
        except KeyError:
            return self._whole_texts.setdefault(token_id, self._read_whole_text(token_id))

    def _first_ids(self, token_ids: Sequence[int], *, add_special: bool) -> list[int]:
        """The model's first token, where it is wanted and not there yet."""
        if not add_special or not self._add_bos or self.bos_token_id is None:
            return []
        return [] if token_ids[:1] == [self.bos_token_id] else [self.bos_token_id]

    def _read_whole_text(self, token_id: int) -> str | None:
        if self.is_special(token_id):
            return None
        try:
            return self.token_bytes(token_id).decode()
        except UnicodeDecodeError:
            return None

    def _read_puts_space(self) -> bool:
        """SentencePiece models differ in this, and files say it in several ways: it is tried."""
        for special_id in sorted(self._special_ids):
            text = self._tokenizer.id_to_token(special_id)
            first, *others = self._tokenizer.encode(f"{text}a", add_special_tokens=False).ids
            if first == special_id:
                return b"".join(map(self.token_bytes, others)) == b" a"
        return False

    def _read_max_token_bytes(self) -> int | None:
        added = self._tokenizer.get_added_tokens_decoder().values()
        keeps_all = _is_byte_level(self._tokenizer) and self._tokenizer.normalizer is None
        if not keeps_all or any(token.lstrip or token.rstrip for token in added):
            return None
        return max(map(len, self._bytes), default=0) or None

    def _read_token_bytes(self) -> list[bytes]:
        is_byte_level = _is_byte_level(self._tokenizer)
        to_bytes = _byte_level_bytes if is_byte_level else _sentencepiece_bytes
        added = self._tokenizer.get_added_tokens_decoder()
        vocab = self._tokenizer.get_vocab(with_added_tokens=True)
        table = [b""] * (max(vocab.values(), default=-1) + 1)
        for piece, token_id in vocab.items():
            table[token_id] = piece.encode() if token_id in added else to_bytes(piece)
        return table


def check_unicode(text: str, *, param: str) -> None:
    """Raises: InvalidRequest for a text with a lone surrogate, which no encoding can carry."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"'{param}' is not valid Unicode: it has a lone surrogate"
            f" (U+{ord(text[error.start]):04X}).",
            param=param,
        ) from None


def _is_byte_level(tokenizer: tokenizers.Tokenizer) -> bool:
    """Decides by the decoder, as the library does when it turns tokens into text.

    Raises: ModelError for kinds whose tokens have no exact bytes (WordPiece and the like).
    """
    # The library's own reading of it: the whole file is parsed once, which takes 0.6 s for 262,144
    # tokens.
    state = tokenizer.decoder.__getstate__() if tokenizer.decoder is not None else b"{}"
    decoder: dict[str, Any] = json.loads(state)
    kinds = [decoder, *decoder.get("decoders", [])]
    names = {kind.get("type") for kind in kinds}
    if "ByteLevel" in names:
        return True
    if names & {"Metaspace", "ByteFallback", "Replace"}:
        return False
    raise ModelError(
        f"the model's tokenizer has a decoder of kind {decoder.get('type')!r};"
        " byte-level and SentencePiece tokenizers are supported"
    )


def _byte_letters() -> dict[str, int]:
    """GPT-2's map between bytes and printable letters: printable Latin-1 stands for itself, the
    68 other bytes for U+0100 and up, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + index): byte for index, byte in enumerate(others)
    }


# As a table for str.translate: each letter to the Latin-1 character of its byte.
_LETTER_TO_LATIN_1 = {ord(letter): byte for letter, byte in _byte_letters().items()}


def _byte_level_bytes(piece: str) -> bytes:
    latin = piece.translate(_LETTER_TO_LATIN_1)
    # A piece with letters outside the map cannot come from the model's merges; it is literal.
    return latin.encode("latin-1") if max(latin, default="") < "\u0100" else piece.encode()


def _sentencepiece_bytes(piece: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(piece)
    if byte is not None:
        return bytes([int(byte[1], 16)])
    return piece.replace(SPACE_MARK, " ").encode()
