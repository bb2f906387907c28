"""The server under test, as the conformance checks see it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai


@dataclass(frozen=True, slots=True)
class Target:
    """`base_url` has no /v1."""

    base_url: str
    model: str
    api_key: str = "unused"
    headers: dict[str, str] = field(default_factory=dict)

    def openai(self, *, is_strict: bool = True) -> openai.AsyncOpenAI:
        """The official client; a strict one refuses answers that do not fit its types."""
        return openai.AsyncOpenAI(
            base_url=self.base_url + "/v1",
            api_key=self.api_key,
            max_retries=0,
            _strict_response_validation=is_strict,
        )

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx2.AsyncClient]:
        headers = {"authorization": f"Bearer {self.api_key}", **self.headers}
        async with httpx2.AsyncClient(
            base_url=self.base_url, headers=headers, timeout=30
        ) as client:
            yield client

    def chat(self, content: Any = "Say hello.", **parameters: Any) -> dict[str, Any]:
        """A chat body that gives the same short text each time."""
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            "max_tokens": 12,
            **parameters,
        }

    def completion(self, prompt: Any = "Once upon", **parameters: Any) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": prompt,
            "temperature": 0,
            "max_tokens": 12,
            **parameters,
        }
