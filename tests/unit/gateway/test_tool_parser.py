"""From the text of an answer to content and calls, for every dialect."""

import json
import re

import pytest

from gateway.tools.calls import ToolFragment
from gateway.tools.dialect import Dialect
from gateway.tools.families import (
    GRANITE,
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    MISTRAL_ARGS,
    PHI,
    PHI_FUNCTOOLS,
    PYTHONIC,
    PYTHONIC_IN_MARKERS,
)
from gateway.tools.parser import ParsedText, ToolTextParser

DIALECTS = (
    HERMES, LLAMA3_JSON, PYTHONIC, PYTHONIC_IN_MARKERS, MISTRAL, MISTRAL_ARGS, GRANITE, PHI,
    PHI_FUNCTOOLS,
)  # fmt: skip
CALLS = [
    ("weather", '{"city": "Paris \\"}])", "at": [1, {"x": null}]}'),
    ("now", "{}"),
    ("weather", '{"city": "é日本", "is_ok": true}'),
]
NAMES = ("weather", "now")


def parser(dialect: Dialect, *, at_start: bool = False, by_token: bool = False) -> ToolTextParser:
    numbers = iter(range(100))
    return ToolTextParser(
        dialect,
        NAMES,
        at_start=at_start,
        by_token=by_token,
        new_call_id=lambda: f"id{next(numbers)}",
    )


def joined(*parts: ParsedText) -> tuple[str, list[tuple[str, str]]]:
    """Content, and the name and arguments of each call. Holds the fragments to their form."""
    calls: list[tuple[str, str]] = []
    for fragment in (fragment for part in parts for fragment in part.fragments):
        if fragment.call_id is not None:
            assert fragment.index == len(calls)
            assert fragment.call_id == f"id{len(calls)}"
            assert fragment.arguments == ""
            assert fragment.name is not None
            calls.append((fragment.name, ""))
        else:
            assert fragment.index == len(calls) - 1
            assert fragment.name is None
            assert fragment.arguments
            calls[-1] = (calls[-1][0], calls[-1][1] + fragment.arguments)
    return "".join(part.content + part.cut for part in parts), calls


def parsed(
    dialect: Dialect, text: str, *, at_start: bool = False
) -> tuple[str, list[tuple[str, str]]]:
    whole = parser(dialect, at_start=at_start)
    return joined(whole.feed(text), whole.finish())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_dialect_writes_is_read_again(dialect: Dialect) -> None:
    reader = parser(dialect)
    assert joined(reader.feed(dialect.block(CALLS)), reader.finish()) == ("", CALLS)
    assert reader.num_complete_calls == 3
    assert not reader.is_truncated


@pytest.mark.parametrize("dialect", [one for one in DIALECTS if one.trigger is not None])
def test_text_may_come_before_a_block(dialect: Dialect) -> None:
    text = f"Let me look <t.{dialect.gap}{dialect.block(CALLS[:1])}"
    assert parsed(dialect, text) == ("Let me look <t.", CALLS[:1])


@pytest.mark.parametrize("dialect", [one for one in DIALECTS if one.trigger is not None])
def test_space_alone_before_a_block_is_no_content(dialect: Dialect) -> None:
    text = f"\n\n{dialect.block(CALLS[:1])}"
    for parts in ([text], list(text)):
        reader = parser(dialect)
        found = joined(*(reader.feed(part) for part in parts), reader.finish())
        assert found == ("", CALLS[:1])
    assert parsed(dialect, "\n\n Sunny.") == ("\n\n Sunny.", [])
    assert parsed(dialect, "\n\n") == ("\n\n", [])


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("at_start", [False, True])
def test_text_without_calls_is_content(dialect: Dialect, *, at_start: bool) -> None:
    text = 'I know: {"name": "x"} [f] <tool_cal\n'
    assert parsed(dialect, text, at_start=at_start) == (text, [])


@pytest.mark.parametrize("dialect", [LLAMA3_JSON, PYTHONIC])
def test_calls_without_a_marker_are_the_whole_answer(dialect: Dialect) -> None:
    text = f"This is how: {dialect.block(CALLS)}"
    assert parsed(dialect, text) == (text, [])


def test_another_function_is_no_call() -> None:
    text = dialect_text = HERMES.block([("other", "{}")])
    assert parsed(HERMES, text) == (dialect_text, [])
    assert parsed(PYTHONIC, "[other(a=1)]") == ("[other(a=1)]", [])


def test_a_trigger_in_text_does_not_hide_the_one_that_counts() -> None:
    text = f"The <tool_call> tag.\n{HERMES.block(CALLS[:1])}"
    assert parsed(HERMES, text) == ("The <tool_call> tag.", CALLS[:1])


