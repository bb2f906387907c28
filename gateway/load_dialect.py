"""Finds out how a server is spoken to, with requests of one token before any load: its model, which
fields it refuses, what it tells. Called by `gateway.bench_session`."""

import json
from collections.abc import Mapping
from typing import Any

from gateway.load_connection import Link
from gateway.load_target import TargetError
from telemetry.answer_stream import Answer, RecordedStream, StreamError, read_answer
from telemetry.request_bodies import MAX_TOKENS, OPTIONAL_FIELDS, Dialect, Endpoint
from telemetry.workloads import Body

# What servers say to a body that they do not understand.
_REFUSALS = (400, 422)
# The fewest that OpenAI's endpoint takes.
_RESPONSE_TOKENS = 16


async def first_model(link: Link) -> str:
    """The first that the server lists. Raises: TargetError."""
    path = f"{link.target.path}/models"
    hint = "" if link.target.path.endswith("/v1") else "; most servers want a URL that ends in /v1"
    stream = await link.send("GET", "/models")
    if stream.failure is not None:
        raise TargetError(f"the server does not answer: {stream.failure}")
    content = b"".join(data for _, data in stream.pieces)
    if stream.status != 200:
        said = " ".join(content.decode(errors="replace").split())[:200]
        raise TargetError(f"GET {path}: status {stream.status}: {said}{hint}")
    try:
        return str(json.loads(content)["data"][0]["id"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise TargetError(f"GET {path} lists no model: name one with --model{hint}") from None


async def find_dialect(
    link: Link, model: str, *, endpoint: Endpoint, fields: Mapping[str, Any]
) -> Dialect:
    """`fields` are those of the workload's requests. A field that the server refuses is left out,
    once and for all. Raises: TargetError where it answers no request at all."""
    max_tokens = _RESPONSE_TOKENS if endpoint is Endpoint.RESPONSES else 1
    probe = _Probe(link, _probe_body(model, fields, max_tokens))
    start = Dialect(endpoint=endpoint, tells_ids=endpoint is not Endpoint.RESPONSES)
    dialect, guessed, first_failure = start, [], None
    while not isinstance(found := await probe.ask(dialect), Answer):
        first_failure = first_failure or found
        field, is_named = _refused(found, probe.fields - dialect.without)
        if field is None:
            raise TargetError(f"the server does not answer: {first_failure}")
        dialect = dialect.leaving_out(field)
        guessed += [] if is_named else [field]
    for field in guessed[:-1]:  # it was the last of them that helped; were the others needed?
        without = dialect.without - {field}
        fuller = Dialect(endpoint, without, dialect.tells_ids)
        if isinstance(answer := await probe.ask(fuller), Answer):
            dialect, found = fuller, answer
    return Dialect(
        endpoint,
        dialect.without,
        tells_ids=found.prompt_ids is not None,
        tells_usage=found.tells_usage,
    )


def notes_of(dialect: Dialect) -> tuple[str, ...]:
    """What a report has to say of it."""
    notes = [
        f"the server refuses {field}: {OPTIONAL_FIELDS[field]}"
        for field in sorted(dialect.without & OPTIONAL_FIELDS.keys())
    ]
    if not dialect.tells_usage and "stream_options" not in dialect.without:
        notes.append(f"the server counts no tokens: {OPTIONAL_FIELDS['stream_options']}")
    return tuple(notes)


class _Probe:
    """One body, asked for in several dialects."""

    def __init__(self, link: Link, body: Body) -> None:
        self._link = link
        self._body = body
        self.fields = frozenset(body) & OPTIONAL_FIELDS.keys() | {MAX_TOKENS, "return_token_ids"}

    async def ask(self, dialect: Dialect) -> Answer | StreamError:
        content = json.dumps(dialect.body(self._body)).encode()
        stream: RecordedStream = await self._link.send("POST", dialect.endpoint.path, content)
        try:
            return read_answer(stream, needs_usage=False)
        except StreamError as error:
            return error


def _probe_body(model: str, fields: Mapping[str, Any], max_tokens: int) -> Body:
    wanted = {name: fields[name] for name in OPTIONAL_FIELDS if name in fields}
    return {
        **wanted,
        "model": model,
        "messages": [{"role": "user", "content": "Hello"}],
        MAX_TOKENS: max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _refused(failure: StreamError, fields: frozenset[str]) -> tuple[str | None, bool]:
    """The field that a failure is about, and whether it says so; None = it is about none."""
    if failure.status not in _REFUSALS:
        return None, False
    said = str(failure)
    # The longer name first: the answer to max_tokens names its successor too.
    named = [field for field in (*OPTIONAL_FIELDS, MAX_TOKENS) if field in fields and field in said]
    if named:
        return named[0], True
    return next((field for field in OPTIONAL_FIELDS if field in fields), None), False
