"""dspy: its language model by both of its engines, and signatures with typed fields as JSON."""

import json
import logging
from typing import Any, Literal

import dspy
import litellm
from dspy.utils.exceptions import LMError
from features import API_KEY, BASE_URL, MAX_TOKENS, MODEL, Checks, equal, raised

checks = Checks("dspy", "litellm")

logging.disable(logging.WARNING)
ENGINES = ("litellm", "auto")
# What nobody has told litellm of a model it does not try.
litellm.register_model(
    {f"openai/{MODEL}": {"litellm_provider": "openai", "supports_response_schema": True}}
)


def lm(engine: str = "litellm", *, name: str = MODEL, **options: Any) -> dspy.LM:
    settings = {"temperature": 0, "max_tokens": MAX_TOKENS, **options}
    return dspy.LM(
        f"openai/{name}",
        api_base=BASE_URL,
        api_key=API_KEY,
        cache=False,
        num_retries=0,
        engine=engine,
        **settings,
    )


SENTENCE = "We ate well."


class Sort(dspy.Signature):
    """Say what the sentence is about."""

    sentence: str = dspy.InputField()
    topic: Literal["food", "sport"] = dspy.OutputField()
    is_happy: bool = dspy.OutputField()


def sort(model: dspy.LM) -> Any:
    with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
        return dspy.Predict(Sort)(sentence=SENTENCE)


@checks.feature("chat")
def chat() -> None:
    texts = [lm(engine)("hi") for engine in ENGINES]
    assert texts[0][0]
    equal(texts[0], texts[1])


@checks.feature("async")
async def concurrent() -> None:
    equal(await lm().acall("hi"), lm()("hi"))


@checks.feature("stream")
async def stream() -> None:
    with dspy.context(lm=lm(max_tokens=60), adapter=dspy.JSONAdapter()):
        program = dspy.streamify(dspy.Predict(Sort))
        *chunks, final = [item async for item in program(sentence=SENTENCE)]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    equal(json.loads(text), final.toDict())
    equal(final.toDict(), sort(lm(max_tokens=60)).toDict())


@checks.feature("structured output")
def structured() -> None:
    found = sort(lm(max_tokens=60))
    assert found.topic in ("food", "sport")
    assert isinstance(found.is_happy, bool)


@checks.feature("completions")
def completions() -> None:
    assert lm(model_type="text", max_tokens=5)("Once upon")


@checks.feature("responses")
def responses() -> None:
    equal(lm(model_type="responses")("hi")[0]["text"], lm()("hi")[0])


@checks.feature("errors")
def errors() -> None:
    raised(LMError, lambda: lm("auto", name="nope")("hi"))
    raised(LMError, lambda: lm("auto")("word " * 9000))


if __name__ == "__main__":
    checks.run()
