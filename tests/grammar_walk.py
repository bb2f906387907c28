"""Helpers of the grammar tests: text in and out of token ids, and random walks through masks."""

import json
import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from grammar.matcher import Matcher, Vocabulary, mask_words
from grammar.spec import ConstraintKind, ConstraintSpec, EngineName
from grammar.special_texts import without_special_texts
from grammar.token_bytes import token_bytes

CLOSING = b'"]}0123456789'


def compact(value: object) -> str:
    """JSON as the masks want it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def json_schema(schema: object, engine: EngineName = "llguidance") -> ConstraintSpec:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return ConstraintSpec("json_schema", text, engine)


def constraint(kind: ConstraintKind, value: str, engine: EngineName) -> ConstraintSpec:
    return ConstraintSpec(kind, value, engine)


class Texts:
    """Text to token ids and back for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._tokenizer = Tokenizer.from_str(without_special_texts(vocabulary.tokenizer_json))
        self._bytes = token_bytes(vocabulary.tokenizer_json, vocabulary.vocab_size)
        self._closing = {
            index for index, raw in enumerate(self._bytes) if len(raw) == 1 and raw in CLOSING
        }

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(self._bytes[token_id] for token_id in token_ids).decode()

    def bytes_of(self, token_id: int) -> bytes:
        return self._bytes[token_id]

    def row(self, matcher: Matcher) -> npt.NDArray[np.int32]:
        row = np.full(mask_words(self.vocabulary.vocab_size), -1, dtype=np.int32)
        matcher.fill(row)
        return row

    def allowed(self, matcher: Matcher) -> set[int]:
        """Ids of the tokens that the mask allows, bits beyond the logits included."""
        bits = np.unpackbits(self.row(matcher).view(np.uint8), bitorder="little")
        return set(np.flatnonzero(bits).tolist())

    def accepts(self, matcher: Matcher, text: str) -> bool:
        """Whether the text is a complete output; the matcher stays as it is."""
        fork = matcher.fork()
        token_ids = self.encode(text)
        return fork.accept(token_ids) == len(token_ids) and fork.is_accepting()

    def forced(self, matcher: Matcher) -> str | None:
        """The whole output, if each of its tokens is the only way on; None if it is free."""
        fork = matcher.fork()
        text: list[int] = []
        while not fork.is_terminated():
            token_ids = fork.forced_tokens()
            if not token_ids:
                return None
            assert fork.accept(token_ids) == len(token_ids)
            text += token_ids
        return self.decode(text)

    def walk(self, matcher: Matcher, rng: random.Random, *, max_tokens: int = 160) -> list[int]:
        """Random allowed tokens until the end, ever keener to end; [] if the way was too long."""
        fork = matcher.fork()
        output: list[int] = []
        while len(output) < max_tokens:
            allowed = self.allowed(fork)
            text = sorted(allowed.difference(self.vocabulary.eos_token_ids))
            if len(text) < len(allowed) and (not text or rng.random() < 0.3):
                return output
            closing = [token_id for token_id in text if token_id in self._closing]
            is_closing = closing and rng.random() < len(output) / max_tokens + 0.3
            token_id = rng.choice(closing if is_closing else text)
            assert fork.accept([token_id]) == 1, "a token that the mask allows is accepted"
            output.append(token_id)
        return []
