"""Which message a token falls in, and where messages end, for templates of several habits."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.chat_template import ChatTemplate
from gateway.generation import ChatPrompt
from gateway.prompt_encoding import PromptEncoder, PromptLimits
from gateway.prompt_positions import MessagePlace, PromptMap
from gateway.tokenizer import Tokenizer
from runtime.gguf_vocabulary import build_tokenizer_json
from runtime.text_assets import TextAssets
from tests.byte_tokenizer import CHATML, byte_assets
from tests.sentencepiece import SPACE, sentencepiece_metadata

LIMITS = PromptLimits(4096)
TRIMMING = CHATML.replace("message['content']", "message['content'] | trim")
# As Qwen's, which leaves the thoughts of earlier answers out.
FORGETFUL = CHATML.replace("message['content']", "message['content'].split('</think>')[-1]")
ESCAPING = CHATML.replace("message['content']", "message['content'] | tojson")
TWICE = CHATML.replace("message['content']", "message['content'] * 2")
SHOUTING = CHATML.replace("message['content']", "message['content'] | upper")
LOOKS_AT_ENDS = CHATML.replace(
    "message['content']", "('[' if message['content'].endswith('!') else '') + message['content']"
)
WITH_TOOLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if loop.first and tools %}\n# Tools\n{{ tools[0] | tojson }}{% endif %}"
    "{% for call in m.tool_calls or [] %}<call>{{ call.function.name }} "
    "{{ call.function.arguments }}</call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHAT = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "a"},
)


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


async def located(
    messages: Sequence[dict[str, Any]],
    template: str = CHATML,
    *,
    assets: TextAssets | None = None,
    keep: int | None = None,
    **options: Any,
) -> tuple[PromptMap, list[str]]:
    """The map of a prompt, and the text up to each of its tokens."""
    tokenizer = Tokenizer(assets or byte_assets())
    encoder = PromptEncoder(tokenizer, ChatTemplate(template, {}))
    prompt = ChatPrompt(tuple(messages), **options)
    ((token_ids),) = await encoder.encode([prompt], replace(LIMITS, keep=keep))
    found = await encoder.locate(prompt, token_ids)
    encoder.close()
    return found, [tokenizer.decode(token_ids[:end]) for end in range(len(token_ids) + 1)]


def index_of(texts: Sequence[str], needle: str) -> int:
    """The token in which the text's first `needle` begins."""
    place = texts[-1].index(needle)
    return next(index for index, text in enumerate(texts[1:]) if len(text) > place)


async def test_a_token_of_a_content_has_its_message_and_its_place_in_it() -> None:
    found, texts = await located(CHAT)
    assert found.message_at(index_of(texts, "Be")) == MessagePlace("content", 0, "system", None, 0)
    assert found.message_at(index_of(texts, "brief.")) == MessagePlace(
        "content", 0, "system", None, 3
    )
    last = len(texts[-1]) - len("a<|im_end|>\n<|im_start|>assistant\n")
    token = next(index for index, text in enumerate(texts) if len(text) == last)
    assert found.message_at(token) == MessagePlace("content", 3, "user", None, 0)


async def test_what_the_template_writes_belongs_to_its_message_or_to_none() -> None:
    found, texts = await located(CHAT)
    places = [found.message_at(index) for index in range(len(texts) - 1)]
    kinds = [(place.kind, place.index) if place else None for place in places]
    order = list(dict.fromkeys(kinds))
    assert order == [
        ("preamble", None),
        ("content", 0),
        ("message", 0),
        ("message", 1),
        ("content", 1),
        ("message", 2),
        ("content", 2),
        ("message", 3),
        ("content", 3),
        ("generation_prompt", None),
    ]
    header = index_of(texts, "user\nhi")
    assert found.message_at(header) == MessagePlace("message", 1, "user")
    assert kinds[header - 2 : header] == [("message", 0), ("message", 1)]


@pytest.mark.parametrize("template", [CHATML, TRIMMING])
async def test_space_around_a_content_is_counted_as_the_client_wrote_it(template: str) -> None:
    found, texts = await located([said("user", "  \n hi \n")], template)
    assert found.message_at(index_of(texts, "hi")) == MessagePlace("content", 0, "user", None, 4)
    end = found.token_end(0)
    assert end is not None
    assert texts[end].endswith("hi")


