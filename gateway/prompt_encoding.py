"""From prompts to token ids: rendered, tokenized, cut where the request allows it. Long ones are
made in a worker. Owned by Preparation; the tokenize and render routes use it through it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.chat_template import ChatTemplate
from gateway.errors import ContextLengthExceeded, InvalidRequest
from gateway.fill_in_middle import find_fim_tokens
from gateway.generation import ChatPrompt, Prompt, TextPrompt, TokenizedPrompt
from gateway.prompt_positions import PromptMap, map_prompt
from gateway.tokenizer import Tokenizer

# Above this many characters a request's prompts are made in a worker: about 10 ms of the loop.
MAX_INLINE_CHARS = 50_000
# As much work when tokens are turned back into text.
MAX_INLINE_TOKENS = 100_000
# Of a prompt that need not fit the model: a second of a worker's time.
MAX_COUNTED_CHARS = 1_000_000
NUM_WORKERS = 2
# What a prompt, or an object in it, costs beside its text, so that many empty ones count too.
OVERHEAD_CHARS = 100


@dataclass(frozen=True, slots=True)
class PromptLimits:
    """`max_model_len` bounds the tokens. Of a longer prompt its last `keep` tokens are taken where
    the request says so; None = it is refused."""

    max_model_len: int
    keep: int | None = None


class PromptEncoder:
    """Owns the workers for long prompts."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._fim = find_fim_tokens(tokenizer)
        self._workers = ThreadPoolExecutor(NUM_WORKERS, thread_name_prefix="tokenize")

    def close(self) -> None:
        """Ends the workers; a prompt in work is finished, waiting ones are dropped."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    @property
    def fim_end_ids(self) -> tuple[int, ...]:
        """Tokens that end what is filled into a middle."""
        return () if self._fim is None else self._fim.ends

    async def encode(
        self, prompts: Sequence[Prompt], limits: PromptLimits
    ) -> list[tuple[int, ...]]:
        """Token ids of each prompt.

        Raises: InvalidRequest; ContextLengthExceeded for a text that cannot fit.
        """
        sizes = (num_chars(prompt, enough=MAX_INLINE_CHARS) for prompt in prompts)
        is_long = sum(sizes) > MAX_INLINE_CHARS
        return [await self._token_ids(prompt, limits, is_long=is_long) for prompt in prompts]

    def render(self, prompt: ChatPrompt) -> str:
        """The text that a conversation is to the model.

        Raises: InvalidRequest.
        """
        return self._render(prompt.messages, prompt, is_prefix=False)

    async def tokenize(
        self, prompt: Prompt, limits: PromptLimits, *, with_pieces: bool
    ) -> TokenizedPrompt:
        """A prompt of text as it is, also one that is too long for the model.

        Raises: InvalidRequest.
        """
        size = num_chars(prompt, enough=MAX_COUNTED_CHARS + OVERHEAD_CHARS)
        if size > MAX_COUNTED_CHARS + OVERHEAD_CHARS:
            param = "messages" if isinstance(prompt, ChatPrompt) else "prompt"
            raise InvalidRequest(
                f"Invalid value for '{param}': the tokens of more than {MAX_COUNTED_CHARS}"
                " characters are not counted.",
                code="string_above_max_length",
                param=param,
            )
        tokenize = partial(self._tokenize, prompt, limits, with_pieces=with_pieces)
        if size <= MAX_INLINE_CHARS:
            return tokenize()
        return await asyncio.get_running_loop().run_in_executor(self._workers, tokenize)

    async def locate(self, prompt: ChatPrompt, token_ids: Sequence[int]) -> PromptMap:
        """Where the messages are in the tokens that encode() made of the prompt. It takes about
        twice as long as that.

        Raises: InvalidRequest.
        """
        locate = partial(self._locate, prompt, token_ids)
        if num_chars(prompt, enough=MAX_INLINE_CHARS // 2) <= MAX_INLINE_CHARS // 2:
            return locate()
        return await asyncio.get_running_loop().run_in_executor(self._workers, locate)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """Raises: InvalidRequest naming an id that the model does not have."""
        detokenize = partial(self._detokenize, token_ids)
        if len(token_ids) <= MAX_INLINE_TOKENS:
            return detokenize()
        return await asyncio.get_running_loop().run_in_executor(self._workers, detokenize)

    def _tokenize(
        self, prompt: Prompt, limits: PromptLimits, *, with_pieces: bool
    ) -> TokenizedPrompt:
        if isinstance(prompt, ChatPrompt):
            text, param = self.render(prompt), "messages"
        else:
            text, param = prompt.text or "", "prompt"
        token_ids = self._tokenizer.encode(text, add_special=prompt.adds_special, param=param)
        pieces = tuple(map(self._tokenizer.piece, token_ids)) if with_pieces else None
        return TokenizedPrompt(text, tuple(token_ids), limits.max_model_len, pieces)

    def _render(
        self, messages: Sequence[dict[str, Any]], prompt: ChatPrompt, *, is_prefix: bool
    ) -> str:
        """Messages with the tools and options of the prompt; `is_prefix` as Renderer has it."""
        if self._template is None:
            raise InvalidRequest(
                "This model has no chat template: use /v1/completions.", param="messages"
            )
        return self._template.render(
            messages,
            tools=prompt.tools,
            options=prompt.options,
            adds_generation_prompt=prompt.adds_generation_prompt and not is_prefix,
            continues_last=prompt.continues_last and not is_prefix,
        )

    def _locate(self, prompt: ChatPrompt, token_ids: Sequence[int]) -> PromptMap:
        def render(messages: Sequence[dict[str, Any]], *, is_prefix: bool) -> str:
            return self._render(messages, prompt, is_prefix=is_prefix)

        return map_prompt(
            self._tokenizer,
            self.render(prompt),
            token_ids,
            prompt.messages,
            render=render,
            adds_special=prompt.adds_special,
        )

    def _detokenize(self, token_ids: Sequence[int]) -> str:
        check_ids(token_ids, vocab_size=self._tokenizer.vocab_size, param="tokens")
        return self._tokenizer.decode(token_ids)

    async def _token_ids(
        self, prompt: Prompt, limits: PromptLimits, *, is_long: bool
    ) -> tuple[int, ...]:
        if isinstance(prompt, TextPrompt) and prompt.token_ids is not None:
            return _cut(self._given_ids(prompt.token_ids, limits), limits)
        if not is_long:
            return _cut(self._encode(prompt, limits), limits)
        loop = asyncio.get_running_loop()
        return _cut(await loop.run_in_executor(self._workers, self._encode, prompt, limits), limits)

    def _given_ids(self, token_ids: tuple[int, ...], limits: PromptLimits) -> tuple[int, ...]:
        if not token_ids:
            raise InvalidRequest(
                "'prompt' must have at least one token.", code="empty_array", param="prompt"
            )
        if len(token_ids) < limits.max_model_len or limits.keep is not None:
            # Millions of them are refused for their number alone.
            check_ids(token_ids, vocab_size=self._tokenizer.vocab_size, param="prompt")
        return token_ids

    def _encode(self, prompt: Prompt, limits: PromptLimits) -> tuple[int, ...]:
        if isinstance(prompt, ChatPrompt):
            text = self.render(prompt)
            self._check_text_len(text, limits, param="messages")
            return tuple(
                self._tokenizer.encode(text, add_special=prompt.adds_special, param="messages")
            )
        text = prompt.text or ""
        self._check_text_len(text + (prompt.suffix or ""), limits, param="prompt")
        if prompt.suffix is not None:
            return self._fill_in(text, prompt.suffix)
        token_ids = self._tokenizer.encode(text, add_special=prompt.adds_special, param="prompt")
        return tuple(token_ids) or (self._document_start(),)

    def _fill_in(self, prefix: str, suffix: str) -> tuple[int, ...]:
        if self._fim is None:
            raise InvalidRequest(
                "Unsupported parameter: 'suffix'. This model cannot fill in the middle.",
                code="unsupported_parameter",
                param="suffix",
            )
        before = self._tokenizer.encode(prefix, add_special=False, param="prompt")
        after = self._tokenizer.encode(suffix, add_special=False, param="suffix")
        return self._fim.prompt(before, after)

    def _check_text_len(self, text: str, limits: PromptLimits, *, param: str) -> None:
        """Megabytes that cannot fit are not worth the seconds of tokenizing them."""
        num_tokens = self._tokenizer.min_num_tokens(text)
        if limits.keep is None and num_tokens >= limits.max_model_len:
            raise ContextLengthExceeded(
                f"This model's maximum context length is {limits.max_model_len} tokens. However,"
                f" there are {len(text)} characters in the {param}, which are {num_tokens} tokens"
                f" at the least. Please reduce the length of the {param}.",
                param=param,
            )

    def _document_start(self) -> int:
        """What an empty prompt is to the model: the token that documents begin with."""
        if self._tokenizer.bos_token_id is not None:
            return self._tokenizer.bos_token_id
        if self._tokenizer.eos_token_ids:
            return self._tokenizer.eos_token_ids[0]
        raise InvalidRequest("This model cannot continue an empty prompt.", param="prompt")


def check_ids(token_ids: Sequence[int], *, vocab_size: int, param: str) -> None:
    """Raises: InvalidRequest naming an id that the model does not have."""
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                f"Invalid token id in '{param}': {token_id}; this model has the ids 0 to"
                f" {vocab_size - 1}.",
                param=param,
            )


def _cut(token_ids: tuple[int, ...], limits: PromptLimits) -> tuple[int, ...]:
    return token_ids if limits.keep is None else token_ids[-limits.keep :]


def num_chars(prompt: Prompt, *, enough: int) -> int:
    """About how much text a prompt has, and so how long it takes to tokenize. Not counted further
    than `enough`, as that would take long itself."""
    if isinstance(prompt, TextPrompt):
        return OVERHEAD_CHARS + len(prompt.text or "") + len(prompt.suffix or "")
    total = 0
    waiting: list[Any] = [*prompt.tools, *prompt.messages]
    while waiting and total <= enough:
        value = waiting.pop()
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, dict):
            total += OVERHEAD_CHARS
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return total
