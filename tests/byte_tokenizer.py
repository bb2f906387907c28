"""A small real tokenizer for tests: token ids 0 to 255 are the bytes, then specials and merges.

`list(b"text")` is a token list, so scripts of a fake engine are readable.
"""

import json
from dataclasses import replace
from typing import Any

from runtime.text_assets import TextAssets

IM_START, IM_END, END_OF_TEXT = 256, 257, 258
SPECIALS = {IM_START: "<|im_start|>", IM_END: "<|im_end|>", END_OF_TEXT: "<|endoftext|>"}
MERGES = (("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"))
VOCAB_SIZE = 264  # wider than the 263 tokens, as padded embeddings are

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_letters() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    return letters | {byte: chr(256 + index) for index, byte in enumerate(others)}


def byte_tokenizer_json() -> str:
    vocab = {letter: byte for byte, letter in byte_letters().items()}
    vocab |= {first + second: 259 + index for index, (first, second) in enumerate(MERGES)}
    # Added tokens keep their ids only when the vocabulary has them too.
    vocab |= {text: token_id for token_id, text in SPECIALS.items()}
    added: list[dict[str, Any]] = [
        {
            "id": token_id,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token_id, text in SPECIALS.items()
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": byte_level | {"use_regex": True},
            "post_processor": None,
            "decoder": byte_level | {"use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": vocab,
                "merges": [list(pair) for pair in MERGES],
            },
        }
    )


def byte_assets(*, chat_template: str | None = CHATML, add_bos: bool = False) -> TextAssets:
    """Assets as a model file would give them; the end of a turn is `IM_END`."""
    return TextAssets(
        tokenizer_json=byte_tokenizer_json(),
        vocab_size=VOCAB_SIZE,
        eos_token_ids=(IM_END, END_OF_TEXT),
        bos_token_id=END_OF_TEXT,
        add_bos=add_bos,
        chat_template=chat_template,
        max_position=128,
        special_tokens={"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"},
    )


def with_added_tokens(assets: TextAssets, *texts: str, is_special: bool = True) -> TextAssets:
    """The assets with these texts as tokens of their own, from id 263 on."""
    tokenizer = json.loads(assets.tokenizer_json)
    ids = {text: len(tokenizer["model"]["vocab"]) + index for index, text in enumerate(texts)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer["model"]["vocab"] |= ids
    tokenizer["added_tokens"] += [
        {"id": token_id, "content": text, "special": is_special, **flags}
        for text, token_id in ids.items()
    ]
    return replace(
        assets,
        tokenizer_json=json.dumps(tokenizer),
        vocab_size=len(tokenizer["model"]["vocab"]) + 1,
    )
