"""Tokenizers and templates of models that reason: the small ones of the tests, with two markers."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtime.text_assets import TextAssets
from tests.byte_tokenizer import CHATML, byte_assets
from tests.tiny_model import write_tiny_model

THINK, END_THINK = 263, 264
VOCAB_SIZE = 266
MARKERS = {"<think>": THINK, "</think>": END_THINK}

_PROMPT = "<|im_start|>assistant\n"
# The model may open a block itself; the prompt has opened one; thinking is switched off.
MAY_THINK = "{# <think> #}" + CHATML
THINKS = CHATML.replace(_PROMPT, f"{_PROMPT}<think>\n")
THINKS_NOT = CHATML.replace(_PROMPT, f"{_PROMPT}<think>\n\n</think>\n\n")
# Of earlier answers the thoughts are left out, wherever they stand; or shown where they are given
# back, with an empty block for answers without any; or shown in a round of tools only.
_BLOCK = "'<think>\\n' + message['reasoning_content'] + '\\n</think>\\n\\n'"
QWEN_LIKE = MAY_THINK.replace(
    "message['content']", "message['content'].split('</think>\\n\\n')[-1]"
)
KEEPS = MAY_THINK.replace(
    "message['content']",
    f"((({_BLOCK}) if message['reasoning_content'] else '<think>\\n\\n</think>\\n\\n')"
    " if message['role'] == 'assistant' else '') + message['content']",
)
KEEPS_IN_ROUNDS = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ "
    f"{_BLOCK} if message['reasoning_content'] and messages[-1]['role'] == 'tool' else ''"
    " }}{{ message['content'] }}{% for call in message['tool_calls'] or [] %}"
    "<call>{{ call['function'] | tojson }}</call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def reasoning_assets(template: str | None = MAY_THINK, *, is_special: bool = False) -> TextAssets:
    """The byte tokenizer with the markers as added tokens, which are control tokens or not."""
    assets = byte_assets(chat_template=template)
    return replace(
        assets,
        tokenizer_json=_with_markers(assets.tokenizer_json, MARKERS, is_special=is_special),
        vocab_size=VOCAB_SIZE,
    )


def token_ids(text: str) -> list[int]:
    """A byte a token, and one for each marker."""
    return list(_tokens(text.encode()))


def write_reasoning_model(folder: Path, template: str = MAY_THINK) -> Path:
    """The tiny random model, two of whose tokens are the markers."""
    write_tiny_model(folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    by_id = {token_id: piece for piece, token_id in tokenizer["model"]["vocab"].items()}
    replaced = {max(by_id) - 1: "<think>", max(by_id): "</think>"}
    for token_id in replaced:
        del tokenizer["model"]["vocab"][by_id[token_id]]
    del tokenizer["model"]["merges"][-len(replaced) :]  # a piece for each, in the order of ids
    markers = {text: token_id for token_id, text in replaced.items()}
    path.write_text(_with_markers(json.dumps(tokenizer), markers, is_special=False))
    config = folder / "tokenizer_config.json"
    fields = json.loads(config.read_text())
    config.write_text(json.dumps(fields | {"chat_template": template}))
    return folder


def _tokens(raw: bytes) -> Iterator[int]:
    while raw:
        marker = next((m for m in MARKERS if raw.startswith(m.encode())), None)
        yield raw[0] if marker is None else MARKERS[marker]
        raw = raw[1 if marker is None else len(marker) :]


def _with_markers(tokenizer_json: str, markers: dict[str, int], *, is_special: bool) -> str:
    tokenizer: dict[str, Any] = json.loads(tokenizer_json)
    tokenizer["model"]["vocab"] |= markers
    like = tokenizer["added_tokens"][0]
    tokenizer["added_tokens"] += [
        {**like, "id": token_id, "content": text, "special": is_special}
        for text, token_id in markers.items()
    ]
    return json.dumps(tokenizer)
