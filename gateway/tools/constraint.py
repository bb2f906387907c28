"""From the tools of a request to the constraint that its answers are held to.

A strict tool's schema is enforced, or the request refused. Of another tool the mask keeps what it
can; where its schema cannot be compiled its arguments are any object.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import msgspec

from gateway.constraint_checker import ConstraintChecker
from gateway.engine_faults import RETRY_AFTER_S
from gateway.errors import InvalidConstraint, InvalidRequest, Overloaded
from gateway.tools.calls import Tool, ToolRequest
from gateway.tools.dialect import Dialect
from gateway.tools.families import HERMES
from gateway.tools.malformed import is_malformed
from gateway.tools.parser import ToolTextParser
from grammar.errors import ConstraintTooExpensive, GrammarError, UnsupportedConstraint
from grammar.probe import ProbeReport
from grammar.schema_document import steps_of
from grammar.spec import ConstraintSpec, PreparedConstraint
from grammar.special_texts import is_hidden
from grammar.tool_calls import Answer, Call, ToolCalls, parse_tool_calls

# More than any agent asks for at a time. Without a bound a weak model that has to call a function
# may go on doing so until its tokens are used up.
MAX_CALLS = 64
# So many tools are found out one by one to have schemas that cannot be compiled.
MAX_SINGLE_TRIES = 4
ANY_OBJECT = '{"type":"object"}'


class AddedTokens(Protocol):
    """gateway.tokenizer.Tokenizer, as far as it matters here."""

    def added_token_id(self, text: str) -> int | None: ...
    def is_special(self, token_id: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """What answers are held to, and how they are read.

    `marker_texts` are texts of tokens that the parser must be fed although they may have none of
    their own; `trigger_id` is the one among them that begins a block, for `parser.trigger()`.
    `keeps_all` is False where the schema of a tool that is not strict is enforced in part or not,
    `num_gaps` in how many places.
    """

    prepared: PreparedConstraint
    dialect: Dialect
    names: tuple[str, ...]
    at_start: bool
    trigger_id: int | None = None
    marker_texts: Mapping[int, str] = field(default_factory=dict)
    keeps_all: bool = True
    num_gaps: int = 0
    is_cached: bool = False
    compile_ms: float = 0.0

    def parser(self, new_call_id: Callable[[], str] | None = None) -> ToolTextParser:
        """A new one, for one choice."""
        return ToolTextParser(
            self.dialect,
            self.names,
            at_start=self.at_start,
            by_token=self.trigger_id is not None,
            new_call_id=new_call_id,
        )


async def prepare_tools(
    probe: ConstraintChecker,
    request: ToolRequest,
    dialect: Dialect,
    *,
    tokenizer: AddedTokens,
    answer: ConstraintSpec | None = None,
    answer_param: str = "response_format",
) -> ToolPlan:
    """`answer` is what the request wants of an answer without calls.

    Raises: InvalidConstraint for a schema that must be kept and cannot be; InvalidRequest for an
    answer that is no JSON; Overloaded where nothing can be tried out.
    """
    if request.mode != "auto":
        answer = None
    form = _Form.find(request, dialect, tokenizer, _answer_schema(answer, param=answer_param))
    return await _Attempts(probe, form, answer_param=answer_param).plan()


def _answer_schema(answer: ConstraintSpec | None, *, param: str) -> str | None:
    if answer is None:
        return None
    match answer.kind:
        case "json_schema":
            return answer.value
        case "json_object":
            return ANY_OBJECT
    raise InvalidRequest(
        f"'{param}' must be a JSON schema where the model may call 'tools' instead.", param=param
    )


@dataclass(frozen=True, slots=True)
class _Form:
    """A request in the form of a dialect, with its markers as far as they are tokens."""

    request: ToolRequest
    dialect: Dialect
    tokens: dict[str, int]
    answer: str | None

    @classmethod
    def find(
        cls, request: ToolRequest, dialect: Dialect, tokenizer: AddedTokens, answer: str | None
    ) -> "_Form":
        """The dialect itself, or one that can be told from an answer in JSON."""
        form = cls.of(request, dialect, tokenizer, answer)
        if answer is None or form.is_clear():
            return form
        marker = dialect.json_marker
        if marker is not None:
            marked = replace(
                dialect, opening=marker + dialect.opening, trigger=marker, markers=(marker,)
            )
            form = cls.of(request, marked, tokenizer, answer)
            if marker in form.tokens:
                return form
        return cls.of(request, HERMES, tokenizer, answer)

    @classmethod
    def of(
        cls, request: ToolRequest, dialect: Dialect, tokenizer: AddedTokens, answer: str | None
    ) -> "_Form":
        tokens = {}
        for marker in dialect.markers:
            token_id = tokenizer.added_token_id(marker)
            if token_id is not None:
                if is_hidden(marker, is_special=tokenizer.is_special(token_id)):
                    tokens[marker] = token_id
        return cls(request, dialect, tokens, answer)

    def is_clear(self) -> bool:
        """Whether calls can be told from the answer."""
        try:
            parse_tool_calls(self.text(loose=frozenset(range(len(self.request.tools)))))
        except UnsupportedConstraint:
            return False
        return True

    @property
    def is_forced(self) -> bool:
        return self.request.mode != "auto"

    def text(self, *, loose: frozenset[int]) -> str:
        """The constraint; the tools in `loose` may have any object as arguments."""
        dialect, content = self.dialect, self._content()
        wrapping = dialect.wrapping if content == "text" else None
        calls: list[Call] = []
        triggers: dict[str, None] = {}
        # The model has the choice between forms only where it has that to call or not.
        for form in dialect.forms[:1] if self.is_forced else dialect.forms:
            for index, tool in enumerate(self.request.tools):
                schema = ANY_OBJECT if index in loose else tool.parameters
                begin = form.begin(tool.name)
                raw = msgspec.Raw(schema.encode())
                name = "" if wrapping is None else tool.name
                calls.append(Call(begin, raw, form.end, dialect.style, name))
                triggers[dialect.trigger or dialect.opening + (form.before or begin)] = None
        union = ToolCalls(
            calls,
            opening=dialect.opening,
            separator=dialect.separator,
            closing=dialect.closing,
            triggers=list(triggers),
            is_leading=dialect.trigger is None,
            tokens=self.tokens,
            content=content,
            wrapping=wrapping,
            max_calls=self.request.max_calls or MAX_CALLS,
        )
        return msgspec.json.encode(union).decode()

    def _content(self) -> Literal["text", "none"] | Answer:
        if self.is_forced:
            return "none"
        return "text" if self.answer is None else Answer(msgspec.Raw(self.answer.encode()))

    def tool_at(self, pointer: str) -> int | None:
        """The index of the tool in whose schema a place of the constraint is."""
        steps = [*steps_of(pointer), "", ""]
        if steps[0] != "calls" or not steps[1].isdecimal():
            return None
        return int(steps[1]) % len(self.request.tools)


class _Attempts:
    """Tries a constraint out, with ever fewer schemas in it where one cannot be compiled."""

    def __init__(self, probe: ConstraintChecker, form: _Form, *, answer_param: str) -> None:
        self._probe = probe
        self._form = form
        self._tools = form.request.tools
        self._answer_param = answer_param
        self._loose: frozenset[int] = frozenset()
        self._num_single = 0

    async def plan(self) -> ToolPlan:
        report = None
        while report is None:
            report = await self._attempt()
        for gap in report.prepared.gaps:
            self._check_gap(UnsupportedConstraint(gap.reason, pointer=gap.pointer))
        form = self._form
        return ToolPlan(
            prepared=msgspec.structs.replace(report.prepared, gaps=()),
            dialect=form.dialect,
            names=tuple(tool.name for tool in self._tools),
            at_start=form.is_forced or form.answer is not None,
            trigger_id=form.tokens.get(form.dialect.trigger or ""),
            marker_texts={token_id: text for text, token_id in form.tokens.items()},
            keeps_all=not self._loose and not report.prepared.gaps,
            num_gaps=len(self._loose) + len(report.prepared.gaps),
            is_cached=report.cached,
            compile_ms=report.compile_ms,
        )

    async def _attempt(self) -> ProbeReport | None:
        """None where another attempt is worth it."""
        spec = ConstraintSpec(
            "tool_calls",
            self._form.text(loose=self._loose),
            allows_checked=True,
            allows_whitespace=True,
        )
        try:
            return await self._probe.check(spec)
        except UnsupportedConstraint as error:
            self._loosen(error)
        except ConstraintTooExpensive as error:
            if not self._loosen_all():
                raise InvalidConstraint(
                    f"Invalid 'tools': {error}.", code="schema_too_complex", param="tools"
                ) from error
        except GrammarError as error:
            raise Overloaded(
                f"The tools could not be tried out: {error}.", retry_after_s=RETRY_AFTER_S
            ) from error
        return None

    def _loosen(self, error: UnsupportedConstraint) -> None:
        """Raises: InvalidConstraint for what has to be kept."""
        index = self._form.tool_at(error.pointer)
        if index is None and error.pointer:
            raise self._answer_refusal(error) from error
        if index is None:  # no place is known: it is in the whole
            if not self._loosen_all():
                raise _refusal(self._tools[0], error, param="tools") from error
            return
        tool = self._tools[index]
        if tool.is_strict or index in self._loose or is_malformed(tool.parameters, error):
            raise _refusal(tool, error, param=tool.param) from error
        self._num_single += 1
        if self._num_single > MAX_SINGLE_TRIES:
            self._loosen_all()
        self._loose |= {index}

    def _loosen_all(self) -> bool:
        """Whether that changes anything."""
        before = self._loose
        self._loose = frozenset(i for i, tool in enumerate(self._tools) if not tool.is_strict)
        return self._loose != before

    def _check_gap(self, gap: UnsupportedConstraint) -> None:
        """Raises: InvalidConstraint for one that is in a strict tool or in the answer."""
        index = self._form.tool_at(gap.pointer)
        if index is None:
            raise self._answer_refusal(gap)
        if self._tools[index].is_strict:
            raise _refusal(self._tools[index], gap, param=self._tools[index].param)

    def _answer_refusal(self, error: UnsupportedConstraint) -> InvalidConstraint:
        place = error.pointer.removeprefix("/content/schema")
        where = f" at '{place}'" if place else ""
        return InvalidConstraint(
            f"Invalid schema in '{self._answer_param}'{where}: {error.reason}",
            param=self._answer_param,
        )


def _refusal(tool: Tool, error: UnsupportedConstraint, *, param: str) -> InvalidConstraint:
    place = "".join(f"/{step}" for step in error.pointer.split("/")[4:])
    where = f" at '{place}'" if place else ""
    return InvalidConstraint(
        f"Invalid schema for function '{tool.name}'{where}: {error.reason}",
        code="invalid_function_parameters",
        param=param,
    )
