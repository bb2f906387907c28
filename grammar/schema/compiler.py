"""From the text of a JSON Schema to a grammar: the entry to this package."""

from grammar.errors import UnsupportedConstraint
from grammar.schema.lark_emitter import LarkEmitter
from grammar.schema.model import SchemaModel
from grammar.schema.reach import Reach
from grammar.schema.spelling import Speller
from grammar.schema_document import Json, child, parse_schema
from grammar.spec import Gap


class CompiledSchema:
    """A schema's grammar for llguidance, and what is known about it."""

    def __init__(self, model: SchemaModel, *, whitespace: bool) -> None:
        self._model = model
        self._whitespace = whitespace
        self._reach = Reach(model)
        self._speller = Speller(model, self._reach)
        emitter = LarkEmitter(model, self._reach, start="start", whitespace=whitespace)
        self.lark = emitter.emit()
        self.gaps: tuple[Gap, ...] = tuple(map(self._located, emitter.gaps))

    def _located(self, gap: Gap) -> Gap:
        """A gap that came up far from the text is put where its keyword stands first."""
        if gap.pointer:
            return gap
        places = (
            child(pointer, gap.keyword)
            for pointer, schema in self._model.read.items()
            if gap.keyword in schema
        )
        return Gap(next(places, ""), gap.keyword, gap.reason)

    def allows(self, value: Json) -> bool:
        """Whether the value belongs to the schema as it was understood; where there are gaps it may
        say True of a value that does not."""
        return self._speller.text_of(self._model.root, value) is not None

    def spellings(self, value: Json) -> list[str]:
        """Texts of a value in the spelling that the grammar expects, the likeliest first."""
        return self._speller.spellings(value)

    def rules(self, start: str) -> str:
        """The same grammar with `start` as its first rule and as the prefix of all other names."""
        return LarkEmitter(
            self._model, self._reach, start=start, whitespace=self._whitespace
        ).emit()


def not_enforced(gap: Gap) -> UnsupportedConstraint:
    """The refusal for who takes no answers that are only checked."""
    reason = f"the mask cannot enforce it: {gap.reason}; with allow_checked the finished answer is"
    return UnsupportedConstraint(
        f"{reason} validated instead", pointer=gap.pointer, keyword=gap.keyword
    )


def compile_schema(text: str, *, whitespace: bool = False) -> CompiledSchema:
    """Raises: UnsupportedConstraint, with the JSON Pointer of what is malformed or cannot be kept
    even by validation of the finished text."""
    try:
        return CompiledSchema(SchemaModel(parse_schema(text)), whitespace=whitespace)
    except RecursionError as error:
        raise UnsupportedConstraint("the schema is nested too deeply") from error
