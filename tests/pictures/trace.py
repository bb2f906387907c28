"""Draws what a real server exports of two requests: `python -m tests.pictures.trace`.

Both ask for JSON behind the same long prefix, which the first does not find in the cache and the
second does. Writes docs/images/trace.svg, and their trees into docs/observability.md.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import httpx2

from tests.conformance.target import Target
from tests.e2e.server_process import serving
from tests.model_file import ROOT
from tests.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver
from tests.pictures.trace_rows import TraceRows, trace_rows, tree_text
from tests.pictures.waterfall import waterfall
from tests.trace_tree import Caller, caller

PICTURE = ROOT / "docs" / "images" / "trace.svg"
PAGE = ROOT / "docs" / "observability.md"
BEGIN, END = "<!-- trace:begin -->\n", "<!-- trace:end -->"
CHAT = "/v1/chat/completions"
DESCRIPTION = (
    "Waterfall of two traced requests with the same long prefix: the first computes it in chunks,"
    " the second finds it in the cache and answers sooner."
)
RULES = " ".join(f"Rule {n}: be brief, be kind, and never mention number {n}." for n in range(75))
OTHER_SCHEMA: dict[str, Any] = {"type": "boolean"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "Oslo", "Rome"]},
        "is_capital": {"type": "boolean"},
        "population_millions": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["city", "is_capital", "population_millions"],
    "additionalProperties": False,
}
TITLES = ("The prefix was not cached", "The same prefix a moment later, from the cache")
QUESTIONS = ("Tell me about Paris.", "Tell me about Oslo.")


async def record(receiver: OtlpReceiver, target: Target) -> tuple[TraceRows, TraceRows]:
    """Two requests, one after the other. The first of a server also starts its grammar's child,
    which no reader wants to see."""
    async with target.http() as client:
        await _ask(client, target, "Hello.", by=caller(90), rules="Be brief.", schema=OTHER_SCHEMA)
        callers = (caller(91), caller(92))
        for by, question in zip(callers, QUESTIONS, strict=True):
            await _ask(client, target, question, by=by, rules=RULES)
    ids = {by.trace_id for by in callers}

    def have_arrived(spans: Sequence[ReceivedSpan]) -> bool:
        return ids <= {span.trace_id for span in spans if span.kind == "SERVER"}

    await asyncio.to_thread(receiver.wait_for_spans, have_arrived)
    # Steps are exported with a batch of their own.
    spans = await asyncio.to_thread(receiver.wait_for_spans, _has_steps(ids))
    first, second = (
        trace_rows(title, by.trace_id, spans) for title, by in zip(TITLES, callers, strict=True)
    )
    return first, second


def with_trees(page: str, traces: Sequence[TraceRows]) -> str:
    """The page with these trees between its marks. Raises: ValueError where it has none."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN.strip()} ... {END}")
    trees = "\n\n".join(f"{trace.title}:\n\n{tree_text(trace)}" for trace in traces)
    return f"{head}{begin}```text\n{trees}\n```\n{end}{tail}"


def main() -> int:
    with otlp_receiver("http/protobuf") as receiver:
        settings = {"trace_steps": "1", "max_step_tokens": "384", **receiver.environment}
        with serving(**settings) as (_, target):
            traces = asyncio.run(record(receiver, target))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(waterfall(traces, description=DESCRIPTION), encoding="utf-8")
    PAGE.write_text(with_trees(PAGE.read_text(encoding="utf-8"), traces), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}\n{PAGE.relative_to(ROOT)}\n")
    return 0


async def _ask(
    client: httpx2.AsyncClient,
    target: Target,
    question: str,
    *,
    by: Caller,
    rules: str,
    schema: dict[str, Any] = SCHEMA,
) -> None:
    messages = [{"role": "system", "content": rules}, {"role": "user", "content": question}]
    named = {"name": "city", "strict": True, "schema": schema}
    body = target.chat(
        messages=messages,
        max_tokens=60,
        temperature=0,
        response_format={"type": "json_schema", "json_schema": named},
    )
    response = await client.post(CHAT, json=body, headers=by.headers, timeout=120)
    response.raise_for_status()


def _has_steps(ids: set[str]) -> Any:
    def have_arrived(spans: Sequence[ReceivedSpan]) -> bool:
        linked = {trace_id for span in spans if not span.parent_id for trace_id, _ in span.links}
        return ids <= linked

    return have_arrived


if __name__ == "__main__":
    sys.exit(main())
