"""Random texts of a regular language."""

import random

from grammar.schema.regex import NOTHING, Regex, next_steps


def random_text(node: Regex, rng: random.Random, *, max_chars: int) -> str | None:
    """A text of at most `max_chars` characters; None where the walk found no end."""
    text = ""
    while len(text) <= max_chars:
        if node.is_nullable and rng.random() < 0.2:
            return text
        steps = [step for step in next_steps(node) if step[1] is not NOTHING]
        if not steps:
            return text if node.is_nullable else None
        character, node = rng.choice(steps)
        text += character
    return None
