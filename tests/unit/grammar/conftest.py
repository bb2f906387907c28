"""The engines over the small vocabulary, each loaded once."""

from functools import cache

import pytest

from grammar.engines import load_engine
from grammar.matcher import GrammarEngine
from grammar.spec import EngineName
from tests.grammar_walk import Texts
from tests.small_vocabulary import small_vocabulary

# Not a multiple of 32, and wider than the tokenizer.
NUM_PADDING = 40


@cache
def _engine(name: EngineName) -> GrammarEngine:
    return load_engine(name, small_vocabulary(num_padding=NUM_PADDING))


@pytest.fixture(params=["llguidance", "xgrammar", "outlines"])
def engine(request: pytest.FixtureRequest) -> GrammarEngine:
    return _engine(request.param)


@pytest.fixture(params=["llguidance", "xgrammar"])
def recursive_engine(request: pytest.FixtureRequest) -> GrammarEngine:
    """Those that can count brackets."""
    return _engine(request.param)


@pytest.fixture
def llguidance() -> GrammarEngine:
    return _engine("llguidance")


@pytest.fixture(scope="session")
def texts() -> Texts:
    return Texts(small_vocabulary(num_padding=NUM_PADDING))
