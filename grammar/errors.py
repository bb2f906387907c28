"""Errors of the grammar package.

GrammarError
├── UnsupportedConstraint    cannot be enforced, or is not a constraint at all
│   ├── UnsupportedPattern   of a schema: malformed, or beyond regular languages
│   └── UnsatisfiableConstraint  no output fits, whichever engine were asked
├── ConstraintTooExpensive   took longer or more memory than allowed to compile
└── MatcherFailed            an engine gave up in the middle of an output
"""


class GrammarError(Exception):
    """Base of the package's errors."""


class UnsupportedConstraint(GrammarError):
    """`pointer` is the JSON Pointer of the offending keyword ("" = the whole constraint)."""

    def __init__(self, reason: str, *, pointer: str = "", keyword: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pointer = pointer
        self.keyword = keyword


class UnsupportedPattern(UnsupportedConstraint):
    """The pointer is for whoever knows where the pattern stands."""

    def __init__(self, reason: str, *, pointer: str = "") -> None:
        super().__init__(reason, pointer=pointer, keyword="pattern")


class UnsatisfiableConstraint(UnsupportedConstraint):
    """Nothing satisfies it, whichever engine were asked."""


class ConstraintTooExpensive(GrammarError):
    """`limit` says which limit was passed, with its unit."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"the constraint needs more than {limit} to compile")
        self.limit = limit


class MatcherFailed(GrammarError):
    """The matcher cannot go on; the request must end with an error, never with a free mask."""
