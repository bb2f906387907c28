"""outlines over a vLLM-like server: its `structured_outputs`, and json_schema as for OpenAI."""

import json
import re
from typing import Any, Literal

import openai
import outlines
from features import API_KEY, BASE_URL, MAX_TOKENS, MODEL, Checks, equal, raised
from outlines.exceptions import BadRequestError, NotFoundError
from outlines.types import CFG, Regex
from person import PERSON_QUESTION, Person

checks = Checks("outlines", "openai")

STABLE: dict[str, Any] = {"temperature": 0, "seed": 7, "max_tokens": MAX_TOKENS}
LONG: dict[str, Any] = {**STABLE, "max_tokens": 60}
GRAMMAR = """
?start: sum
sum: NUMBER "+" NUMBER
NUMBER: /[1-9]/
"""


def client() -> openai.OpenAI:
    return openai.OpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)


def model(name: str = MODEL) -> Any:
    return outlines.from_vllm(client(), name)


@checks.feature("chat")
def chat() -> None:
    text = model()("hi", **STABLE)
    whole = client().chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hi"}], **STABLE
    )
    equal(text, whole.choices[0].message.content)


@checks.feature("stream")
def stream() -> None:
    parts = list(model().stream("hi", **STABLE))
    assert len(parts) > 2
    equal("".join(parts), model()("hi", **STABLE))


@checks.feature("async")
async def concurrent() -> None:
    ours = openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)
    async with ours:
        text = await outlines.from_vllm(ours, MODEL)("hi", **STABLE)
    equal(text, model()("hi", **STABLE))


@checks.feature("structured output")
def structured() -> None:
    Person.model_validate_json(model()(PERSON_QUESTION, Person, **LONG))
    as_openai = outlines.from_openai(client(), MODEL)
    Person.model_validate_json(as_openai(PERSON_QUESTION, Person, **LONG))
    assert model()("Which?", Literal["yes", "no"], **STABLE) in ("yes", "no")
    assert re.fullmatch("[a-c]{4}-[0-9]", model()("A code.", Regex("[a-c]{4}-[0-9]"), **STABLE))
    assert re.fullmatch(r"[1-9]\+[1-9]", model()("A sum.", CFG(GRAMMAR), **STABLE))


@checks.feature("partial output")
def partial() -> None:
    parts = list(model().stream(PERSON_QUESTION, Person, **LONG))
    equal(json.loads("".join(parts)), json.loads(model()(PERSON_QUESTION, Person, **LONG)))


@checks.feature("errors")
def errors() -> None:
    raised(NotFoundError, lambda: model("nope")("hi", **STABLE))
    raised(BadRequestError, lambda: model()("hi", CFG("start: nothing"), **STABLE))
    raised(BadRequestError, lambda: model()("word " * 9000, **STABLE))


if __name__ == "__main__":
    checks.run()