async def test_contents_end_after_their_last_token() -> None:
    found, texts = await located(CHAT)
    ends = [found.token_end(index) for index in range(4)]
    assert all(
        end is not None and texts[end].endswith(said["content"])
        for end, said in zip(ends, CHAT, strict=True)
    )
    assert ends == sorted(ends, key=lambda end: end or 0)
    assert found.token_end(4) is found.token_end(-1) is found.token_end(0, 0) is None


async def test_parts_of_a_content_have_places_and_ends_of_their_own() -> None:
    parts = [{"type": "text", "text": text} for text in ("one", " ", "three")]
    found, texts = await located([said("user", parts)])
    assert found.message_at(index_of(texts, "three") + 2) == MessagePlace(
        "content", 0, "user", 2, 2
    )
    assert texts[found.token_end(0, 0) or 0].endswith("one")
    assert texts[found.token_end(0, 2) or 0].endswith("one three")
    assert found.token_end(0) == found.token_end(0, 2)
    assert found.token_end(0, 1) is None


async def test_an_end_inside_a_token_is_before_it() -> None:
    parts = [{"type": "text", "text": text} for text in ("hel", "lo")]
    found, texts = await located([said("user", parts)])
    end = found.token_end(0, 0)
    assert end is not None
    assert texts[end].endswith("user\n")
    assert texts[end + 1].endswith("hello")


async def test_a_content_that_appears_elsewhere_is_not_mistaken() -> None:
    found, texts = await located([said("user", "s"), said("assistant", "user"), said("user", "s")])
    for index, suffix in ((0, "user\ns"), (1, "assistant\nuser"), (2, "user\ns")):
        assert texts[found.token_end(index) or 0].endswith(suffix)


async def test_thoughts_that_are_left_out_leave_an_end_and_no_offset() -> None:
    thought = said("assistant", "<think>so</think>yes")
    found, texts = await located([CHAT[1], thought, CHAT[3]], FORGETFUL)
    assert "so" not in texts[-1]
    assert texts[found.token_end(1) or 0].endswith("yes")
    assert found.message_at(index_of(texts, "yes")) == MessagePlace("message", 1, "assistant")


@pytest.mark.parametrize("template", [TWICE, SHOUTING])
async def test_a_content_that_is_rewritten_is_not_guessed(template: str) -> None:
    found, texts = await located(CHAT, template)
    places = [found.message_at(index) for index in range(len(texts) - 1)]
    assert not any(place is not None and place.kind == "content" for place in places)
    # What comes after each message is known all the same: it ends what the template writes so far.
    assert texts[found.token_end(1) or 0].endswith("<|im_end|>\n")


async def test_an_escaped_content_has_an_end_and_a_plain_one_a_place() -> None:
    found, texts = await located([said("user", 'say "x"'), said("user", "plain")], ESCAPING)
    assert texts[found.token_end(0) or 0].endswith('say \\"x\\"')
    assert found.message_at(index_of(texts, "say")) != MessagePlace("content", 0, "user", None, 0)
    assert found.message_at(index_of(texts, "plain")) == MessagePlace("content", 1, "user", None, 0)


async def test_a_template_that_looks_at_the_end_of_contents_is_given_marks_in_front() -> None:
    found, texts = await located([said("user", "go!"), said("user", "go")], LOOKS_AT_ENDS)
    assert found.message_at(index_of(texts, "go!") + 1) == MessagePlace(
        "content", 0, "user", None, 1
    )
    assert texts[found.token_end(1) or 0].endswith("user\ngo")


