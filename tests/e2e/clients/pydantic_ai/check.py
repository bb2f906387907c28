"""pydantic-ai: agents over chat completions and over the Responses API.

It validates every answer once more, its finish reason, ids and times among them.
"""

from collections.abc import Callable
from typing import Any, Literal

from features import API_KEY, BASE_URL, MAX_TOKENS, MODEL, Checks, equal, present, raised
from person import PERSON_QUESTION, Person
from pydantic_ai import Agent, ModelSettings, NativeOutput, RunContext, ToolOutput
from pydantic_ai.exceptions import (
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelNotFoundError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import (
    OpenAIChatModel,
    OpenAIChatModelSettings,
    OpenAIResponsesModel,
)
from pydantic_ai.providers.openai import OpenAIProvider
from weather import QUESTION, RESULT, TIME_CALL, WEATHER_CALL, repeat

checks = Checks("pydantic-ai-slim", "openai")

SETTINGS = ModelSettings(temperature=0, seed=7, max_tokens=MAX_TOKENS)


def chat_model(name: str = MODEL, api_key: str = API_KEY) -> OpenAIChatModel:
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=BASE_URL, api_key=api_key))


def responses_model() -> OpenAIResponsesModel:
    return OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key=API_KEY))


def forced(context: RunContext[Any]) -> ModelSettings:
    """A call in the first step and text in the second."""
    choice = "required" if context.run_step == 1 else "none"
    return ModelSettings(
        temperature=0, max_tokens=60, tool_choice=choice, parallel_tool_calls=False
    )


def weather_agent(
    model: Any, *, calls: list[tuple[str, int]], settings: Any = forced
) -> Agent[None, str]:
    agent = Agent(model, model_settings=settings)

    @agent.tool_plain
    def get_weather(city: Literal["Paris", "Tokyo"], days: Literal[1, 2, 3]) -> str:
        """The weather of a city in some days."""
        calls.append((city, days))
        return RESULT

    return agent


def parts_of(result: Any, kind: type) -> list[Any]:
    return [
        part for message in result.all_messages() for part in message.parts if type(part) is kind
    ]


@checks.feature("chat")
def chat() -> None:
    result = Agent(chat_model(), model_settings=SETTINGS).run_sync("hi")
    assert result.output
    equal(result.response.finish_reason, "stop")
    equal(result.response.model_name, MODEL)
    assert present(result.response.provider_response_id).startswith("chatcmpl-")
    assert result.usage.input_tokens > 0
    assert result.usage.output_tokens > 0
    follow_up = Agent(chat_model(), model_settings=SETTINGS).run_sync(
        "And then?", message_history=result.all_messages()
    )
    assert follow_up.usage.input_tokens > result.usage.input_tokens + result.usage.output_tokens


@checks.feature("stream")
async def stream() -> None:
    agent = Agent(chat_model(), model_settings=SETTINGS)
    whole = await agent.run("hi")
    async with agent.run_stream("hi") as result:
        parts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
    equal("".join(parts), whole.output)
    assert len(parts) > 2
    equal(result.usage.output_tokens, whole.usage.output_tokens)


@checks.feature("logprobs")
def logprobs() -> None:
    settings = OpenAIChatModelSettings(
        temperature=0, max_tokens=5, openai_logprobs=True, openai_top_logprobs=2
    )
    result = Agent(chat_model(), model_settings=settings).run_sync("hi")
    entries = present(result.response.provider_details)["logprobs"]
    equal("".join(entry["token"] for entry in entries), result.output)
    equal({len(entry["top_logprobs"]) for entry in entries}, {2})


@checks.feature("structured output")
def structured() -> None:
    settings = {**SETTINGS, "max_tokens": 60}
    native: Any = Agent(chat_model(), output_type=NativeOutput(Person), model_settings=settings)
    assert isinstance(native.run_sync(PERSON_QUESTION).output, Person)
    by_tool: Any = Agent(chat_model(), output_type=ToolOutput(Person), model_settings=settings)
    result = by_tool.run_sync(PERSON_QUESTION)
    assert isinstance(result.output, Person)
    equal([call.tool_name for call in parts_of(result, ToolCallPart)], ["final_result"])


