"""openai-agents: the agent loop over Responses, streamed and not, and over chat completions."""

from typing import Any, Literal

import openai
from agents import (
    Agent,
    ModelBehaviorError,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from features import API_KEY, BASE_URL, MAX_TOKENS, MODEL, Checks, equal, raised
from person import PERSON_QUESTION, Person
from weather import QUESTION, RESULT, check_arguments

checks = Checks("openai-agents", "openai")

# Traces would go to OpenAI.
set_tracing_disabled(True)
STABLE = ModelSettings(temperature=0, max_tokens=MAX_TOKENS)
# The agent takes back what it required once a tool was called, so that the loop ends.
FORCED = ModelSettings(
    temperature=0, max_tokens=60, tool_choice="required", parallel_tool_calls=False
)


@function_tool
def get_weather(city: Literal["Paris", "Tokyo"], days: Literal[1, 2, 3]) -> str:
    """The weather of a city in some days."""
    return f"{RESULT} in {city}, in {days} days"


def client(api_key: str = API_KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=BASE_URL, api_key=api_key, max_retries=0)


def responses_agent(name: str = MODEL, **options: Any) -> Agent[None]:
    model = OpenAIResponsesModel(model=name, openai_client=client())
    return Agent(name="ours", model=model, **{"model_settings": STABLE, **options})


def chat_agent(**options: Any) -> Agent[None]:
    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client())
    return Agent(name="ours", model=model, **{"model_settings": STABLE, **options})


def check_loop(result: Any) -> list[Any]:
    """A call, its output and a message; returns the call's name and arguments."""
    kinds = [item.type for item in result.new_items]
    equal(kinds, ["tool_call_item", "tool_call_output_item", "message_output_item"])
    call, output, _ = result.new_items
    check_arguments(call.raw_item.name, call.raw_item.arguments)
    assert output.output.startswith(RESULT)
    assert result.final_output
    return [call.raw_item.name, call.raw_item.arguments]


@checks.feature("chat")
async def chat() -> None:
    result = await Runner.run(chat_agent(instructions="Be brief."), "hi")
    assert result.final_output
    usage = result.context_wrapper.usage
    equal(usage.total_tokens, usage.input_tokens + usage.output_tokens)
    follow_up = [*result.to_input_list(), {"role": "user", "content": "And then?"}]
    longer = await Runner.run(chat_agent(instructions="Be brief."), follow_up)
    assert longer.context_wrapper.usage.input_tokens > usage.total_tokens


@checks.feature("stream")
async def stream() -> None:
    whole = await Runner.run(chat_agent(), "hi")
    result = Runner.run_streamed(chat_agent(), "hi")
    parts = [e.data.delta async for e in result.stream_events() if is_text(e)]
    equal("".join(parts), whole.final_output)
    equal(result.final_output, whole.final_output)


def is_text(event: Any) -> bool:
    return event.type == "raw_response_event" and event.data.type == "response.output_text.delta"


@checks.feature("tools")
async def tools() -> None:
    agent = chat_agent(tools=[get_weather], model_settings=FORCED)
    whole = check_loop(await Runner.run(agent, QUESTION, max_turns=2))
    streamed = Runner.run_streamed(agent, QUESTION, max_turns=2)
    async for _ in streamed.stream_events():
        pass
    equal(check_loop(streamed), whole)


@checks.feature("structured output")
async def structured() -> None:
    settings = ModelSettings(temperature=0, max_tokens=60)
    for agent in (chat_agent, responses_agent):
        result = await Runner.run(
            agent(output_type=Person, model_settings=settings), PERSON_QUESTION
        )
        assert isinstance(result.final_output, Person)


@checks.feature("responses")
async def responses() -> None:
    result = await Runner.run(responses_agent(instructions="Be brief."), "hi")
    assert result.final_output
    assert (result.last_response_id or "").startswith("resp_")
    longer = await Runner.run(responses_agent(), "hi", previous_response_id=result.last_response_id)
    usage = result.context_wrapper.usage
    assert longer.context_wrapper.usage.input_tokens > usage.output_tokens


@checks.feature("responses stream")
async def responses_stream() -> None:
    whole = await Runner.run(responses_agent(), "hi")
    result = Runner.run_streamed(responses_agent(), "hi")
    parts = [e.data.delta async for e in result.stream_events() if is_text(e)]
    equal("".join(parts), whole.final_output)
    equal(result.final_output, whole.final_output)
    assert len(parts) > 2


@checks.feature("responses tools")
async def responses_tools() -> None:
    agent = responses_agent(tools=[get_weather], model_settings=FORCED)
    whole = check_loop(await Runner.run(agent, QUESTION, max_turns=2))
    streamed = Runner.run_streamed(agent, QUESTION, max_turns=2)
    names = [e.name async for e in streamed.stream_events() if e.type == "run_item_stream_event"]
    equal(names, ["tool_called", "tool_output", "message_output_created"])
    equal(check_loop(streamed), whole)


@checks.feature("errors")
def errors() -> None:
    unknown = raised(openai.NotFoundError, lambda: Runner.run_sync(responses_agent("nope"), "hi"))
    equal((unknown.code, unknown.param), ("model_not_found", "model"))
    overflow = raised(
        openai.BadRequestError, lambda: Runner.run_sync(responses_agent(), "word " * 9000)
    )
    equal((overflow.code, overflow.param), ("context_length_exceeded", "input"))
    cut = chat_agent(output_type=Person, model_settings=ModelSettings(max_tokens=3))
    raised(ModelBehaviorError, lambda: Runner.run_sync(cut, PERSON_QUESTION))


if __name__ == "__main__":
    checks.run()
