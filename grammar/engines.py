"""From an engine's name to the engine: the only place that knows which library stands behind it."""

from typing import assert_never

from grammar.matcher import GrammarEngine, Vocabulary
from grammar.spec import EngineName


def load_engine(name: EngineName, vocabulary: Vocabulary) -> GrammarEngine:
    """Imports the library only now (xgrammar: about 2 s and 270 MB). Raises: GrammarError."""
    match name:
        case "llguidance":
            from grammar.llguidance_engine import LLGuidanceEngine

            return LLGuidanceEngine(vocabulary)
        case "xgrammar":
            from grammar.xgrammar_engine import XGrammarEngine

            return XGrammarEngine(vocabulary)
        case "outlines":
            from grammar.outlines_engine import OutlinesEngine

            return OutlinesEngine(vocabulary)
    assert_never(name)
