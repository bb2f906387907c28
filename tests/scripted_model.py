"""A served model that says what a test wrote: deltas as they are, whatever was asked. Text, tokens
and prompts are those of the model that it stands around."""

from collections.abc import AsyncIterator, Callable, Sequence

from gateway.generation import (
    Admitted,
    Capabilities,
    ChatPrompt,
    ChoiceFinished,
    Completed,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    PreparedGeneration,
    Prompt,
    ServedCache,
    ServedModel,
    TextDelta,
    TokenizedPrompt,
    Usage,
)
from gateway.tools.calls import ToolFragment

Deltas = Sequence[TextDelta]


class ScriptedModel:
    """`answer(prompt)` gives the deltas and the reason of the end. `prompts` are all it was asked,
    `requests` their requests; tools and constraints are left out of what is prepared."""

    def __init__(
        self, model: ServedModel, answer: Callable[[ChatPrompt], tuple[Deltas, FinishReason]]
    ) -> None:
        self._model = model
        self._answer = answer
        self.prompts: list[ChatPrompt] = []
        self.requests: list[GenerationRequest] = []

    @property
    def capabilities(self) -> Capabilities:
        return self._model.capabilities

    @property
    def cache(self) -> ServedCache | None:
        return self._model.cache

    async def prepare(self, request: GenerationRequest) -> PreparedGeneration:
        return await self._model.prepare(request)

    async def generate(self, prepared: PreparedGeneration) -> AsyncIterator[GenerationEvent]:
        (prompt,) = prepared.request.prompts
        assert isinstance(prompt, ChatPrompt)
        self.prompts.append(prompt)
        self.requests.append(prepared.request)
        deltas, reason = self._answer(prompt)
        yield Admitted()
        for delta in deltas:
            yield delta
        yield ChoiceFinished(0, reason)
        yield Completed(Usage(prepared.num_prompt_tokens, len(deltas), cached_tokens=0))

    async def tokenize(self, prompt: Prompt, *, with_pieces: bool = False) -> TokenizedPrompt:
        return await self._model.tokenize(prompt, with_pieces=with_pieces)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        return await self._model.detokenize(token_ids)


def call_delta(index: int, name: str, *pieces: str) -> TextDelta:
    """A whole call, its arguments in pieces."""
    begin = ToolFragment(index, f"call_{index}", name)
    return TextDelta(0, "", tool_calls=(begin, *(ToolFragment(index, arguments=p) for p in pieces)))
