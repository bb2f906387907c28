"""A generator as /v1/responses sees it: its errors speak of `input`, and a conversation that does
not fit the model is shortened where the request allows it."""

from collections.abc import AsyncIterator
from dataclasses import replace

from gateway.conversation import Conversation, max_dropped
from gateway.errors import ContextLengthExceeded, InvalidRequest
from gateway.generation import (
    Capabilities,
    GenerationEvent,
    GenerationRequest,
    Generator,
    PreparedGeneration,
)

# Of the context, kept free for an answer whose length the request leaves open: else a conversation
# that just fits would be answered with a word.
ANSWER_SHARE = 8


class FittedGenerator:
    """Implements gateway.generation.Generator for requests whose only prompt is `conversation`.

    With `truncates` its oldest items are left out until the rest and the answer fit: as few as
    possible, found by halving, so that a prompt is made some log2(number of items) times.
    """

    def __init__(
        self, generator: Generator, conversation: Conversation, *, truncates: bool
    ) -> None:
        self._generator = generator
        self._conversation = conversation
        self._truncates = truncates

    @property
    def capabilities(self) -> Capabilities:
        return self._generator.capabilities

    async def prepare(self, request: GenerationRequest) -> PreparedGeneration:
        """As Generator.prepare(). Raises: ContextLengthExceeded when nothing more may go."""
        try:
            fit = self._fit if self._truncates else self._generator.prepare
            prepared = await fit(request)
        except InvalidRequest as error:
            speak_of_input(error)
            raise
        return replace(prepared, ignored=tuple(map(_as_named_here, prepared.ignored)))

    def generate(self, prepared: PreparedGeneration) -> AsyncIterator[GenerationEvent]:
        return self._generator.generate(prepared)

    async def _fit(self, request: GenerationRequest) -> PreparedGeneration:
        fitting = await self._try(request, 0)
        if fitting is not None:
            return fitting
        low, high = 0, max_dropped(self._conversation.items)
        fitting = await self._try(request, high)
        if fitting is None:  # what must stay may leave less room than is wished for
            return await self._generator.prepare(await self._without(request, high))
        while high - low > 1:
            middle = (low + high) // 2
            shorter = await self._try(request, middle)
            if shorter is None:
                low = middle
            else:
                high, fitting = middle, shorter
        return fitting

    async def _try(self, request: GenerationRequest, num_dropped: int) -> PreparedGeneration | None:
        """None where prompt and answer do not fit."""
        limit = self.capabilities.max_model_len
        shorter = await self._without(request, num_dropped)
        if request.max_tokens is None and limit is not None:
            room = max(limit // ANSWER_SHARE, request.sampling.min_tokens, 1)
            shorter = replace(shorter, max_tokens=room)
        try:
            prepared = await self._generator.prepare(shorter)
        except ContextLengthExceeded:
            return None
        if request.max_tokens is not None or limit is None:
            return prepared
        left = tuple(limit - len(ids) for ids in prepared.prompt_token_ids)
        return replace(prepared, request=replace(shorter, max_tokens=None), max_tokens=left)

    async def _without(self, request: GenerationRequest, num_dropped: int) -> GenerationRequest:
        return replace(request, prompts=(await self._conversation.prompt_aside(num_dropped),))


def speak_of_input(error: InvalidRequest) -> None:
    """Changes the error into the words of this endpoint."""
    if error.param == "messages":
        error.param, error.message = "input", error.message.replace("messages", "input")


def _as_named_here(name: str) -> str:
    return "reasoning.effort" if name == "reasoning_effort" else name
