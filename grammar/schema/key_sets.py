"""Sets of property names, as the keywords of objects speak of them."""

from dataclasses import dataclass

from grammar.schema.text_sets import TextSet


@dataclass(frozen=True, slots=True)
class Name:
    """One property."""

    text: str

    def surely_has(self, name: str) -> bool:
        return name == self.text

    def may_have(self, name: str) -> bool:
        return name == self.text


@dataclass(frozen=True, slots=True)
class Matching:
    """All properties whose names are in a set of strings."""

    texts: TextSet

    def surely_has(self, name: str) -> bool:
        return self.texts.surely_has(name)

    def may_have(self, name: str) -> bool:
        return self.texts.may_have(name)


@dataclass(frozen=True, slots=True)
class Others:
    """All properties but those named, and those that match: what `additionalProperties` means."""

    names: frozenset[str]
    patterns: tuple[TextSet, ...]

    def surely_has(self, name: str) -> bool:
        return name not in self.names and not any(p.may_have(name) for p in self.patterns)

    def may_have(self, name: str) -> bool:
        return name not in self.names and not any(p.surely_has(name) for p in self.patterns)


KeySet = Name | Matching | Others
EVERY_KEY = Others(frozenset(), ())
