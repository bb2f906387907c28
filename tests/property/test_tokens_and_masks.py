"""Where no text is forced, a matcher accepts a token exactly where its mask allows it.

runtime/step_sampling.py relies on it: a token that is accepted is never looked up in a mask.
"""

import json
import random
from typing import get_args

import numpy as np
import pytest

from grammar.engines import load_engine
from grammar.matcher import GrammarEngine, MaskRow, Matcher, Vocabulary, mask_words
from grammar.spec import ConstraintSpec, EngineName
from tests.small_vocabulary import small_vocabulary

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "item": {"type": "array", "items": {"type": ["number", "null", "boolean"]}, "maxItems": 3},
        "value": {"enum": ["abc", "ab", "é日本", 12, 123]},
    },
    "required": ["name", "value"],
    "additionalProperties": False,
}
SPECS = [
    ConstraintSpec(kind="json_schema", value=json.dumps(SCHEMA)),
    ConstraintSpec(kind="json_object", value=""),
    ConstraintSpec(kind="regex", value="(abc|item|[0-9]{2,4}é?)+x*"),
    ConstraintSpec(kind="choice", value=json.dumps(["true", "truename", "日本", "日"])),
]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
CASES = [
    (name, spec)
    for name in ENGINES
    for spec in SPECS
    # An object of any depth is no regular language.
    if (name, spec.kind) != ("outlines", "json_object")
]
VOCABULARY = small_vocabulary(num_padding=40)
NUM_WALKS, MAX_STEPS = 6, 40


def allowed_tokens(matcher: Matcher, row: MaskRow, vocabulary: Vocabulary) -> set[int]:
    matcher.fill(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little", count=vocabulary.vocab_size)
    return set(np.flatnonzero(bits).tolist())


def accepted_tokens(matcher: Matcher, vocabulary: Vocabulary) -> set[int]:
    """Asked as step_sampling asks: accepted and taken back, all of the one matcher."""
    accepted = set()
    for token_id in range(vocabulary.vocab_size):
        if matcher.accept((token_id,)):
            accepted.add(token_id)
            matcher.rollback(1)
    return accepted


def check_walk(matcher: Matcher, rng: random.Random, vocabulary: Vocabulary) -> int:
    """Compares along one random output; returns in how many states."""
    row = np.zeros(mask_words(vocabulary.vocab_size), dtype=np.int32)
    num_compared = 0
    for _ in range(MAX_STEPS):
        allowed = allowed_tokens(matcher.fork(), row, vocabulary)
        if not matcher.forced_tokens():
            assert accepted_tokens(matcher, vocabulary) == allowed
            assert allowed_tokens(matcher, row, vocabulary) == allowed
            num_compared += 1
        token_id = rng.choice(sorted(allowed))
        assert matcher.accept((token_id,)) == 1
        if token_id in vocabulary.eos_token_ids:
            break
    return num_compared


@pytest.mark.parametrize(
    ("name", "spec"), CASES, ids=[f"{name}-{spec.kind}" for name, spec in CASES]
)
def test_a_token_is_accepted_exactly_where_its_mask_allows_it(
    name: EngineName, spec: ConstraintSpec
) -> None:
    engine: GrammarEngine = load_engine(name, VOCABULARY)
    pristine = engine.build(engine.prepare(spec))
    rng = random.Random(7)
    num_compared = sum(check_walk(pristine.fork(), rng, VOCABULARY) for _ in range(NUM_WALKS))
    assert num_compared >= NUM_WALKS
