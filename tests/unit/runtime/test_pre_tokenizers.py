"""Where each family of byte-level tokenizers splits text into words.

The expected words follow from the families' published regexes, read by hand.
"""

import json

import pytest
from tokenizers import Tokenizer

from runtime.errors import ModelError
from runtime.pre_tokenizers import pre_tokenizer

# In GPT-2's alphabet, in which a word shows its bytes: Ġ is a space, Ċ a line feed.
SPLITS = {
    "gpt-2": {
        "a  1234\n": ["a", "Ġ", "Ġ1234", "Ċ"],
        "he'LL I'll": ["he", "'", "LL", "ĠI", "'ll"],
        "x+=1;\n\n y": ["x", "+=", "1", ";", "ĊĊ", "Ġy"],
    },
    "smollm": {"a  1234\n": ["a", "ĠĠ", "1", "2", "3", "4", "Ċ"]},
    "llama-bpe": {
        "a  12345\n": ["a", "Ġ", "Ġ", "123", "45", "Ċ"],
        "he'LL": ["he", "'LL"],
        "x+=1;\n\n y": ["x", "+=", "1", ";ĊĊ", "Ġy"],
        "(word": ["(word"],
    },
    "dbrx": {"a 12345\n": ["a", "Ġ", "123", "45", "Ċ"]},
    "qwen2": {"a 123": ["a", "Ġ", "1", "2", "3"], "e\u0301": ["e", "Ìģ"]},
    "tekken": {
        "HTMLParser's camelCase": ["HTMLParser", "'s", "Ġcamel", "Case"],
        "SHOUT 12 a/\n": ["SHOUT", "Ġ", "1", "2", "Ġa", "/Ċ"],
    },
    "gpt-4o": {
        "Parser's camelCase": ["Parser's", "Ġcamel", "Case"],
        "SHOUT 1234": ["SHOUT", "Ġ", "123", "4"],
    },
    "deepseek-coder": {
        "a\n\nb 12.5": ["a", "Ċ", "Ċ", "b", "Ġ", "1", "2", ".", "5"],
        "x 日本": ["x", "Ġ", "æĹ¥æľ¬"],
    },
    "deepseek-v3": {
        "a 1234 .a\n.foo?": ["a", "Ġ", "123", "4", "Ġ.", "a", "Ċ", ".foo", "?"],
        "x日本y": ["x", "æĹ¥æľ¬", "y"],
    },
    "default": {
        "a 12345!b": ["a", "Ġ", "123", "45", "!", "b"],
        "it's <=": ["it", "'", "s", "Ġ", "<="],
    },
}


def words(text: str, name: str) -> list[str]:
    document = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": pre_tokenizer(name).rules,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    rules = Tokenizer.from_str(json.dumps(document)).pre_tokenizer
    assert rules is not None
    return [word for word, _ in rules.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [(name, text, split) for name, cases in SPLITS.items() for text, split in cases.items()],
)
def test_text_is_split_as_the_family_does(name: str, text: str, expected: list[str]) -> None:
    assert words(text, name) == expected


def test_names_of_one_family_split_alike() -> None:
    families = (("llama-bpe", "llama3", "llama-v3", "falcon3"), ("qwen2", "deepseek-r1-qwen"))
    for first, *others in families:
        assert all(pre_tokenizer(other) == pre_tokenizer(first) for other in others)


def test_a_name_that_is_not_known_is_an_error_with_those_that_are() -> None:
    with pytest.raises(ModelError, match=r"'' is not supported \(supported: dbrx, .*tekken\)"):
        pre_tokenizer("")
