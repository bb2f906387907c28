"""The page of clients: what is written of reports is what is read back."""

import pytest

from tests.e2e.clients.client import CLIENTS, FEATURES
from tests.e2e.clients.matrix import features_on_page, page, version_row
from tests.e2e.clients.run import Report, report_of

SOME = ("chat", "tools", "errors")


def report(index: int, *features: str) -> Report:
    return Report(CLIENTS[index], {"a-package": f"1.{index}"}, features, failures={})


def test_page_gives_back_the_features_of_each_client() -> None:
    text = page([report(0, *SOME), report(1, *FEATURES)])
    assert features_on_page(text, CLIENTS[0]) == SOME
    assert features_on_page(text, CLIENTS[1]) == tuple(FEATURES)


def test_client_that_is_not_on_the_page_does_nothing() -> None:
    assert features_on_page(page([report(0, *SOME)]), CLIENTS[1]) == ()


def test_version_of_a_client_is_in_its_row() -> None:
    row = version_row(report(1, *SOME))
    assert row in page([report(0), report(1, *SOME)]).splitlines()
    assert "a-package 1.1" in row
    assert row != version_row(report(0, *SOME))


def test_report_has_features_in_the_order_of_the_page_and_why_one_failed() -> None:
    lines = [
        '{"packages": {"openai": "3.1"}}',
        '{"feature": "errors", "ok": false, "detail": "no code"}',
        "a line of the client's own",
        '{"feature": "chat", "ok": true, "detail": ""}',
    ]
    found = report_of(CLIENTS[0], "\n".join(lines))
    assert found.packages == {"openai": "3.1"}
    assert found.features == ("chat", "errors")
    assert found.failures == {"errors": "no code"}


@pytest.mark.parametrize("names", [["chatter"], ["chat", "chat"]])
def test_unknown_and_repeated_features_are_no_report(names: list[str]) -> None:
    lines = [f'{{"feature": "{name}", "ok": true, "detail": ""}}' for name in names]
    output = "\n".join(['{"packages": {}}', *lines])
    with pytest.raises(RuntimeError, match="FEATURES"):
        report_of(CLIENTS[0], output)
