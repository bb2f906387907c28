"""Lark grammars from clients: read before llguidance sees them, so that nothing in them can undo
what an answer is promised to be.

Refused: options, special tokens, limits and temperatures, other grammars. An inline schema becomes
rules of our own compiler, like any other schema.
"""

from grammar.errors import UnsupportedConstraint
from grammar.gbnf import MAX_CHARS
from grammar.gbnf_checks import bounded
from grammar.lark_reader import START, InlineSchema, LarkReader
from grammar.literals import check_encodable
from grammar.schema.compiler import CompiledSchema, compile_schema
from grammar.spec import Gap


def checked_lark(text: str, *, whitespace: bool) -> tuple[str, tuple[Gap, ...]]:
    """The grammar for llguidance, and what in inline schemas it does not enforce.

    Raises: UnsupportedConstraint, with the line.
    """
    if len(text) > MAX_CHARS:
        raise UnsupportedConstraint(f"a grammar has at most {MAX_CHARS} characters")
    check_encodable(text, "the grammar")
    reader = LarkReader(text)
    try:
        reader.read()
        bounded(reader.rules, START)
    except RecursionError as error:
        raise UnsupportedConstraint("the grammar is nested too deeply") from error
    if reader.schemas and reader.ignores:
        raise UnsupportedConstraint("%ignore would also hold inside of %json: use one of them")
    return _with_schemas(text, reader, whitespace=whitespace)


def _with_schemas(
    text: str, reader: LarkReader, *, whitespace: bool
) -> tuple[str, tuple[Gap, ...]]:
    """Each %json as the name of a rule, whose rules follow at the end."""
    prefix = _free_prefix(text)
    kept: list[str] = []
    rules: list[str] = []
    gaps: list[Gap] = []
    position = 0
    for number, schema in enumerate(reader.schemas):
        compiled = _compiled(schema, whitespace=whitespace)
        name = f"{prefix}{number}"
        kept += (text[position : schema.start], f" {name} ")
        rules.append(compiled.rules(name))
        gaps += compiled.gaps
        position = schema.end
    return "\n".join(("".join((*kept, text[position:])), *rules)), tuple(gaps)


def _free_prefix(text: str) -> str:
    """A beginning of names that the client's grammar does not have."""
    prefix = "schema"
    while prefix in text.lower():
        prefix += "x"
    return prefix


def _compiled(schema: InlineSchema, *, whitespace: bool) -> CompiledSchema:
    try:
        return compile_schema(schema.text, whitespace=whitespace)
    except UnsupportedConstraint as error:
        reason = f"line {schema.line}: {error.reason}"
        raise UnsupportedConstraint(reason, pointer=error.pointer, keyword=error.keyword) from error
