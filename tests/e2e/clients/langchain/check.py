"""langchain-openai: messages, chunks that are added up, tools, objects, Responses."""

import json
from functools import reduce
from operator import add
from typing import Any, Literal

import openai
from features import API_KEY, BASE_URL, MAX_TOKENS, MODEL, Checks, equal, present, raised
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from person import PERSON_QUESTION, Person
from weather import QUESTION, RESULT, TIME_CALL, WEATHER_CALL, check_arguments, repeat

checks = Checks("langchain-openai", "langchain-core", "openai")

HI = [HumanMessage("hi")]


@tool
def get_weather(city: Literal["Paris", "Tokyo"], days: Literal[1, 2, 3]) -> str:
    """The weather of a city in some days."""
    return f"{RESULT} in {city} in {days} days"


@tool
def get_time(city: Literal["Paris", "Tokyo"]) -> str:
    """The local time of a city."""
    return f"noon in {city}"


def chat_model(**options: Any) -> ChatOpenAI:
    settings = {"model": MODEL, "api_key": API_KEY, "temperature": 0, "seed": 7, **options}
    settings.setdefault("max_tokens", MAX_TOKENS)
    return ChatOpenAI(base_url=BASE_URL, max_retries=0, **settings)


def responses_model(**options: Any) -> ChatOpenAI:
    """Responses has no seed."""
    return chat_model(use_responses_api=True, seed=None, **options)


def check_usage(message: AIMessage) -> None:
    usage = present(message.usage_metadata)
    assert usage["input_tokens"] > 0
    assert usage["output_tokens"] > 0
    equal(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
    assert "cache_read" in usage["input_token_details"]


@checks.feature("chat")
def chat() -> None:
    answer = chat_model().invoke(HI)
    assert answer.text
    equal(answer.response_metadata["finish_reason"], "stop")
    equal(answer.response_metadata["model_name"], MODEL)
    assert answer.response_metadata["system_fingerprint"]
    check_usage(answer)
    longer = chat_model().invoke([*HI, answer, HumanMessage("And then?")])
    assert longer.usage_metadata["input_tokens"] > answer.usage_metadata["total_tokens"]


@checks.feature("stream")
def stream() -> None:
    whole = chat_model().invoke(HI)
    chunks = list(chat_model(stream_usage=True).stream(HI))
    total = reduce(add, chunks)
    equal(total.text, whole.text)
    assert len([chunk for chunk in chunks if chunk.text]) > 2
    # Chunks are added up, so usage that came more than once would be counted more than once.
    check_usage(total)
    equal(total.usage_metadata["total_tokens"], whole.usage_metadata["total_tokens"])
    equal(total.response_metadata["finish_reason"], "stop")


@checks.feature("async")
async def concurrent() -> None:
    first, second = await chat_model().abatch([HI, [HumanMessage("Say hello.")]])
    parts = [chunk.text async for chunk in chat_model().astream(HI)]
    equal("".join(parts), first.text)
    assert second.text


@checks.feature("logprobs")
def logprobs() -> None:
    answer = chat_model(logprobs=True, top_logprobs=2, max_tokens=5).invoke(HI)
    entries = answer.response_metadata["logprobs"]["content"]
    equal("".join(entry["token"] for entry in entries), answer.text)
    equal({len(entry["top_logprobs"]) for entry in entries}, {2})


@checks.feature("completions")
def completions() -> None:
    model = OpenAI(
        base_url=BASE_URL, api_key=API_KEY, model=MODEL, temperature=0, max_tokens=5, max_retries=0
    )
    whole = model.generate(["Once upon", "The capital of France"])
    equal(whole.llm_output["token_usage"]["completion_tokens"], 10)
    equal("".join(model.stream("Once upon")), whole.generations[0][0].text)


@checks.feature("structured output")
def structured() -> None:
    for method in ("json_schema", "function_calling"):
        model = chat_model(max_tokens=60).with_structured_output(
            Person, method=method, include_raw=True
        )
        answer = model.invoke(PERSON_QUESTION)
        equal((answer["parsing_error"], type(answer["parsed"])), (None, Person))
    loose = chat_model(max_tokens=60).with_structured_output(None, method="json_mode")
    assert isinstance(loose.invoke("Answer with one short JSON object: {}"), dict)


@checks.feature("partial output")
def partial() -> None:
    schema = Person.model_json_schema()
    model = chat_model(max_tokens=60).with_structured_output(schema, method="json_schema")
    seen = list(model.stream(PERSON_QUESTION))
    equal(seen[-1], model.invoke(PERSON_QUESTION))
    assert len(seen) > 1
    Person.model_validate(seen[-1])


@checks.feature("tools")
def tools() -> None:
    check_tool_loop(chat_model(max_tokens=60))


def check_tool_loop(model: ChatOpenAI) -> None:
    """A call, its result, and an answer in text."""
    asked = [HumanMessage(QUESTION)]
    forced = model.bind_tools([get_weather], tool_choice="required", parallel_tool_calls=False)
    answer = forced.invoke(asked)
    (call,) = answer.tool_calls
    equal(answer.invalid_tool_calls, [])
    check_arguments(call["name"], call["args"])
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage)
    final = model.bind_tools([get_weather], tool_choice="none").invoke([*asked, answer, result])
    assert final.text
    equal(final.tool_calls, [])


