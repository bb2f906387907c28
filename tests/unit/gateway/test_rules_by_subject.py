"""Bodies of several endpoints at one route: the one that a body is about has the say."""

import pytest

from gateway.errors import InvalidRequest
from gateway.parameter_table import Endpoint
from gateway.parameters import UNKNOWN, ParameterRules, RulesBySubject

RULES = RulesBySubject(
    {
        "messages": ParameterRules(Endpoint.CHAT),
        "prompt": ParameterRules(Endpoint.COMPLETIONS),
        "input": ParameterRules(Endpoint.RESPONSES),
    }
)


@pytest.mark.parametrize(
    ("body", "subject"),
    [
        ({"messages": [], "prompt": "a"}, "messages"),
        ({"messages": None, "prompt": "", "input": "a"}, "prompt"),
        ({"input": []}, "input"),
        ({"model": "m"}, None),
    ],
)
def test_the_first_subject_that_is_there_counts(
    body: dict[str, object], subject: str | None
) -> None:
    assert RULES.subject_of(body) == subject


def test_a_name_is_held_to_the_rules_of_its_endpoint() -> None:
    assert RULES.check({"prompt": "a", "suffix": "b"}) == []
    assert RULES.check({"messages": [], "suffix": "b"}) == ["suffix"]
    with pytest.raises(InvalidRequest, match="background"):
        RULES.check({"input": "a", "background": True})
    assert RULES.check({"prompt": "a", "background": True}) == ["background"]
    assert RULES.check({"zebra": 1}) == ["zebra"]


def test_what_any_of_the_endpoints_knows_is_known() -> None:
    names = ["suffix", "zebra", "previous_response_id", "tools"]
    assert RULES.known(names) == ["suffix", UNKNOWN, "previous_response_id", "tools"]
