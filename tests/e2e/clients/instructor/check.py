"""instructor on openai 2.x: a class as a tool, as a JSON schema, and as it grows."""

import json
from typing import Any

import instructor
import openai
from features import API_KEY, BASE_URL, MODEL, Checks, equal, raised
from instructor import Mode
from instructor.core.exceptions import IncompleteOutputException, InstructorRetryException
from person import PERSON_QUESTION, Person

checks = Checks("instructor", "openai")

ASKED: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": PERSON_QUESTION}],
    "temperature": 0,
    "seed": 7,
    "max_tokens": 60,
    "max_retries": 1,
}


def client(mode: Mode, api_key: str = API_KEY) -> instructor.Instructor:
    ours = openai.OpenAI(base_url=BASE_URL, api_key=api_key, max_retries=0)
    return instructor.from_openai(ours, mode=mode)


def person(mode: Mode, **changes: Any) -> Any:
    """The object and the completion that it was made of."""
    return client(mode).create_with_completion(response_model=Person, **{**ASKED, **changes})


@checks.feature("chat")
def chat() -> None:
    answer = client(Mode.TOOLS).create(response_model=None, **{**ASKED, "max_tokens": 8})
    assert answer.choices[0].message.content
    equal(answer.choices[0].message.tool_calls, None)


@checks.feature("stream")
def stream() -> None:
    asked = {**ASKED, "max_tokens": 8}
    whole = client(Mode.TOOLS).create(response_model=None, **asked)
    chunks = client(Mode.TOOLS).create(response_model=None, **asked, stream=True)
    parts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    equal("".join(parts), whole.choices[0].message.content)


@checks.feature("structured output")
def structured() -> None:
    found, completion = person(Mode.JSON_SCHEMA)
    assert isinstance(found, Person)
    equal(completion.choices[0].finish_reason, "stop")
    equal(json.loads(completion.choices[0].message.content), found.model_dump())


@checks.feature("partial output")
def partial() -> None:
    whole, _ = person(Mode.JSON_SCHEMA)
    seen = list(client(Mode.JSON_SCHEMA).create_partial(response_model=Person, **ASKED))
    equal(seen[-1].model_dump(), whole.model_dump())
    assert len(seen) > 2
    assert seen[0].level is None


@checks.feature("tools")
def tools() -> None:
    for mode in (Mode.TOOLS, Mode.TOOLS_STRICT):
        found, completion = person(mode)
        assert isinstance(found, Person)
        (call,) = completion.choices[0].message.tool_calls
        equal(call.function.name, "Person")
        equal(json.loads(call.function.arguments), found.model_dump())


@checks.feature("tool stream")
def tool_stream() -> None:
    seen = list(client(Mode.TOOLS).create_partial(response_model=Person, **ASKED))
    Person.model_validate(seen[-1].model_dump())
    assert len(seen) > 2
    equal((seen[0].name, seen[0].level), (None, None))


@checks.feature("async")
async def concurrent() -> None:
    ours = openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)
    async with ours:
        found = await instructor.from_openai(ours, mode=Mode.JSON_SCHEMA).create(
            response_model=Person, **ASKED
        )
    equal(found.model_dump(), person(Mode.JSON_SCHEMA)[0].model_dump())


@checks.feature("responses tools")
def responses_tools() -> None:
    asked = {key: value for key, value in ASKED.items() if key not in ("seed", "max_tokens")}
    found = client(Mode.RESPONSES_TOOLS).create(
        response_model=Person, **asked, max_output_tokens=60
    )
    assert isinstance(found, Person)


@checks.feature("errors")
def errors() -> None:
    unknown = raised(InstructorRetryException, lambda: person(Mode.TOOLS, model="nope"))
    cause = unknown.__cause__
    equal((type(cause), cause.code), (openai.NotFoundError, "model_not_found"))
    raised(IncompleteOutputException, lambda: person(Mode.JSON_SCHEMA, max_tokens=3))


if __name__ == "__main__":
    checks.run()
