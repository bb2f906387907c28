"""Structural tags in llguidance's Lark dialect, for grammar.llguidance_engine.

Free text up to a trigger is one lexeme: the texts in which the trigger ends and none stands
before. No such text goes on as another one, so that a greedy lexer ends each where it must.
"""

from grammar.embedded_schemas import EmbeddedSchemas
from grammar.schema import regex
from grammar.schema.regex import ANY_CHAR, ANY_TEXT, Regex
from grammar.schema.terminals import plain_text
from grammar.spec import Gap
from grammar.tags import Tag, TaggedText, parse_tags


def tags_to_lark(value: str, *, whitespace: bool) -> tuple[str, tuple[Gap, ...]]:
    """The grammar, and what in the schemas it does not enforce.

    Raises: UnsupportedConstraint for what is no structural tag, or has a schema that is none.
    """
    schemas = EmbeddedSchemas(whitespace=whitespace)
    lines = ["start: call* rest?", *_rules(parse_tags(value), schemas)]
    return "\n".join((*lines, *schemas.lines)), tuple(schemas.gaps)


def _rules(tagged: TaggedText, schemas: EmbeddedSchemas) -> list[str]:
    lines, calls = [], []
    for number, trigger in enumerate(tagged.triggers):
        tags = [tag for tag in tagged.tags if tag.begin.startswith(trigger)]
        others = [other for other in tagged.triggers if other != trigger]
        lines.append(terminal(f"UP_TO_{number}", text_up_to(trigger, *others)))
        after = " | ".join(_call(tag, trigger, schemas) for tag in tags)
        calls.append(f"UP_TO_{number} ({after})")
    rest = terminal("REST", text_without(*tagged.triggers))
    return [*lines, f"call: {' | '.join(calls)}", rest, "rest: REST"]


def text_up_to(trigger: str, *others: str) -> Regex:
    """Texts that end with the trigger, with neither it nor another one before."""
    goes_on = regex.cat(_with(trigger, *others), ANY_CHAR)
    return regex.both(regex.cat(ANY_TEXT, regex.literal(trigger)), regex.other(goes_on))


def text_without(*triggers: str) -> Regex:
    """Texts that are not empty and have no trigger."""
    return regex.both(regex.length_between(1, None), regex.other(_with(*triggers)))


def _with(*triggers: str) -> Regex:
    return regex.cat(ANY_TEXT, regex.union(*map(regex.literal, triggers)), ANY_TEXT)


def terminal(name: str, language: Regex) -> str:
    """The definition of a terminal."""
    return f"{name}: {plain_text(language)}"


def _call(tag: Tag, trigger: str, schemas: EmbeddedSchemas) -> str:
    begin, end = _text(tag.begin[len(trigger) :]), _text(tag.end)
    return " ".join(filter(None, (begin, schemas.rule(tag.schema, tag.pointer), end)))


def _text(text: str) -> str:
    return plain_text(regex.literal(text)) if text else ""
