"""Which dialect a chat template speaks, told from what it says of calls."""

import pytest

from gateway.settings import Settings
from gateway.tools.dialect import Dialect, short_call_id
from gateway.tools.families import (
    GRANITE,
    GRANITE_OLD,
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    MISTRAL_ARGS,
    MISTRAL_SPACED,
    PHI,
    PHI_FUNCTOOLS,
    PYTHONIC,
    PYTHONIC_IN_MARKERS,
    find_dialect,
)


@pytest.mark.parametrize(
    ("template", "dialect"),
    [
        (None, HERMES),
        ("<|im_start|>{{ m.role }}", HERMES),
        ("call them in <tool_call></tool_call> tags", HERMES),
        ("<|start_of_role|> <tool_call>\\n{...}\\n</tool_call>", HERMES),
        ("'[TOOL_CALLS]['", MISTRAL),
        ("'[TOOL_CALLS] ['", MISTRAL_SPACED),
        ("'[TOOL_CALLS]' + name + '[ARGS]' + arguments", MISTRAL_ARGS),
        ("<|start_of_role|> begin with <|tool_call|>", GRANITE),
        ("<|start_of_role|> begin with <tool_call>", GRANITE_OLD),
        ("<|tool|>{{ m.tools }}<|/tool|>", PHI),
        ("<|/tool|> formatted as functools[{...}]", PHI_FUNCTOOLS),
        ("[func_name1(params_name1=params_value1, ...)]", PYTHONIC),
        ("<|tool_call_start|>[...]<|tool_call_end|>", PYTHONIC_IN_MARKERS),
        ("ipython '{\"name\": \"' + name + '\", ' '\"parameters\": '", LLAMA3_JSON),
    ],
)
def test_a_template_speaks_the_dialect_of_its_family(
    template: str | None, dialect: Dialect
) -> None:
    assert find_dialect("auto", template) == dialect


def test_a_setting_wins_and_takes_the_variant_that_fits() -> None:
    assert find_dialect("pythonic", "<tool_call></tool_call>") == PYTHONIC
    assert find_dialect("mistral", None) == MISTRAL
    assert find_dialect("mistral", "[TOOL_CALLS] [") == MISTRAL_SPACED
    assert find_dialect("granite", None) == GRANITE
    assert Settings.load({"RADIXGATE_TOOL_DIALECT": "phi"}, {}).tool_dialect == "phi"


def test_an_id_is_shortened_to_the_same_letters_each_time() -> None:
    assert short_call_id("abcDEF123") == "abcDEF123"
    found = {short_call_id(one) for one in ("call_1", "call_2", "abcDEF12-", "", "é" * 9, "\ud800")}
    assert len(found) == 6
    assert all(len(one) == 9 and one.isascii() and one.isalnum() for one in found)
    assert short_call_id("call_1") == short_call_id("call_1")
