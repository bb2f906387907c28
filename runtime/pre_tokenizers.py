"""How byte-level BPE vocabularies in GGUF files split text before merging, by the name that the
file gives as `tokenizer.ggml.pre`.

The names, and which of them share rules, are llama.cpp's (src/llama-vocab.cpp); the regexes are
those that the families publish in their tokenizer.json. A name that is not in the table is an
error, as a wrong rule would split text differently from what the model was trained on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.errors import ModelError

_JsonObject = dict[str, Any]

_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3_REGEX = (
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
)
_QWEN2_REGEX = _LLAMA3_REGEX.replace(r"\p{N}{1,3}", r"\p{N}")
# Words that begin with capitals and go on in small letters, and words of capitals alone.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*",
)
_OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
_TEKKEN_REGEX = "|".join((*_CASED_WORDS, r"\p{N}", _OTHERS))
_GPT4O_REGEX = "|".join((*(w + _CONTRACTION + "?" for w in _CASED_WORDS), r"\p{N}{1,3}", _OTHERS))
_GPT2_REGEX = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DEEPSEEK3_REGEX = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`ignores_merges`: a word that is a token is taken as it is, without walking the merges.
    `adds_bos`: what a file means that does not say whether prompts begin with the first token."""

    rules: _JsonObject
    is_normalized: bool = False
    ignores_merges: bool = False
    adds_bos: bool = False

    @property
    def normalizer(self) -> _JsonObject | None:
        """Text is composed (NFC) first, or taken as it is."""
        return {"type": "NFC"} if self.is_normalized else None


def byte_level(*, use_regex: bool) -> _JsonObject:
    """Bytes as printable letters; `use_regex` splits by GPT-2's pattern before."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def pre_tokenizer(name: str) -> PreTokenizer:
    """Raises: ModelError for a name that is not known."""
    if name not in _PRE_TOKENIZERS:
        known = ", ".join(sorted(_PRE_TOKENIZERS))
        raise ModelError(f"the pre-tokenizer {name!r} is not supported (supported: {known})")
    return _PRE_TOKENIZERS[name]


def _sequence(*steps: _JsonObject) -> _JsonObject:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _split(*regexes: str) -> _JsonObject:
    """Each regex splits what the one before left; what none matches stays a word too."""
    splits: list[_JsonObject] = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in regexes
    ]
    return _sequence(*splits, byte_level(use_regex=False))


_DIGITS = _sequence({"type": "Digits", "individual_digits": True}, byte_level(use_regex=True))
_LLAMA3 = PreTokenizer(_split(_LLAMA3_REGEX), ignores_merges=True, adds_bos=True)
_DBRX = PreTokenizer(_split(_LLAMA3_REGEX))
_QWEN2 = PreTokenizer(_split(_QWEN2_REGEX), is_normalized=True)
_GPT4O = PreTokenizer(_split(_GPT4O_REGEX))
_PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "gpt-2": PreTokenizer(byte_level(use_regex=True)),
    **dict.fromkeys(("smollm", "starcoder", "minerva-7b"), PreTokenizer(_DIGITS)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _DBRX),  # Phi-4 is written as dbrx
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2),
    **dict.fromkeys(("gpt-4o", "llama4"), _GPT4O),
    "tekken": PreTokenizer(_split(_TEKKEN_REGEX), ignores_merges=True, adds_bos=True),
    "deepseek-coder": PreTokenizer(
        _split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥\u0800-一가-\ud7ff]+", r"\p{N}")
    ),
    "deepseek-v3": PreTokenizer(
        _split(r"\p{N}{1,3}", "[一-龥\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK3_REGEX)
    ),
    "default": PreTokenizer(
        _split(r"[\p{P}\$\+<=>\^~\|]+", _GPT2_REGEX, r"\p{N}+", "[0-9][0-9][0-9]")
    ),
}
