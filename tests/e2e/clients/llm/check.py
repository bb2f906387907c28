"""The `llm` command, configured as its users do: a YAML file that names the server."""

import json
import os
import subprocess
import sys
from pathlib import Path

from features import API_KEY, BASE_URL, MODEL, Checks, equal
from person import PERSON_QUESTION, Person
from weather import CITIES, repeat

checks = Checks("llm", "openai")

LLM = Path(sys.executable).with_name("llm")
USER = Path(os.environ["HOME"]) / "llm"
TIMEOUT_S = 60
CALL = {"name": "get_weather", "arguments": {"city": "Tokyo"}}
MODELS = f"""
- model_id: ours
  model_name: {MODEL}
  api_base: {BASE_URL}
  api_key_name: ours
  supports_schema: true
  supports_tools: true
- model_id: ours-responses
  model_name: {MODEL}
  api_base: {BASE_URL}
  api_key_name: ours
  responses: true
  supports_schema: true
- model_id: ours-completion
  model_name: {MODEL}
  api_base: {BASE_URL}
  api_key_name: ours
  completion: true
- model_id: wrong
  model_name: nope
  api_base: {BASE_URL}
  api_key_name: ours
"""
TOOL = f'''
def get_weather(city: str) -> str:
    """The weather of a city, {" or ".join(CITIES)}."""
    return "rain"
'''


def run(*arguments: str, code: int = 0) -> str:
    """What `llm` prints; its stderr where it is to fail."""
    done = subprocess.run(
        [LLM, *arguments],
        env={**os.environ, "LLM_USER_PATH": str(USER)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    equal((done.returncode, done.stderr if done.returncode != code else ""), (code, ""))
    return done.stderr if code else done.stdout


def ask(model: str, prompt: str, *arguments: str, max_tokens: int = 24) -> str:
    return run(
        "prompt",
        "-m",
        model,
        "-o",
        "temperature",
        "0",
        "-o",
        "max_tokens",
        str(max_tokens),
        *arguments,
        prompt,
    ).strip()


@checks.feature("chat")
def chat() -> None:
    whole = ask("ours", "hi", "--no-stream", "--usage")
    assert whole
    logged = json.loads(run("logs", "--json", "-n", "1"))[0]
    equal(logged["response"].strip(), whole)
    assert logged["input_tokens"] > 0
    assert logged["output_tokens"] > 0
    longer = ask("ours", "And then?", "--continue")
    assert longer
    again = json.loads(run("logs", "--json", "-n", "1"))[0]
    assert again["input_tokens"] > logged["input_tokens"] + logged["output_tokens"]


@checks.feature("stream")
def stream() -> None:
    streamed = ask("ours", "hi")
    logged = json.loads(run("logs", "--json", "-n", "1"))[0]
    equal(streamed, ask("ours", "hi", "--no-stream"))
    assert logged["output_tokens"] > 0


@checks.feature("completions")
def completions() -> None:
    equal(ask("ours-completion", "Once upon"), ask("ours-completion", "Once upon", "--no-stream"))


@checks.feature("structured output")
def structured() -> None:
    schema = json.dumps(Person.model_json_schema())
    text = ask("ours", PERSON_QUESTION, "--schema", schema, max_tokens=60)
    Person.model_validate_json(text)
    equal(text, ask("ours", PERSON_QUESTION, "--schema", schema, "--no-stream", max_tokens=60))


@checks.feature("tools")
def tools() -> None:
    """The command leaves the choice to the model, runs what it calls, and asks on."""
    for how in ([], ["--no-stream"]):
        text = ask("ours", repeat(CALL), "--functions", TOOL, *how, max_tokens=40)
        asked, answered = json.loads(run("logs", "--json", "-n", "2"))
        (call,) = asked["tool_calls"]
        equal({"name": call["name"], "arguments": call["arguments"]}, CALL)
        (result,) = answered["tool_results"]
        equal((result["output"], result["tool_call_id"]), ("rain", call["tool_call_id"]))
        equal(answered["response"].strip(), text)


@checks.feature("responses")
def responses() -> None:
    equal(ask("ours-responses", "hi", "--no-stream"), ask("ours", "hi"))


@checks.feature("responses stream")
def responses_stream() -> None:
    equal(ask("ours-responses", "hi"), ask("ours", "hi"))


@checks.feature("errors")
def errors() -> None:
    assert "does not exist" in run("prompt", "-m", "wrong", "hi", code=1)
    assert "maximum context length" in run("prompt", "-m", "ours", "word " * 9000, code=1)
    assert "API key" in run("prompt", "-m", "ours", "--key", "sk-nobody", "hi", code=1)


def configure() -> None:
    USER.mkdir(parents=True, exist_ok=True)
    (USER / "extra-openai-models.yaml").write_text(MODELS)
    run("keys", "set", "ours", "--value", API_KEY)


if __name__ == "__main__":
    configure()
    checks.run()