@pytest.mark.parametrize("text", ["", "I will look."])
async def test_calls_and_tools_belong_to_the_message_they_stand_in(text: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    messages = [CHAT[0], CHAT[1], said("assistant", text, tool_calls=[call]), CHAT[3]]
    found, texts = await located(messages, WITH_TOOLS, tools=(tool,))
    assert found.message_at(index_of(texts, "# Tools")) == MessagePlace("message", 0, "system")
    assert found.message_at(index_of(texts, "<call>")) == MessagePlace("message", 2, "assistant")
    assert texts[found.token_end(2) or 0].endswith("</call><|im_end|>\n")


async def test_many_messages_without_content_cost_few_renderings() -> None:
    num_rendered = 0

    class Counted(ChatTemplate):
        def render(self, *given: Any, **named: Any) -> str:
            nonlocal num_rendered
            num_rendered += 1
            return super().render(*given, **named)

    tokenizer = Tokenizer(byte_assets())
    encoder = PromptEncoder(tokenizer, Counted(CHATML, {}))
    prompt = ChatPrompt(tuple(said("user", "") for _ in range(1_000)))
    ((token_ids),) = await encoder.encode([prompt], PromptLimits(100_000))
    found = await encoder.locate(prompt, token_ids)
    num_rendered = 0
    assert found.message_at(len(token_ids) // 2) == MessagePlace("message", 500, "user")
    assert num_rendered <= 12
    encoder.close()


async def test_a_prompt_that_is_cut_has_places_for_what_is_left() -> None:
    whole, texts = await located(CHAT)
    cut, _ = await located(CHAT, keep=len(texts) - 1 - 30)
    assert [cut.message_at(index) for index in range(20)] == [
        whole.message_at(index + 30) for index in range(20)
    ]
    assert cut.token_end(0) is None
    assert cut.token_end(3) == (whole.token_end(3) or 0) - 30


async def test_a_message_that_is_gone_on_with_ends_with_the_prompt() -> None:
    found, texts = await located(
        [CHAT[1], said("assistant", "hel")], adds_generation_prompt=False, continues_last=True
    )
    assert found.token_end(1) == len(texts) - 1
    assert found.message_at(len(texts) - 2) == MessagePlace("content", 1, "assistant", None, 2)


def sentencepiece_assets() -> TextAssets:
    pieces = [f"{SPACE}a", f"{SPACE}{SPACE}", SPACE, *"abcdefghijklmnopqrstuvwxyz", "as", "us"]
    metadata = sentencepiece_metadata(pieces, user_defined=["\n"], control=["<|im_start|>"])
    return TextAssets(
        tokenizer_json=build_tokenizer_json(metadata),
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        eos_token_ids=(2,),
        bos_token_id=1,
        add_bos=True,
        chat_template=None,
        max_position=64,
    )


@pytest.mark.parametrize("text", ["", "  a hello a<|im_start|>us é🌍\n\n a ", "<s>a", "\n"])
@pytest.mark.parametrize("assets", [byte_assets(add_bos=True), sentencepiece_assets()])
@pytest.mark.parametrize("add_special", [False, True])
def test_offsets_come_with_the_tokens_of_encode(
    assets: TextAssets, text: str, add_special: bool
) -> None:
    tokenizer = Tokenizer(assets)
    token_ids, offsets = tokenizer.encode_with_offsets(text, add_special=add_special)
    assert token_ids == tokenizer.encode(text, add_special=add_special)
    covered = {place for start, end in offsets for place in range(start, end)}
    assert covered == set(range(len(text)))
    assert [end for _, end in offsets] == sorted(end for _, end in offsets)


async def test_places_are_those_of_a_sentencepiece_model_too() -> None:
    found, texts = await located(
        [said("user", "a é as"), said("user", "us")],
        assets=sentencepiece_assets(),
        adds_special=True,
    )
    tokenizer = Tokenizer(sentencepiece_assets())
    assert tokenizer.encode("x", add_special=True)[0] == 1
    end = found.token_end(0)
    assert end is not None
    assert texts[end].endswith("a é as")
    place = found.message_at(end - 1)
    assert place == MessagePlace("content", 0, "user", None, 5)


def test_spaces_are_not_cut_off_the_offsets() -> None:
    assets = byte_assets()
    document = json.loads(assets.tokenizer_json)
    document["model"]["vocab"]["Ġh"] = 263
    document["model"]["merges"].insert(0, ["Ġ", "h"])
    document["post_processor"] = document["decoder"]  # as GPT-2's file has it
    spaced = replace(assets, tokenizer_json=json.dumps(document))
    assert Tokenizer(spaced).encode_with_offsets("a h", add_special=False) == (
        [ord("a"), 263],
        [(0, 1), (1, 3)],
    )
