"""The clients people use, run as they use them; docs/compatibility.md says what each does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.target import Target
from tests.e2e.clients.client import CLIENTS, FEATURES, Client
from tests.e2e.clients.environments import BuildError, missing_platform
from tests.e2e.clients.matrix import PAGE, features_on_page, serving_clients, version_row
from tests.e2e.clients.run import run_client
from tests.model_file import needs_model

# An environment may have to be made first.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def target(model_dir: Path) -> Iterator[Target]:
    with serving_clients(model_dir) as target:
        yield target


def marked(client: Client) -> object:
    return pytest.param(client, id=client.name, marks=[pytest.mark.wide] if client.is_wide else [])


@needs_model
@pytest.mark.parametrize("client", [marked(client) for client in CLIENTS])
def test_client_does_what_the_page_says_and_no_less(client: Client, target: Target) -> None:
    reason = missing_platform(client)
    if reason is not None:
        pytest.skip(reason)
    try:
        report = run_client(client, target)
    except BuildError as error:
        pytest.fail(str(error), pytrace=False)
    assert report.failures == {}
    text = PAGE.read_text()
    assert report.features == features_on_page(text, client), "run `make compatibility`"
    assert version_row(report) in text.splitlines(), "run `make compatibility`"


def test_every_client_chats_streams_and_reports_errors() -> None:
    text = PAGE.read_text()
    short = {
        client.name: missing
        for client in CLIENTS
        if (missing := {"chat", "stream", "errors"} - set(features_on_page(text, client)))
    }
    assert short == {}


def test_every_feature_is_done_by_some_client() -> None:
    text = PAGE.read_text()
    done = {feature for client in CLIENTS for feature in features_on_page(text, client)}
    assert done == set(FEATURES)
