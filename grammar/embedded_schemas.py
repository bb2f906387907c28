"""Schemas inside of a larger grammar: their rules under names of their own, and their gaps."""

from grammar.errors import UnsupportedConstraint
from grammar.schema.compiler import CompiledSchema, compile_schema
from grammar.spec import Gap


class EmbeddedSchemas:
    """Grows while a grammar is written. Rules of the i-th schema begin with s<i>; equal schemas
    are compiled once."""

    def __init__(self, *, whitespace: bool) -> None:
        self._whitespace = whitespace
        self._compiled: dict[str, tuple[str, CompiledSchema]] = {}
        self.lines: list[str] = []
        self.gaps: dict[Gap, None] = {}

    def rule(self, schema: str, pointer: str) -> str:
        """The name of the first rule of a schema that stands at `pointer`.

        Raises: UnsupportedConstraint with the pointer of what is wrong in it.
        """
        if schema not in self._compiled:
            self._compiled[schema] = self._new(schema, pointer)
        name, compiled = self._compiled[schema]
        for gap in compiled.gaps:
            self.gaps[Gap(pointer + gap.pointer, gap.keyword, gap.reason)] = None
        return name

    def _new(self, schema: str, pointer: str) -> tuple[str, CompiledSchema]:
        try:
            compiled = compile_schema(schema, whitespace=self._whitespace)
        except UnsupportedConstraint as error:
            raise UnsupportedConstraint(
                error.reason, pointer=pointer + error.pointer, keyword=error.keyword
            ) from error
        name = f"s{len(self._compiled)}"
        self.lines.append(compiled.rules(name))
        return name, compiled
