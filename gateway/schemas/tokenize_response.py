"""Answers of /tokenize, /detokenize and of the routes that render a chat."""

import msgspec


class Tokenized(msgspec.Struct, frozen=True):
    """vLLM's; llama.cpp's clients read `tokens` only."""

    count: int
    max_model_len: int
    tokens: tuple[int, ...]
    token_strs: tuple[str, ...] | None = None


class Detokenized(msgspec.Struct, frozen=True):
    """One text under vLLM's name and under llama.cpp's."""

    prompt: str
    content: str


class Rendered(msgspec.Struct, frozen=True):
    """What a chat is to the model: llama.cpp's key, and the tokens beside it."""

    prompt: str
    prompt_token_ids: tuple[int, ...]