def test_where_calls_are_looked_for_at_the_start_a_later_trigger_is_text() -> None:
    text = f'{{"html": "{HERMES.block(CALLS[:1])}"}}'
    assert parsed(HERMES, text, at_start=True) == (text, [])
    assert parsed(HERMES, HERMES.block(CALLS), at_start=True) == ("", CALLS)


def test_the_form_that_llama_prefers_is_understood() -> None:
    text = '{"type": "function", "name": "now", "parameters": {}}; ' + LLAMA3_JSON.block(CALLS[:1])
    assert parsed(LLAMA3_JSON, text) == ("", [("now", "{}"), CALLS[0]])


@pytest.mark.parametrize("dialect", [HERMES, MISTRAL_ARGS, PHI])
def test_with_a_token_for_a_trigger_no_text_is_one(dialect: Dialect) -> None:
    assert dialect.trigger is not None
    block = dialect.block(CALLS[:2])
    reader = parser(dialect, by_token=True)
    parts = [reader.feed(f"a {block} b{dialect.gap}")]
    before, *others = re.split(f"({re.escape(dialect.trigger)})", block)
    assert before == ""
    for piece in others:
        parts.append(reader.trigger() if piece == dialect.trigger else reader.feed(piece))
    assert joined(*parts, reader.finish()) == (f"a {block} b", CALLS[:2])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_arguments_come_as_they_are_written(dialect: Dialect) -> None:
    reader = parser(dialect)
    text = dialect.block([("weather", '{"city": "Paris"}')])
    parts = [reader.feed(character) for character in text]
    fragments = [fragment for part in parts for fragment in part.fragments]
    assert fragments[0] == ToolFragment(0, call_id="id0", name="weather")
    assert "".join(fragment.arguments for fragment in fragments) == '{"city": "Paris"}'
    assert len(fragments) == (2 if dialect.style == "keywords" else 1 + len('{"city": "Paris"}'))


def test_spaces_in_arguments_stay() -> None:
    text = HERMES.block([("now", '{\n  "a" :1,"b":  [ ] }')])
    assert parsed(HERMES, text) == ("", [("now", '{\n  "a" :1,"b":  [ ] }')])


PARIS, CLOCK = '{"name": "weather", "arguments": {"city":"Paris"}}', '{"name":"now","arguments":{}}'
WRAPPED = [
    (f"```json\n{PARIS}\n```", ["weather"]),
    ('```json\n{\n  "name": "now",\n  "arguments": {}\n}\n```', ["now"]),
    (f"```\n{PARIS}\n```", ["weather"]),
    (f"```json\n[\n  {PARIS},\n  {CLOCK}\n]\n```", ["weather", "now"]),
    (f"```json\n{PARIS}\n{CLOCK}\n```", ["weather", "now"]),
    (f"[{PARIS}, {CLOCK}]", ["weather", "now"]),
    (f"<tools>\n{CLOCK}\n</tools>", ["now"]),
    (f"\n\n{CLOCK}", ["now"]),
    (f"{{{CLOCK}}}", ["now"]),
    (f"{PARIS}\n{CLOCK}", ["weather", "now"]),
]


@pytest.mark.parametrize(("text", "names"), WRAPPED)
def test_calls_may_be_wrapped_in_something_else(text: str, names: list[str]) -> None:
    reader = parser(HERMES)
    content, calls = joined(*(reader.feed(character) for character in text), reader.finish())
    assert (content, [name for name, _ in calls]) == ("", names)
    assert reader.num_complete_calls == len(names)
    assert not reader.is_truncated


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "Ann", "age": 3}\n```',
        '```json\n{"name": "now"}\n```',
        f"Like this:\n```json\n{PARIS}\n```",
        '{"arguments": {}, "name": "now"}',
        '{"name": "nowhere", "arguments": {}}',
        "```python\nprint()\n```",
        "<tool_",
        "<tools>",
    ],
)
def test_other_json_in_a_fence_is_an_answer(text: str) -> None:
    assert parsed(HERMES, text) == (text, [])


def test_wrapped_calls_are_cut_like_others() -> None:
    reader = parser(HERMES)
    reader.feed(f"```json\n{PARIS[:-9]}")
    assert (reader.is_truncated, reader.num_complete_calls) == (True, 0)
    assert parsed(HERMES, f"```json\n{PARIS}\n``") == ("", [("weather", '{"city":"Paris"}')])
    assert parsed(HERMES, f"{PARIS}, so") == (", so", [("weather", '{"city":"Paris"}')])
    assert parsed(HERMES, f"{PARIS} so") == (" so", [("weather", '{"city":"Paris"}')])


