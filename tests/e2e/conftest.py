"""The servers that tests share, started when a test first needs one, and their output."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.conformance.target import Target
from tests.e2e.browser import Watched, chromium, watched
from tests.e2e.page_playground import ADMIN_KEY, USER_KEY
from tests.e2e.server_process import running, serving
from tests.key_files import key_file
from tests.model_file import default_model_path
from tests.tiny_model import write_tiny_model

# Their assertions shall say what differed, as those of test modules do.
pytest.register_assert_rewrite(
    "tests.conformance.malformed_bodies",
    "tests.conformance.openai_client",
    "tests.conformance.raw_streams",
    "tests.sse_machine",
)

# float32 gives the same tokens whatever else is computed; one thread leaves a core for the tests.
EXACT = ("--dtype", "float32", "--num-threads", "1")
TINY_MAX_POSITION = 32768


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for server in running:
            report.sections.append((f"server {server.pid}", server.output()))
    return report


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a server that is given no model finds the default one."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "smollm2-135m-instruct.gguf").symlink_to(default_model_path().absolute())
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with a long context, so that a request can outlast any test."""
    return write_tiny_model(
        tmp_path_factory.mktemp("tiny") / "tiny", max_position=TINY_MAX_POSITION
    )


@pytest.fixture(scope="session")
def server(model_dir: Path) -> Iterator[Target]:
    """The default model. Tests that use it carry needs_model."""
    with serving(*EXACT, model_dir=str(model_dir)) as (_, target):
        yield target


@pytest.fixture(scope="session")
def tiny_server(tiny_model: Path) -> Iterator[Target]:
    """The tiny random model, many times as fast."""
    with serving(*EXACT, model=str(tiny_model)) as (_, target):
        yield target


@pytest.fixture(scope="session")
def keyed_server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server with an admin's key and a user's, for the tests of the page alone."""
    keys = {ADMIN_KEY: {"tenant": "ops", "role": "admin"}, USER_KEY: {"tenant": "team"}}
    file = key_file(tmp_path_factory.mktemp("keys"), keys)
    with serving(*EXACT, model=str(tiny_model), key_file=str(file)) as (_, target):
        yield target


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for longer than a module, as asynchronous tests cannot run beside it."""
    with chromium() as started:
        yield started


@pytest.fixture
def ui(browser: Browser, keyed_server: Target) -> Iterator[Watched]:
    """The page, opened by an admin, with everything there."""
    with watched(browser, keyed_server.base_url, key=ADMIN_KEY) as seen:
        seen.open()
        expect(seen.page.locator("#model option")).to_have_count(1)
        yield seen
