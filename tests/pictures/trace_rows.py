"""Exported spans in the order in which a reader wants them: as a tree, with what to say of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from telemetry import names
from tests.otlp_receiver import ReceivedSpan

_NS_PER_MS = 1e6
# What is told of each span: the attribute, and how.
TOLD: Mapping[str, tuple[tuple[str, str], ...]] = {
    names.SPAN_TOKENIZE: ((names.ATTR_TOKENS, "{} tokens"), (names.ATTR_MESSAGES, "{} messages")),
    names.SPAN_QUEUE: ((names.ATTR_QUEUE_REASON, "waited for {}"),),
    names.SPAN_GRAMMAR_COMPILE: (
        (names.ATTR_GRAMMAR_WHERE, "in the {}"),
        (names.ATTR_GRAMMAR_ENGINE, "{}"),
        (names.ATTR_CONSTRAINT, "{}"),
        (names.ATTR_COMPILE_CACHED, "known: {}"),
    ),
    names.SPAN_CACHE_MATCH: (
        (names.ATTR_CACHED_TOKENS, "{} cached"),
        (names.ATTR_COMPUTED_TOKENS, "{} to compute"),
        (names.ATTR_MISS_REASON, "reason: {}"),
    ),
    names.SPAN_CACHE_FETCH: (
        (names.ATTR_CACHE_TIER, "{}"),
        (names.ATTR_FETCH_DECISION, "{}"),
        (names.ATTR_FETCH_TOKENS, "{} tokens"),
    ),
    names.SPAN_PREFILL: ((names.ATTR_TOKENS, "{} tokens"), (names.ATTR_BATCH_ROWS, "{} rows")),
    names.SPAN_DECODE: (
        (names.ATTR_TOKENS, "{} tokens"),
        (names.ATTR_FORCED_TOKENS, "{} forced"),
        (names.ATTR_TPOT_P50_MS, "p50 {:.1f} ms"),
        (names.ATTR_MASK_TIME_MS, "masks {:.1f} ms"),
    ),
    names.SPAN_VALIDATE: ((names.ATTR_VALIDATION, "{}"),),
    "SERVER": ((names.HTTP_STATUS, "{}"), (names.ATTR_OUTCOME, "{}")),
    "model": (
        (names.GEN_AI_USAGE_INPUT, "{} in"),
        (names.GEN_AI_USAGE_CACHE_READ, "{} of them cached"),
        (names.GEN_AI_USAGE_OUTPUT, "{} out"),
        (names.ATTR_TTFT_MS, "TTFT {:.0f} ms"),
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One span; times are milliseconds from the beginning of its trace. `is_linked` to a step."""

    name: str
    depth: int
    is_last: bool
    start_ms: float
    end_ms: float
    notes: tuple[str, ...] = ()
    is_linked: bool = False
    is_error: bool = False

    @property
    def duration_ms(self) -> float:
        return self.end_ms - self.start_ms


@dataclass(frozen=True, slots=True)
class TraceRows:
    """A request and, beside it, the recorded steps that had it in their batch."""

    title: str
    rows: tuple[Row, ...]
    steps: tuple[tuple[float, float], ...] = ()
    ttft_ms: float | None = None

    @property
    def duration_ms(self) -> float:
        return max((row.end_ms for row in self.rows), default=0.0)


def trace_rows(title: str, trace_id: str, spans: Sequence[ReceivedSpan]) -> TraceRows:
    """Of all that was exported. Raises: ValueError where the trace has no SERVER span."""
    own = [span for span in spans if span.trace_id == trace_id]
    server = next((span for span in own if span.kind == "SERVER"), None)
    if server is None:
        raise ValueError(f"the trace {trace_id} has no SERVER span")
    steps = [
        (_ms(span.start_ns, server), _ms(span.end_ns, server))
        for span in spans
        if any(linked == trace_id for linked, _ in span.links) and span.trace_id != trace_id
    ]
    rows = tuple(_rows(server, own, server, depth=0, is_last=True))
    ttft = next((s.attributes[names.ATTR_TTFT_MS] for s in own if _has_ttft(s)), None)
    return TraceRows(title, rows, tuple(sorted(steps)), ttft)


def tree_text(trace: TraceRows) -> str:
    """The same as lines of text."""
    lines = []
    for row in trace.rows:
        branch = (
            "" if row.depth == 0 else "   " * (row.depth - 1) + ("└─ " if row.is_last else "├─ ")
        )
        link = " → engine.step" if row.is_linked else ""
        head = f"{branch}{row.name}"
        when = f"{row.start_ms:9.1f} +{row.duration_ms:8.1f} ms"
        lines.append(f"{head:<36}{when}  {', '.join(row.notes)}{link}".rstrip())
    if trace.steps:
        lines.append(f"engine.step × {len(trace.steps)}, linked with it")
    return "\n".join(lines)


def _rows(
    span: ReceivedSpan,
    own: Sequence[ReceivedSpan],
    server: ReceivedSpan,
    *,
    depth: int,
    is_last: bool,
) -> Iterator[Row]:
    yield Row(
        name=span.name,
        depth=depth,
        is_last=is_last,
        start_ms=_ms(span.start_ns, server),
        end_ms=_ms(span.end_ns, server),
        notes=tuple(_notes(span)),
        is_linked=bool(span.links),
        is_error=span.status == "ERROR",
    )
    children = [one for one in own if one.parent_id == span.span_id]
    children.sort(key=lambda one: (one.start_ns, one.end_ns))
    for child in children:
        yield from _rows(child, own, server, depth=depth + 1, is_last=child is children[-1])


def _notes(span: ReceivedSpan) -> Iterator[str]:
    kind = span.name if span.name in TOLD else "SERVER" if span.kind == "SERVER" else "model"
    for attribute, form in TOLD[kind]:
        value = span.attributes.get(attribute)
        if value is not None:
            yield form.format(str(value).lower() if isinstance(value, bool) else value)


def _has_ttft(span: ReceivedSpan) -> bool:
    return names.ATTR_TTFT_MS in span.attributes


def _ms(at_ns: int, server: ReceivedSpan) -> float:
    return (at_ns - server.start_ns) / _NS_PER_MS