def test_where_a_call_is_demanded_it_is_not_wrapped() -> None:
    assert parsed(HERMES, CLOCK, at_start=True) == (CLOCK, [])


def test_a_token_of_the_trigger_may_come_first_or_after_what_looked_wrapped() -> None:
    for before in ("", "\n", "```json\n{"):
        reader = parser(HERMES, by_token=True)
        block = HERMES.block(CALLS[1:2]).removeprefix("<tool_call>")
        parts = [reader.feed(before), reader.trigger(), reader.feed(block), reader.finish()]
        assert joined(*parts) == (before.removesuffix("\n"), CALLS[1:2])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("a=1, b='x'", '{"a": 1, "b": "x"}'),
        ("a=True,b=None , c=[1, 'é', {'k': False}]",
         '{"a": true, "b": null, "c": [1, "é", {"k": false}]}'),
        ('a="x, y=)", b={"c": [1, 2]}', '{"a": "x, y=)", "b": {"c": [1, 2]}}'),
        ("a=Paris", '{"a": "Paris"}'),
        ("a=1e400", '{"a": 1e400}'),
        ("a=NaN, b=-Infinity", '{"a": "NaN", "b": "-Infinity"}'),
        ("a=(1e400,)", '{"a": "(1e400,)"}'),
        ("'x', b=2", '{"0": "x", "b": 2}'),
        ("a='it\\'s (ok)'", '{"a": "it\'s (ok)"}'),
        ("a={1, 2}", '{"a": "{1, 2}"}'),
        (" ", "{}"),
    ],
)  # fmt: skip
def test_literals_of_python_become_json(text: str, arguments: str) -> None:
    assert parsed(PYTHONIC, f"[weather({text}), now()]") == (
        "",
        [("weather", arguments), ("now", "{}")],
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_cut_before_a_call_is_told_from_text(dialect: Dialect) -> None:
    forced = parser(dialect, at_start=True)
    text = dialect.opening + dialect.forms[0].before
    assert forced.feed(text).content == ""
    assert forced.finish().cut == text
    free = parser(dialect)
    free.feed("[f" if dialect.trigger is None else "a <")
    assert free.finish().cut == ""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_cut_block_keeps_its_whole_calls_and_is_truncated(dialect: Dialect) -> None:
    text = dialect.block(CALLS[:2])
    for length in range(1, len(text)):
        reader = parser(dialect)
        content, calls = joined(reader.feed(text[:length]), reader.finish())
        assert reader.num_complete_calls <= len(calls) <= 2
        for (name, arguments), (whole_name, whole) in zip(calls, CALLS, strict=False):
            assert name == whole_name
            assert whole.startswith(arguments) or dialect.style == "keywords"
        assert content in ("", text[:length])
        assert (content == "") == bool(calls)
        if calls:
            assert reader.is_truncated is (text[:length] != dialect.block(CALLS[:1]))
        for name, arguments in calls[: reader.num_complete_calls]:
            assert (name, json.loads(arguments)) in [(n, json.loads(a)) for n, a in CALLS]


def test_a_cut_call_with_keywords_shows_what_there_is() -> None:
    assert parsed(PYTHONIC, '[weather(city="Par') == (
        "",
        [("weather", '{"city": "\\"Par"')],
    )


@pytest.mark.parametrize(
    ("text", "content", "names"),
    [
        ('<tool_call>\n{"name": "now", "arguments": {}} and so', " and so", ["now"]),
        ('<tool_call>\n{"name": "now", "arguments": {}, "x": 1}', ', "x": 1}', ["now"]),
        ('<tool_call>\n{"name": "now", "arguments": []}', None, []),
        (HERMES.block(CALLS[1:2]) + "\nDone.", "\nDone.", ["now"]),
        (HERMES.block(CALLS[1:2]) + "\n<tool_call>\nx", "\n</tool_call>\n<tool_call>\nx", ["now"]),
        ("<tool_call>\n" * 3, None, []),
    ],
)  # fmt: skip
def test_what_no_grammar_would_allow_is_content(
    text: str, content: str | None, names: list[str]
) -> None:
    found, calls = parsed(HERMES, text)
    assert (found, [name for name, _ in calls]) == (text if content is None else content, names)


def test_ids_are_unique_and_short_where_templates_demand_it() -> None:
    for dialect, pattern in ((HERMES, r"call_[A-Za-z0-9]{24}"), (MISTRAL, r"[A-Za-z0-9]{9}")):
        reader = ToolTextParser(dialect, NAMES)
        fragments = reader.feed(dialect.block(CALLS)).fragments
        ids = [fragment.call_id for fragment in fragments if fragment.call_id is not None]
        assert len(set(ids)) == 3
        assert all(re.fullmatch(pattern, call_id) for call_id in ids)
