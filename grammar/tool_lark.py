"""Tool calls (grammar.tool_calls) in llguidance's Lark dialect, for grammar.llguidance_engine.

Free text up to a trigger is one lexeme, as for structural tags (grammar.tag_lark). A trigger that
is a control token needs none of that: text cannot be one.
"""

from grammar.embedded_schemas import EmbeddedSchemas
from grammar.keyword_arguments import KeywordArguments
from grammar.schema import regex
from grammar.schema.regex import ANY_TEXT, Regex
from grammar.schema.rules import quoted
from grammar.spec import Gap
from grammar.tag_lark import terminal, text_up_to, text_without
from grammar.tool_calls import (
    Answer,
    Call,
    ToolCalls,
    links,
    parse_tool_calls,
    split_at_tokens,
    tag_of,
)
from grammar.wrapped_calls import WrappedCalls


def tool_calls_to_lark(value: str, *, whitespace: bool) -> tuple[str, tuple[Gap, ...]]:
    """The grammar, and what in the schemas it does not enforce.

    Raises: UnsupportedConstraint for what is no such form, or has a schema that is none.
    """
    return _ToolLark(parse_tool_calls(value), whitespace=whitespace).grammar()


class _ToolLark:
    """One use."""

    def __init__(self, union: ToolCalls, *, whitespace: bool) -> None:
        self._union = union
        self._schemas = EmbeddedSchemas(whitespace=whitespace)
        # Python programs have a space there.
        self._comma = "/, ?/" if whitespace else quoted(", ")
        self._lines: list[str] = []
        self._arguments = [self._arguments_of(i, call) for i, call in enumerate(union.calls)]

    def grammar(self) -> tuple[str, tuple[Gap, ...]]:
        start = f"start: {self._start()}"
        lines = [start, *self._lines, *self._schemas.lines]
        return "\n".join(lines), tuple(self._schemas.gaps)

    def _start(self) -> str:
        union = self._union
        if union.content == "none":
            return self._block(union.opening)
        if isinstance(union.content, Answer):
            schema = bytes(union.content.schema).decode()
            answer = self._schemas.rule(schema, "/content/schema")
            return f"{self._block(union.opening)} | {answer}"
        if union.is_leading:
            rest = self._text("REST", self._text_beside_block())
            return f"{rest}? | {self._block_at_start()}"
        wrapped, text = "", ANY_TEXT
        if union.wrapping is not None:
            calls = WrappedCalls(union, union.wrapping, self._arguments)
            wrapped, text = f" | {calls.start()}", calls.other_texts()
            self._lines += calls.lines
        return self._text_and_block(text) + wrapped

    def _text_and_block(self, allowed: Regex) -> str:
        """Any of the allowed texts up to the trigger, then the block, or one without it."""
        union = self._union
        (trigger,) = union.triggers
        if trigger in union.tokens:
            text = self._text("TEXT", regex.both(regex.length_between(1, None), allowed))
            return f"{text}? ({self._block(union.opening)})?"
        before = self._text("UP_TO", regex.both(text_up_to(trigger), allowed))
        rest = self._text("REST", regex.both(text_without(trigger), allowed))
        return f"{rest}? | {before} {self._block(union.opening[len(trigger) :])}"

    def _text_beside_block(self) -> Regex:
        """Text that does not begin as the block does."""
        texts = [trigger for trigger in self._union.triggers if trigger not in self._union.tokens]
        block = regex.cat(regex.union(*map(regex.literal, texts)), ANY_TEXT)
        return regex.both(regex.length_between(1, None), regex.other(block))

    def _text(self, name: str, language: Regex) -> str:
        self._lines.append(terminal(name, language))
        return self._rule(name.lower(), [name])

    def _block(self, opening: str) -> str:
        return self._linked(_joined(self._literal(opening), self._call()))

    def _call(self) -> str:
        """The rule for any call."""
        ways = (
            _joined(self._literal(call.begin), arguments, self._literal(call.end))
            for call, arguments in zip(self._union.calls, self._arguments, strict=True)
        )
        return self._rule("call", list(ways))

    def _block_at_start(self) -> str:
        """Its first lexeme is the trigger: text goes on to match up to the trigger's last
        character, and the longest lexeme is taken."""
        union, ways = self._union, []
        for call, arguments in zip(union.calls, self._arguments, strict=True):
            text = union.opening + call.begin
            trigger = next(trigger for trigger in union.triggers if text.startswith(trigger))
            begin = (self._literal(trigger), self._literal(text[len(trigger) :]))
            ways.append(_joined(*begin, arguments, self._literal(call.end)))
        return self._linked(self._rule("first", ways))

    def _linked(self, first: str) -> str:
        """The first call, and all that may follow it."""
        after, most = links(self._union), self._union.max_calls
        shared, more = self._literal(after.shared), ""
        if most != 1:
            bound = "*" if most is None else f"{{0,{most - 1}}}"
            more = f"({_joined(self._literal(after.more), self._call(), shared)}){bound}"
        return _joined(first, shared, more, self._literal(after.end))

    def _arguments_of(self, index: int, call: Call) -> str:
        tag = tag_of(call, index)
        if call.style == "json":
            return self._schemas.rule(tag.schema, tag.pointer)
        keywords = KeywordArguments(
            tag.schema,
            name=f"k{index}",
            pointer=tag.pointer,
            schemas=self._schemas,
            comma=self._comma,
        )
        rule = keywords.emit()
        self._lines += keywords.lines
        return rule

    def _rule(self, name: str, ways: list[str]) -> str:
        line = f"{name}: {' | '.join(ways)}"
        if line not in self._lines:
            self._lines.append(line)
        return name

    def _literal(self, text: str) -> str:
        """Text and tokens of the vocabulary, in their order."""
        tokens = self._union.tokens
        pieces = split_at_tokens(text, tokens)
        return " ".join(
            f"<[{tokens[piece]}]>" if piece in tokens else quoted(piece) for piece in pieces
        )


def _joined(*items: str) -> str:
    return " ".join(filter(None, items))
