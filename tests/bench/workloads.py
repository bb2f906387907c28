"""The requests of the four workloads, made from a seed: the same bodies for every server."""

import random
from typing import Any, Literal, get_args

from telemetry.workload_text import say

Body = dict[str, Any]
Workload = Literal["short", "unique", "shared", "json"]
WORKLOADS: tuple[Workload, ...] = get_args(Workload)

# What a `json` answer has to fit; llguidance, xgrammar and GBNF all enforce it.
ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "age", "tags", "role"],
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {
            "type": "array",
            "items": {"type": "string", "maxLength": 12},
            "minItems": 2,
            "maxItems": 4,
        },
        "role": {"enum": ["admin", "user", "guest"]},
    },
}

# In words, which are about as many tokens.
_UNIQUE_WORDS = 250
_SYSTEM_WORDS = 1390
_QUESTION_WORDS = 40
_SHORT_WORDS = 8


def make_bodies(workload: Workload, model: str, *, num_requests: int, seed: str) -> list[Body]:
    """Bodies for POST /v1/chat/completions, all with a stream and its usage block.

    short: a line, 128 tokens out. unique: about 280 tokens that no other request begins with, 64
    out. shared: a system prompt of about 1,400 tokens that is new for each seed and the same for
    all, 64 out. json: an answer that has to fit ANSWER_SCHEMA.
    """
    rng = random.Random(f"{seed}/{workload}")
    system = say(rng, _SYSTEM_WORDS)
    return [_body(workload, model, rng, system) for _ in range(num_requests)]


def make_pairs(model: str, *, num_pairs: int, seed: str) -> list[Body]:
    """Each prompt of about 1,400 tokens twice in a row: first cold, then with its prefix cached."""
    rng = random.Random(f"{seed}/pairs")
    prompts = [say(rng, _SYSTEM_WORDS) for _ in range(num_pairs)]
    return [_chat(model, prompt, max_tokens=4) for prompt in prompts for _ in range(2)]


def make_questions(model: str, *, num_questions: int, seed: str) -> list[Body]:
    """Short questions behind one prefix of about 1,400 tokens, which is new for each seed."""
    rng = random.Random(f"{seed}/questions")
    system = say(rng, _SYSTEM_WORDS)
    return [
        _chat(model, say(rng, _SHORT_WORDS), system=system, max_tokens=4)
        for _ in range(num_questions)
    ]


def make_long_prompt(model: str, *, num_words: int, max_tokens: int, seed: str) -> Body:
    """One body whose prompt no other seed's begins with."""
    return _chat(model, say(random.Random(seed), num_words), max_tokens=max_tokens)


def _body(workload: Workload, model: str, rng: random.Random, system: str) -> Body:
    match workload:
        case "short":
            return _chat(model, f"Tell me a long story about a {say(rng, 3)}.", max_tokens=128)
        case "unique":
            return _chat(model, say(rng, _UNIQUE_WORDS), max_tokens=64)
        case "shared":
            return _chat(model, say(rng, _QUESTION_WORDS), system=system, max_tokens=64)
        case "json":
            asked = f"Describe a person called {say(rng, 2)} as a JSON object."
            body = _chat(model, asked, max_tokens=128)
            # The answer is to end by itself.
            del body["ignore_eos"]
            return body | {"response_format": _response_format()}


def _chat(model: str, content: str, *, max_tokens: int, system: str | None = None) -> Body:
    messages = [{"role": "user", "content": content}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return {
        "model": model,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _response_format() -> dict[str, Any]:
    schema = {"name": "person", "schema": ANSWER_SCHEMA, "strict": True}
    return {"type": "json_schema", "json_schema": schema}
