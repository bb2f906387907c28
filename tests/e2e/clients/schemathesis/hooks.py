"""What schemathesis is taught about this API: answers are kept short, and most requests are brought
so near to good ones that they reach the model. Every error has one shape, every stream an end.

It is run by tests/e2e/fuzzing.py, in an environment of its own, with nothing of ours but this file.
"""

import json
import os
from random import Random
from typing import Any

import schemathesis

MODEL = os.environ["FUZZ_MODEL"]
VOCAB_SIZE = int(os.environ["FUZZ_VOCAB_SIZE"])
MAX_TOKENS = 8
MAX_CHOICES = 2
MAX_EXTRAS = 3
ERROR_KEYS = {"message", "type", "param", "code"}
# What bounds the answer, the first that wins first.
LIMITS = {
    "/v1/chat/completions": ("max_completion_tokens", "max_tokens", "n_predict"),
    "/v1/completions": ("max_tokens", "n_predict"),
    "/v1/responses": ("max_output_tokens",),
}
# What a request is about, and what it may be where what was made up says nothing.
SUBJECTS: dict[str, tuple[str, Any]] = {
    "/v1/chat/completions": ("messages", [{"role": "user", "content": "hi"}]),
    "/v1/cache/explain": ("messages", [{"role": "user", "content": "hi"}]),
    "/v1/chat/completions/render": ("messages", [{"role": "user", "content": "hi"}]),
    "/apply-template": ("messages", [{"role": "user", "content": "hi"}]),
    "/v1/completions": ("prompt", "Once upon"),
    "/v1/responses": ("input", "hi"),
    "/v1/responses/input_tokens": ("input", "hi"),
    "/v1/embeddings": ("input", "hi"),
    "/tokenize": ("prompt", "hi"),
    "/v1/tokenize": ("prompt", "hi"),
    "/detokenize": ("tokens", [1, 2]),
    "/v1/detokenize": ("tokens", [1, 2]),
}


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: dict[str, Any]) -> None:
    """Bodies that are objects are made to cost little and, mostly, to reach the model."""
    if not isinstance(case.body, dict):
        return
    path, body = case.operation.path, dict(case.body)
    random = Random(json.dumps(body, sort_keys=True, default=str))
    is_wrong = case.meta is not None and case.meta.generation.mode.is_negative
    if path in SUBJECTS and not is_wrong and random.random() < 0.7:
        body = _likely(path, body, random)
    case.body = _bounded(path, body)


def _likely(path: str, body: dict[str, Any], random: Random) -> dict[str, Any]:
    """About the same thing, with few of its parameters, so that these are what is tried."""
    name, subject = SUBJECTS[path]
    extras = sorted(key for key in body if key not in ("model", name))
    kept = random.sample(extras, min(len(extras), random.randint(0, MAX_EXTRAS)))
    keeps_subject = name in body and random.random() < 0.5
    return {
        "model": MODEL,
        name: _known_ids(body[name]) if keeps_subject else subject,
        **{key: body[key] for key in kept},
    }


def _known_ids(value: Any) -> Any:
    """Integers that are as good as any become ids that the model has."""
    if isinstance(value, list):
        return [_known_ids(item) for item in value]
    is_id = isinstance(value, int) and not isinstance(value, bool)
    return abs(value) % VOCAB_SIZE if is_id else value


def _bounded(path: str, body: dict[str, Any]) -> dict[str, Any]:
    names = LIMITS.get(path, ())
    for name in names:
        if isinstance(body.get(name), int) and body[name] > MAX_TOKENS:
            body[name] = MAX_TOKENS
    if names and all(body.get(name) in (None, -1) for name in names):
        body[names[0]] = MAX_TOKENS
    if isinstance(body.get("n"), int) and MAX_CHOICES < body["n"] <= 128:
        body["n"] = MAX_CHOICES
    return body


@schemathesis.check
def error_shape(_context: Any, response: Any, case: Any) -> None:
    """Whatever is refused is refused in OpenAI's error object, and says which request it was."""
    headers = {name.lower(): values[0] for name, values in response.headers.items()}
    assert 0 < len(headers["x-request-id"]) <= 128, "no request id"
    if response.status_code < 400 or case.method.upper() == "HEAD":
        return
    assert headers["content-type"] == "application/json", headers["content-type"]
    body = json.loads(response.content)
    assert set(body) == {"error"}, "no error object"
    error = body["error"]
    assert set(error) == ERROR_KEYS, "other keys than the four"
    assert all(isinstance(error[key], str) and error[key] for key in ("message", "type"))
    assert all(error[key] is None or isinstance(error[key], str) for key in ("param", "code"))
    assert "Traceback" not in error["message"], "a stack trace"
    if response.status_code == 503:
        assert int(headers["retry-after"]) >= 1, "no Retry-After"


@schemathesis.check
def stream_ends(_context: Any, response: Any, _case: Any) -> None:
    """A stream is events of JSON, and ends in its mark or in an error."""
    if not "".join(response.headers.get("content-type", [])).startswith("text/event-stream"):
        return
    lines = response.content.decode().split("\n")
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert events, "an empty stream"
    if events[-1] == "[DONE]":
        del events[-1]
    else:
        last = json.loads(events[-1])
        assert "error" in last or last["type"].startswith("response."), "no end"
    for event in events:
        json.loads(event)
