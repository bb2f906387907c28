"""A question about the weather with two tools to choose from, through the agent's own loop.

Run by tests/models/test_tool_loop.py with a model that calls tools; prints a JSON line an API.
"""

import json

from features import API_KEY, BASE_URL, MODEL
from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

# A model of 1.5 billion parameters that was told less calls the tool again and again.
INSTRUCTIONS = (
    "You are a helpful weather assistant. "
    "Call a tool once, then tell the user its result in a sentence."
)
QUESTION = "What's the weather in Tokyo?"
calls: list[list[str]] = []


def get_weather(city: str) -> str:
    """The current weather in a city."""
    calls.append(["get_weather", city])
    return "18 degrees and rain"


def get_time(city: str) -> str:
    """The current local time in a city."""
    calls.append(["get_time", city])
    return "14:05"


def ask(api: str, model: Model) -> None:
    calls.clear()
    agent = Agent(
        model,
        instructions=INSTRUCTIONS,
        tools=[get_weather, get_time],
        model_settings=ModelSettings(temperature=0, max_tokens=100),
    )
    answer = agent.run_sync(QUESTION).output
    print(json.dumps({"api": api, "calls": calls, "answer": answer}))


def main() -> None:
    provider = OpenAIProvider(base_url=BASE_URL, api_key=API_KEY)
    ask("responses", OpenAIResponsesModel(MODEL, provider=provider))
    ask("chat", OpenAIChatModel(MODEL, provider=provider))


if __name__ == "__main__":
    main()