@checks.feature("tool stream")
def tool_stream() -> None:
    model = chat_model(max_tokens=60).bind_tools(
        [get_weather], tool_choice="get_weather", parallel_tool_calls=False
    )
    whole = model.invoke(QUESTION)
    chunks = list(model.stream(QUESTION))
    total = reduce(add, chunks)
    equal([call["args"] for call in total.tool_calls], [call["args"] for call in whole.tool_calls])
    pieces = [c for chunk in chunks for c in chunk.tool_call_chunks]
    assert len(pieces) > 2
    equal({piece["index"] for piece in pieces}, {0})
    equal([piece["name"] for piece in pieces if piece["name"]], ["get_weather"])
    fragments = "".join(piece["args"] or "" for piece in pieces)
    equal(json.loads(fragments), whole.tool_calls[0]["args"])


@checks.feature("parallel tools")
def parallel() -> None:
    """The model may choose; chunks of several calls are merged by their indices."""
    model = chat_model(max_tokens=120).bind_tools([get_weather, get_time])
    asked = [HumanMessage(repeat(WEATHER_CALL, TIME_CALL))]
    whole = model.invoke(asked)
    total = reduce(add, model.stream(asked))
    for answer in (whole, total):
        made = [{"name": call["name"], "arguments": call["args"]} for call in answer.tool_calls]
        equal(made, [WEATHER_CALL, TIME_CALL])
    results = [get_weather.invoke(whole.tool_calls[0]), get_time.invoke(whole.tool_calls[1])]
    assert chat_model().invoke([*asked, whole, *results]).text


@checks.feature("responses")
def responses() -> None:
    answer = responses_model().invoke(HI)
    equal(answer.text, chat_model().invoke(HI).text)
    assert answer.response_metadata["id"].startswith("resp_")
    check_usage(answer)
    model = responses_model(use_previous_response_id=True)
    longer = model.invoke([*HI, answer, HumanMessage("And then?")])
    assert longer.usage_metadata["input_tokens"] > answer.usage_metadata["total_tokens"]


@checks.feature("responses stream")
def responses_stream() -> None:
    whole = responses_model().invoke(HI)
    chunks = list(responses_model().stream(HI))
    total = reduce(add, chunks)
    equal(total.text, whole.text)
    equal(total.usage_metadata["output_tokens"], whole.usage_metadata["output_tokens"])


@checks.feature("responses tools")
def responses_tools() -> None:
    check_tool_loop(responses_model(max_tokens=60))


@checks.feature("errors")
def errors() -> None:
    unknown = raised(openai.NotFoundError, lambda: chat_model(model="nope").invoke(HI))
    equal((unknown.code, unknown.param), ("model_not_found", "model"))
    hot = raised(openai.BadRequestError, lambda: chat_model(temperature=3).invoke(HI))
    equal(hot.param, "temperature")
    overflow = raised(openai.BadRequestError, lambda: chat_model().invoke("word " * 9000))
    equal(
        (type(overflow).__name__, overflow.code),
        ("OpenAIContextOverflowError", "context_length_exceeded"),
    )
    raised(openai.AuthenticationError, lambda: list(chat_model(api_key="sk-nobody").stream(HI)))


if __name__ == "__main__":
    checks.run()
