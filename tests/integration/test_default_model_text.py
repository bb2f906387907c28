"""The default model's tokenizer and template against the libraries that define them."""

from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from gateway.chat_template import ChatTemplate
from gateway.detokenizer import Detokenizer
from gateway.tokenizer import Tokenizer
from runtime.model_source import open_model
from runtime.text_assets import TextAssets
from tests.model_file import default_model_path, needs_model

pytestmark = needs_model

TEXTS = [
    "Hello, world!",
    "  two spaces\n\n\tand a tab",
    "naïve café 漢字 🌍👩‍👩‍👧 \u202e",
    "def f(x):\n    return x ** 2  # 1234567890",
    "<|im_start|>user\nhi<|im_end|>",
]
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "hi"}],
    [{"role": "system", "content": "be brief"}, {"role": "user", "content": "é <b>"}],
    [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "sure?"},
    ],
]


@pytest.fixture(scope="module")
def assets() -> TextAssets:
    return open_model(default_model_path()).text


@pytest.fixture(scope="module")
def tokenizer(assets: TextAssets) -> Tokenizer:
    return Tokenizer(assets)


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_way_to_tokens_and_back(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text, add_special=False)
    assert b"".join(map(tokenizer.token_bytes, token_ids)).decode() == text


def test_every_token_has_the_bytes_that_the_library_decodes(
    assets: TextAssets, tokenizer: Tokenizer
) -> None:
    library = tokenizers.Tokenizer.from_str(assets.tokenizer_json)
    ids = range(library.get_vocab_size(with_added_tokens=True))
    decoded = library.decode_batch([[token_id] for token_id in ids], skip_special_tokens=False)
    ours = [tokenizer.token_bytes(token_id).decode(errors="replace") for token_id in ids]
    assert ours == decoded


def test_detokenizing_token_by_token_equals_the_library(
    assets: TextAssets, tokenizer: Tokenizer
) -> None:
    library = tokenizers.Tokenizer.from_str(assets.tokenizer_json)
    # Every 97th token: no language, so characters break everywhere.
    token_ids = list(range(0, library.get_vocab_size(), 97)) * 2
    detokenizer = Detokenizer(tokenizer)
    text = "".join(map(detokenizer.feed, token_ids)) + detokenizer.flush()
    assert text == library.decode(token_ids, skip_special_tokens=True)


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_conversations_are_rendered_as_transformers_renders_them(
    assets: TextAssets, messages: list[dict[str, Any]]
) -> None:
    assert assets.chat_template is not None
    make_library: Any = PreTrainedTokenizerFast  # its constructor has no annotations
    library = make_library(
        tokenizer_object=tokenizers.Tokenizer.from_str(assets.tokenizer_json),
        chat_template=assets.chat_template,
        **assets.special_tokens,
    )
    rendered = library.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ours = ChatTemplate(assets.chat_template, assets.special_tokens).render(messages)
    assert ours == rendered


def test_the_end_of_a_turn_is_a_control_token_without_text(
    assets: TextAssets, tokenizer: Tokenizer
) -> None:
    assert all(tokenizer.is_special(token_id) for token_id in assets.eos_token_ids)