@checks.feature("partial output")
async def partial() -> None:
    settings = {**SETTINGS, "max_tokens": 60}
    agent: Any = Agent(chat_model(), output_type=NativeOutput(Person), model_settings=settings)
    whole = await agent.run(PERSON_QUESTION)
    async with agent.run_stream(PERSON_QUESTION) as result:
        seen = [value async for value in result.stream_output(debounce_by=None)]
    equal(seen[-1], whole.output)


@checks.feature("tools")
def tools() -> None:
    check_tool_loop(chat_model())


def check_tool_loop(model: Any) -> None:
    """A call, its result, and an answer in text."""
    calls: list[tuple[str, int]] = []
    result = weather_agent(model, calls=calls).run_sync(QUESTION)
    equal(len(calls), 1)
    (call,) = parts_of(result, ToolCallPart)
    equal(tuple(call.args_as_dict().values()), calls[0])
    (answer,) = parts_of(result, ToolReturnPart)
    equal((answer.tool_call_id, answer.content), (call.tool_call_id, RESULT))
    assert result.output
    equal(result.usage.requests, 2)


@checks.feature("parallel tools")
def parallel() -> None:
    """The model may choose; both calls are of one answer."""
    calls: list[tuple[str, int]] = []
    agent = weather_agent(chat_model(), calls=calls, settings={**SETTINGS, "max_tokens": 120})
    agent.tool_plain(get_time)
    result = agent.run_sync(repeat(WEATHER_CALL, TIME_CALL))
    made = [
        {"name": c.tool_name, "arguments": c.args_as_dict()} for c in parts_of(result, ToolCallPart)
    ]
    equal(made, [WEATHER_CALL, TIME_CALL])
    equal(
        sorted(part.content for part in parts_of(result, ToolReturnPart)), [RESULT, "noon in Paris"]
    )
    equal((result.usage.requests, calls), (2, [("Tokyo", 2)]))


def get_time(city: Literal["Paris", "Tokyo"]) -> str:
    """The local time of a city."""
    return f"noon in {city}"


@checks.feature("tool stream")
async def tool_stream() -> None:
    calls: list[tuple[str, int]] = []
    agent = weather_agent(chat_model(), calls=calls)
    async with agent.run_stream_events(QUESTION) as events:
        kinds = [event.event_kind async for event in events]
    assert "part_delta" in kinds
    equal(
        [kind for kind in kinds if kind.startswith("function_tool")],
        ["function_tool_call", "function_tool_result"],
    )
    equal(len(calls), 1)
    whole: list[tuple[str, int]] = []
    await weather_agent(chat_model(), calls=whole).run(QUESTION)
    equal(calls, whole)


@checks.feature("responses")
def responses() -> None:
    result = Agent(
        responses_model(), model_settings={"temperature": 0, "max_tokens": MAX_TOKENS}
    ).run_sync("hi")
    equal(result.output, Agent(chat_model(), model_settings=SETTINGS).run_sync("hi").output)
    equal(result.response.finish_reason, "stop")
    assert present(result.response.provider_response_id).startswith("resp_")


@checks.feature("responses stream")
async def responses_stream() -> None:
    agent = Agent(responses_model(), model_settings={"temperature": 0, "max_tokens": MAX_TOKENS})
    whole = await agent.run("hi")
    async with agent.run_stream("hi") as result:
        parts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
    equal("".join(parts), whole.output)


@checks.feature("responses tools")
def responses_tools() -> None:
    check_tool_loop(responses_model())


@checks.feature("errors")
def errors() -> None:
    def run(model: Any, prompt: str = "hi") -> Callable[[], object]:
        return lambda: Agent(model, model_settings=SETTINGS).run_sync(prompt)

    unknown = raised(ModelNotFoundError, run(chat_model("nope")))
    equal((unknown.status_code, unknown.body["code"]), (404, "model_not_found"))
    raised(ModelAuthenticationError, run(chat_model(api_key="sk-nobody")))
    raised(ModelContextWindowExceededError, run(chat_model(), "word " * 9000))
    cut: Any = Agent(
        chat_model(), output_type=NativeOutput(Person), model_settings={"max_tokens": 3}
    )
    raised(UnexpectedModelBehavior, lambda: cut.run_sync(PERSON_QUESTION))


if __name__ == "__main__":
    checks.run()
