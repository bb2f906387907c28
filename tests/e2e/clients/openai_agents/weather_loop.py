"""A question about the weather with two tools to choose from, through the agent's own loop.

Run by tests/models/test_tool_loop.py with a model that calls tools; prints a JSON line an API.
"""

import asyncio
import json

import openai
from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from features import API_KEY, BASE_URL, MODEL

# A model of 1.5 billion parameters that was told less calls the tool again and again.
INSTRUCTIONS = (
    "You are a helpful weather assistant. "
    "Call a tool once, then tell the user its result in a sentence."
)
QUESTION = "What's the weather in Tokyo?"
calls: list[list[str]] = []

# Traces would go to OpenAI.
set_tracing_disabled(True)


@function_tool
def get_weather(city: str) -> str:
    """The current weather in a city."""
    calls.append(["get_weather", city])
    return "18 degrees and rain"


@function_tool
def get_time(city: str) -> str:
    """The current local time in a city."""
    calls.append(["get_time", city])
    return "14:05"


async def ask(api: str, model: Model) -> None:
    calls.clear()
    agent = Agent(
        name="weather",
        instructions=INSTRUCTIONS,
        model=model,
        tools=[get_weather, get_time],
        model_settings=ModelSettings(temperature=0, max_tokens=100),
    )
    result = Runner.run_streamed(agent, QUESTION, max_turns=5)
    async for _ in result.stream_events():
        pass
    print(json.dumps({"api": api, "calls": calls, "answer": result.final_output}))


async def main() -> None:
    client = openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)
    await ask("responses", OpenAIResponsesModel(model=MODEL, openai_client=client))
    await ask("chat", OpenAIChatCompletionsModel(model=MODEL, openai_client=client))


if __name__ == "__main__":
    asyncio.run(main())
