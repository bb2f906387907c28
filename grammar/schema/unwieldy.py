"""Patterns whose automaton would be too large to mask with: found by walking along them.

A repetition with bounds within another, over characters that both take, needs a state for each
way to split the text: `(.{1,63}\\.){1,127}` has thousands after a line of text, and a mask looks at
all that tokens could lead to. Such a grammar compiles at once and fails in the middle of an answer.
"""

from functools import lru_cache

from grammar.schema.regex import NOTHING, next_steps, num_alternatives
from grammar.schema.regex_nodes import Alt, And, Cat, Not, Regex, Repeat, sequence

# Of 442 patterns of real schemas one passes 14 alternatives, and that is the one that fails.
MAX_ALTERNATIVES = 32
NUM_STEPS = 40
MIN_BOUND = 8


@lru_cache(maxsize=256)
def is_unwieldy(regex: Regex) -> bool:
    """Whether the alternatives at one place of a text grow beyond what a mask can afford."""
    if not _has_nested_bounds(regex, is_repeated=False):
        return False
    state = regex
    for _ in range(NUM_STEPS):  # each leads on to where most is possible
        ways = [following for _, following in next_steps(state) if following is not NOTHING]
        if not ways:
            return False
        state = max(ways, key=num_alternatives)
        if num_alternatives(state) > MAX_ALTERNATIVES:
            return True
    return False


def _has_nested_bounds(regex: Regex, *, is_repeated: bool) -> bool:
    """Whether a repetition with a bound stands within another repetition."""
    match regex:
        case Repeat():
            is_bounded = (regex.high or 0) >= MIN_BOUND or regex.low >= MIN_BOUND
            if is_repeated and is_bounded:
                return True
            is_many = regex.high is None or regex.high > 1
            return _has_nested_bounds(regex.node, is_repeated=is_repeated or is_many)
        case Alt() | And():
            return any(_has_nested_bounds(i, is_repeated=is_repeated) for i in regex.items)
        case Not():
            return _has_nested_bounds(regex.node, is_repeated=is_repeated)
        case Cat():
            return any(_has_nested_bounds(i, is_repeated=is_repeated) for i in sequence(regex))
    return False
