"""Made-up text and tool definitions of about as many tokens as were asked for, from named seeds.

The words are a token each in the default model's vocabulary and in most others.
"""

import random
from collections.abc import Iterator
from typing import Any

_WORDS = (
    "apple bridge candle doctor engine forest garden harbor island jacket kitchen ladder market"
    " needle office paper river school table uncle valley window yellow winter summer letter"
    " stone music train house field light water paint horse glass bread chair cloud dream earth"
    " flame green heart image knife lemon money night ocean plant queen round sugar tower voice"
    " world youth answer bottle circle dinner family guitar hammer insect jungle leader mirror"
    " nature object picture rocket silver ticket vessel wonder border coffee danger"
).split()


def say(rng: random.Random, num_words: int) -> str:
    """Random words, which are about as many tokens."""
    return " ".join(rng.choice(_WORDS) for _ in range(num_words))


def text_of(num_tokens: int, *names: object) -> str:
    """The same text for the same names, and unlike any other names' from the first words on."""
    return say(_named(names), num_tokens)


def tool_of(num_tokens: int, *names: object) -> dict[str, Any]:
    """A function tool as chat requests have it; its description makes up the number of tokens."""
    rng = _named(names)
    name, parameter = (f"{rng.choice(_WORDS)}_{rng.choice(_WORDS)}" for _ in range(2))
    properties = {parameter: {"type": "string"}}
    function = {
        "name": f"{name}_{names[-1]}",
        "description": say(rng, max(0, num_tokens - _TOOL_FRAME_TOKENS)),
        "parameters": {"type": "object", "properties": properties, "required": [parameter]},
    }
    return {"type": "function", "function": function}


# What braces, keys and names of a definition take; measured with the default model's tokenizer.
_TOOL_FRAME_TOKENS = 60


# So many numbers are shuffled in a few hundredths of a second.
_BLOCK = 100_000


def shuffled(count: int, *names: object) -> Iterator[int]:
    """The numbers below `count` in the order that follows from the names. Of very many each block
    is shuffled by itself, when it is come to: a load may have more than anyone ever sends."""
    for start in range(0, count, _BLOCK):
        order = list(range(start, min(start + _BLOCK, count)))
        _named((*names, start) if start else names).shuffle(order)
        yield from order


def _named(names: tuple[object, ...]) -> random.Random:
    return random.Random("/".join(map(str, names)))
