"""A byte-level vocabulary small enough for unit tests: every byte, some merges, two end tokens."""

import json

from grammar.matcher import Vocabulary

END = 0
END_OF_TURN = 1
START_OF_TURN = 2
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_end|>", "<|im_start|>")
MERGED_WORDS = (
    '{"', '"}', '":', '":"', '","', '":{"', "null", "true", "false", "name", "item", "value",
    "00", "11", "12", "123", "abc", "é", "日本", ", ", "  ",
)  # fmt: skip


def byte_characters() -> list[str]:
    """The 256 printable stand-ins of byte-level BPE, indexed by byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]


def tokenizer_json() -> str:
    """The text of a Hugging Face tokenizer.json, merges built left to right."""
    characters = byte_characters()
    vocab = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *characters))}
    merges: list[list[str]] = []
    for word in MERGED_WORDS:
        symbols = [characters[byte] for byte in word.encode()]
        merged = symbols[0]
        for symbol in symbols[1:]:
            if merged + symbol not in vocab:
                merges.append([merged, symbol])
                vocab[merged + symbol] = len(vocab)
            merged += symbol
    return json.dumps(_document(vocab, merges))


def small_vocabulary(*, num_padding: int = 0) -> Vocabulary:
    """The vocabulary, with logits wider than the tokenizer by `num_padding`."""
    text = tokenizer_json()
    size = len(json.loads(text)["model"]["vocab"])
    return Vocabulary(text, size + num_padding, (END_OF_TURN, END))


def _document(vocab: dict[str, int], merges: list[list[str]]) -> dict[str, object]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index, token in enumerate(SPECIAL_TOKENS)
        ],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": False},
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab,
            "merges": merges,
        },
    }
