"""smolagents: its model class, and an agent that must call tools until it gives its answer."""

from typing import Any

import openai
from features import API_KEY, BASE_URL, MAX_TOKENS, MODEL, Checks, equal, present, raised
from person import PERSON_QUESTION, Person
from smolagents import OpenAIModel, tool
from smolagents.models import ChatMessage, MessageRole, agglomerate_stream_deltas
from weather import CITIES, QUESTION

checks = Checks("smolagents", "openai")

HI = [ChatMessage(role=MessageRole.USER, content="hi")]


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: Its name.
    """
    return f"rain in {city}"


get_weather.inputs["city"]["enum"] = list(CITIES)


def model(name: str = MODEL, **options: Any) -> OpenAIModel:
    settings = {"temperature": 0, "seed": 7, "max_tokens": MAX_TOKENS, **options}
    return OpenAIModel(
        name, api_base=BASE_URL, api_key=API_KEY, client_kwargs={"max_retries": 0}, **settings
    )


@checks.feature("chat")
def chat() -> None:
    answer = model().generate(HI)
    assert answer.content
    assert present(answer.token_usage).output_tokens > 0
    longer = model().generate([*HI, answer, *HI])
    assert longer.token_usage.input_tokens > answer.token_usage.input_tokens


@checks.feature("stream")
def stream() -> None:
    whole = model().generate(HI)
    total = agglomerate_stream_deltas(list(model().generate_stream(HI)))
    equal(total.content, whole.content)
    equal(total.token_usage, whole.token_usage)


@checks.feature("stop")
def stop() -> None:
    whole = model().generate(HI).content
    word = whole.split()[3]
    equal(model().generate(HI, stop_sequences=[word]).content, whole[: whole.index(word)])


@checks.feature("structured output")
def structured() -> None:
    schema = {"name": "person", "schema": Person.model_json_schema(), "strict": True}
    answer = model(max_tokens=60).generate(
        [ChatMessage(role=MessageRole.USER, content=PERSON_QUESTION)],
        response_format={"type": "json_schema", "json_schema": schema},
    )
    Person.model_validate_json(answer.content)


@checks.feature("tools")
def tools() -> None:
    asked = [ChatMessage(role=MessageRole.USER, content=QUESTION)]
    ours = model(max_tokens=60, parallel_tool_calls=False)
    answer = ours.generate(asked, tools_to_call_from=[get_weather])
    (call,) = present(answer.tool_calls)
    equal(call.function.name, "get_weather")
    given = ours.parse_tool_calls(answer).tool_calls[0].function.arguments
    equal(list(given), ["city"])
    assert get_weather(**given) in [f"rain in {city}" for city in CITIES]


@checks.feature("tool stream")
def tool_stream() -> None:
    asked = [ChatMessage(role=MessageRole.USER, content=QUESTION)]
    ours = model(max_tokens=60, parallel_tool_calls=False)
    whole = ours.generate(asked, tools_to_call_from=[get_weather])
    deltas = list(ours.generate_stream(asked, tools_to_call_from=[get_weather]))
    total = agglomerate_stream_deltas(deltas)
    found = [(call.function.name, call.function.arguments) for call in present(total.tool_calls)]
    wanted = [(call.function.name, call.function.arguments) for call in whole.tool_calls]
    equal(found, wanted)


@checks.feature("errors")
def errors() -> None:
    unknown = raised(openai.NotFoundError, lambda: model("nope").generate(HI))
    equal(unknown.code, "model_not_found")
    raised(openai.BadRequestError, lambda: model(temperature=3).generate(HI))


if __name__ == "__main__":
    checks.run()
