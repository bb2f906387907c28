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
        """A key that is known, with its colon."""
        if self.is_compact:
            return quoted(f"{json_text}:")
        return f"{quoted(json_text)} {self.colon}"

    def empty(self, brackets: str) -> str:
        """An empty array or object, "[]" or "{}"."""
        return self._pair(brackets[0], brackets[1])

    def regex(self, mark: str) -> str:
        """The separator as a Rust regex, for terminals that hold several items."""
        escaped = f"\\{mark}" if mark in "[]{}" else mark
        if self.is_compact:
            return escaped
        before = SPACES if mark in ",]}:" else ""
        after = SPACES if mark in ",[{:" else ""
        return f"{before}{escaped}{after}"

    def _separator(self, mark: str) -> str:
        if self.is_compact:
            return quoted(mark)
        return self._rules.terminal(f"/{self.regex(mark)}/")

    def _pair(self, first: str, last: str) -> str:
        if self.is_compact:
            return quoted(first + last)
        return self._rules.terminal(f"/\\{first}{SPACES}\\{last}/")
