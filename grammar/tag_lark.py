"""Structural tags in llguidance's Lark dialect, for grammar.llguidance_engine.

Free text up to a trigger is one lexeme: the texts in which the trigger ends and none stands
before. No such text goes on as another one, so that a greedy lexer ends each where it must.
"""

from grammar.errors import UnsupportedConstraint
from grammar.schema import regex
from grammar.schema.compiler import CompiledSchema, compile_schema
from grammar.schema.regex import ANY_CHAR, ANY_TEXT, Regex
from grammar.schema.terminals import plain_text
from grammar.spec import Gap
from grammar.tags import Tag, TagUnion, parse_tags


def tags_to_lark(value: str, *, whitespace: bool) -> tuple[str, tuple[Gap, ...]]:
    """The grammar, and what in the schemas it does not enforce.

    Raises: UnsupportedConstraint for what is no structural tag, or has a schema that is none.
    """
    return _TagLark(parse_tags(value), whitespace=whitespace).grammar()


class _TagLark:
    """One use. Rules of the i-th schema begin with s<i>."""

    def __init__(self, union: TagUnion, *, whitespace: bool) -> None:
        self._union = union
        self._whitespace = whitespace
        self._lines: list[str] = []
        self._gaps: list[Gap] = []
        self._schemas: dict[str, CompiledSchema] = {}

    def grammar(self) -> tuple[str, tuple[Gap, ...]]:
        union = self._union
        low, high = union.min_calls, union.max_calls
        if union.has_text:
            self._add_calls_in_text()
            self._lines.append(f"start: call{{{low},{high or ''}}} rest?")
        else:
            self._add_calls()
            calls = f"call{{{max(1, low)},{high or ''}}}"
            answer = f" | {self._schema(union.answer)}" if union.answer else ""
            self._lines.append(f"start: {calls}{answer}")
        return "\n".join(self._lines), tuple(self._gaps)

    def _add_calls(self) -> None:
        calls = [self._call(tag, "") for tag in self._union.tags]
        self._lines.append(f"call: {' | '.join(calls)}")

    def _add_calls_in_text(self) -> None:
        triggers = self._union.triggers
        has_trigger = regex.cat(ANY_TEXT, regex.union(*map(regex.literal, triggers)), ANY_TEXT)
        goes_on = regex.cat(has_trigger, ANY_CHAR)
        calls = []
        for number, trigger in enumerate(triggers):
            tags = [tag for tag in self._union.tags if tag.begin.startswith(trigger)]
            up_to = regex.both(regex.cat(ANY_TEXT, regex.literal(trigger)), regex.other(goes_on))
            self._lines.append(_terminal(f"UP_TO_{number}", up_to))
            after = " | ".join(self._call(tag, trigger) for tag in tags)
            calls.append(f"UP_TO_{number} ({after})")
        self._lines.append(f"call: {' | '.join(calls)}")
        text = regex.both(regex.length_between(1, None), regex.other(has_trigger))
        self._lines.append(_terminal("REST", text))
        self._lines.append("rest: REST")

    def _call(self, tag: Tag, trigger: str) -> str:
        parts = (_text(tag.begin[len(trigger) :]), self._schema(tag), _text(tag.end))
        return " ".join(filter(None, parts))

    def _schema(self, tag: Tag) -> str:
        """The name of the schema's first rule; tags of one schema share its rules."""
        compiled = self._schemas.get(tag.schema)
        if compiled is None:
            compiled = self._compiled(tag)
            self._schemas[tag.schema] = compiled
            self._lines.append(compiled.rules(f"s{len(self._schemas) - 1}"))
        for gap in compiled.gaps:
            self._gaps.append(Gap(tag.pointer + gap.pointer, gap.keyword, gap.reason))
        return f"s{list(self._schemas).index(tag.schema)}"

    def _compiled(self, tag: Tag) -> CompiledSchema:
        try:
            return compile_schema(tag.schema, whitespace=self._whitespace)
        except UnsupportedConstraint as error:
            raise UnsupportedConstraint(
                error.reason, pointer=tag.pointer + error.pointer, keyword=error.keyword
            ) from error


def _terminal(name: str, language: Regex) -> str:
    return f"{name}: {plain_text(language)}"


def _text(text: str) -> str:
    return plain_text(regex.literal(text)) if text else ""
