"""Messages and tokens lead to each other, whatever is said, in templates of every family."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat_template import ChatTemplate
from gateway.generation import ChatPrompt
from gateway.prompt_encoding import PromptEncoder, PromptLimits
from gateway.prompt_positions import PromptMap
from gateway.tokenizer import Tokenizer
from runtime.model_source import open_model
from runtime.text_assets import TextAssets
from tests.byte_tokenizer import CHATML as PLAIN
from tests.byte_tokenizer import byte_assets
from tests.model_file import default_model_path
from tests.tool_templates import TEMPLATES

SOURCES = {**TEMPLATES, "plain": PLAIN, "trimming": PLAIN.replace("content']", "content'] | trim")}
texts = st.text("ab :hello\n\u00e9\U0001f30d\u0301<|im_end|>user", max_size=12)
BYTES = byte_assets()


def located(assets: TextAssets, source: str, contents: list[str]) -> tuple[PromptMap, list[bytes]]:
    """The map of a conversation in turns, and the bytes of each of its tokens."""
    tokenizer = Tokenizer(assets)
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    encoder = PromptEncoder(tokenizer, template)
    roles = ("user", "assistant")
    messages: list[dict[str, Any]] = [
        {"role": roles[turn % 2], "content": text} for turn, text in enumerate(contents)
    ]
    prompt = ChatPrompt(tuple(messages))

    async def both() -> tuple[PromptMap, list[bytes]]:
        ((token_ids),) = await encoder.encode([prompt], PromptLimits(100_000))
        return await encoder.locate(prompt, token_ids), list(map(tokenizer.token_bytes, token_ids))

    found = asyncio.run(both())
    encoder.close()
    return found


def check(found: PromptMap, raw: list[bytes], contents: list[str]) -> None:
    """Each content stands where the map says, to its end, and no other place claims to be in it."""
    for index, content in enumerate(contents):
        core = content.strip().encode()
        end = found.token_end(index)
        assert end is not None
        if core:
            whole = b"".join(raw[:end])
            last = raw[end] if end < len(raw) else b""
            # A boundary inside a token is before that token.
            assert any((whole + last[:n]).endswith(core) for n in range(len(last) + 1))
        assert index == 0 or end >= (found.token_end(index - 1) or 0)
    claimed = set()
    for token, own in enumerate(raw):
        place = found.message_at(token)
        if place is None or place.kind != "content":
            continue
        assert place.index is not None
        assert place.offset is not None
        claimed.add(place.index)
        rest = contents[place.index][place.offset :]
        # A token may begin before the content, or within one of its characters.
        begins = any(rest.encode().startswith(own[n:][: len(rest)]) for n in range(len(own)))
        assert begins or own in rest[0].encode()
    assert claimed == {index for index, content in enumerate(contents) if content.strip()}


@given(st.sampled_from(sorted(SOURCES)), st.lists(texts, min_size=1, max_size=5))
@settings(derandomize=True, max_examples=150, deadline=None)
def test_contents_are_where_the_map_says(name: str, contents: list[str]) -> None:
    check(*located(BYTES, SOURCES[name], contents), contents)


@pytest.mark.parametrize(
    "contents",
    [
        ["hi", "Hello there, how can I help you?", "  name 3 cities \n\n in Japan: \U0001f30d "],
        ["user", "assistant", "system"],
        ["a" * 300, "\u65e5\u672c\u8a9e" * 40, "x"],
    ],
)
def test_so_they_are_for_the_default_model(contents: list[str]) -> None:
    assets = open_model(default_model_path()).text
    assert assets.chat_template is not None
    check(*located(assets, assets.chat_template, contents), contents)
