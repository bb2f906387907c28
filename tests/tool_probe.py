"""A probe over a real engine and a small tokenizer, in this process, for tests of tools."""

from functools import cache

from gateway.tokenizer import Tokenizer
from grammar.engines import load_engine
from grammar.errors import ConstraintTooExpensive
from grammar.matcher import GrammarEngine, Vocabulary
from grammar.probe import ProbeReport
from grammar.spec import ConstraintSpec
from runtime.text_assets import TextAssets
from tests.byte_tokenizer import byte_assets, with_added_tokens

# As Qwen has them: added, and not special.
HERMES_TOKENS = ("<tool_call>", "</tool_call>")
OTHER_TOKENS = ("[TOOL_CALLS]", "[ARGS]", "<|tool_call|>", "<|/tool_call|>", "<|python_tag|>")


@cache
def tool_assets(*, has_tokens: bool) -> TextAssets:
    assets = byte_assets()
    if not has_tokens:
        return assets
    assets = with_added_tokens(assets, *HERMES_TOKENS, is_special=False)
    return with_added_tokens(assets, *OTHER_TOKENS)


@cache
def tool_tokenizer(*, has_tokens: bool) -> Tokenizer:
    return Tokenizer(tool_assets(has_tokens=has_tokens))


@cache
def tool_engine(*, has_tokens: bool) -> GrammarEngine:
    assets = tool_assets(has_tokens=has_tokens)
    return load_engine(
        "llguidance",
        Vocabulary(assets.tokenizer_json, assets.vocab_size, assets.eos_token_ids),
    )


class EngineProbe:
    """Prepares and builds as the child of grammar.probe does. Constraints with `costly` in them
    are too expensive."""

    def __init__(self, *, has_tokens: bool = False, costly: str = "\0") -> None:
        self._engine = tool_engine(has_tokens=has_tokens)
        self._costly = costly
        self.checked: list[ConstraintSpec] = []

    async def check(self, spec: ConstraintSpec) -> ProbeReport:
        self.checked.append(spec)
        if self._costly in spec.value:
            raise ConstraintTooExpensive("2.0 s")
        prepared = self._engine.prepare(spec)
        self._engine.build(prepared)
        return ProbeReport(cached=False, compile_ms=1.5, prepared=prepared)
