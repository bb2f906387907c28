"""The separators of JSON, compact or with a bounded amount of whitespace around them."""

from grammar.schema.rules import Rules, quoted

# Enough for a line break and the indentation of fifteen levels; no model can stay in it for ever.
MAX_SPACES = 31
SPACES = f"[ \\t\\n\\r]{{0,{MAX_SPACES}}}"


class Punctuation:
    """Items of rules for each separator."""

    def __init__(self, rules: Rules, *, whitespace: bool) -> None:
        self.is_compact = not whitespace
        self._rules = rules
        self.comma = self._separator(",")
        self.colon = self._separator(":")
        self.open_array = self._separator("[")
        self.close_array = self._separator("]")
        self.open_object = self._separator("{")
        self.close_object = self._separator("}")

    def key(self, json_text: str) -> str:
        """A known key with its colon. Two lexemes: llguidance's lexer takes the longest, so that
        one of both would win against any other key terminal that matches the same key."""
        return f"{quoted(json_text)} {self.colon}"

    def _separator(self, mark: str) -> str:
        if self.is_compact:
            return quoted(mark)
        before = "" if mark in "[{" else SPACES
        after = "" if mark in "]}" else SPACES
        return self._rules.terminal(f"/{before}\\x{{{ord(mark):x}}}{after}/")
