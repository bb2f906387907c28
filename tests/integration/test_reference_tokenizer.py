"""The tokenizer built from the default model's GGUF file is the one `transformers` builds from it.

transformers ignores `tokenizer.ggml.pre` and always splits like GPT-2. So all texts are compared
with our build for `gpt-2`, and those in which splitting digits apart cannot matter (no blank run
before a number, no number that is a token by itself) with the build for the file's own `smollm`.
"""

import re
import warnings
from typing import Any

import pytest
from tokenizers import Tokenizer

from runtime.gguf_file import GgufFile
from runtime.gguf_vocabulary import build_tokenizer_json
from tests.model_file import ROOT, default_model_path, needs_model

TEXTS = (
    "Hello, world! It's a test; we'll see, they've said I'm done.",
    "  leading, trailing and   inner    runs of blanks \t\t and tabs\n\n\n  and lines\r\n end  ",
    "In 1984 there were 12345 people, 3.14159 and 1,000,000; 0x1F and 2e10.",
    "x =   42  and\n\n   7 \t 8",
    "def f(x: int) -> str:\n    return f'{x!r:>10}'  # comment\n\n\nclass A:\n\tpass\n",
    "Größe, naïve café, Ελληνικά, русский, עברית, العربية, हिन्दी, 日本語, 한국어, ไทย",
    "emoji 😀👩‍👩‍👧 flags 🇩🇪 math ∑∂√ ½ ² Ⅷ ٣ zero\u200bwidth nbsp\u00a0here",
    "e\u0301 combining, \ufeff bom, \x00 nul, \x7f del, \ufffd replacement",
    '{"a": [1, 2.5, null], "b": "c\\n", "d": {"e": true}}',
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<|endoftext|><repo_name>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ------------- ############ =======",
    "don't DON'T can't I'LL we're y'all 'tis rock'n'roll ''quoted''",
    "https://example.org/a/b?c=d&e=%20f#g mail@example.org C:\\dir\\file.txt",
    "",
    " ",
    "\n",
)


@pytest.fixture(scope="module")
def reference() -> Any:
    from transformers import AutoTokenizer

    path = default_model_path()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


def build(**changes: str) -> Tokenizer:
    metadata = GgufFile.open(default_model_path()).metadata
    return Tokenizer.from_str(build_tokenizer_json(metadata | changes))


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


@needs_model
@pytest.mark.timeout(60)
def test_every_text_has_the_reference_tokens_under_the_references_splitting(
    reference: Any,
) -> None:
    ours = build(**{"tokenizer.ggml.pre": "gpt-2"})
    for text in (*TEXTS, (ROOT / "LICENSE").read_text()):
        ids = reference.encode(text, add_special_tokens=False)
        assert encode(ours, text) == ids, text
        assert ours.decode(ids, skip_special_tokens=False) == reference.decode(
            ids, clean_up_tokenization_spaces=False
        )


@needs_model
@pytest.mark.timeout(60)
def test_texts_where_digit_splitting_cannot_matter_have_the_reference_tokens(
    reference: Any,
) -> None:
    ours = build()
    alike = [t for t in TEXTS if not re.search(r"\s\s\d|[½²Ⅷ٣]", t)]
    assert len(alike) >= 12
    for text in alike:
        assert encode(ours, text) == reference.encode(text, add_special_tokens=False), text


@needs_model
def test_smollm_splits_digits_off_so_that_blanks_before_them_stay_together() -> None:
    ours = build()
    assert ours.encode("2024").tokens == ["2", "0", "2", "4"]
    assert ours.encode("x  7").tokens == ["x", "ĠĠ", "7"]
