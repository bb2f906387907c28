"""Chromium without a window, and a page in it that notes whatever goes wrong."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
# A build machine's cores are shared; conditions are met in a fraction of it.
TIMEOUT_MS = 20_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's own. Skips the test where there is none, unless CI says that there must be."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        reason = "no chromium; `make browser` installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    # Its sandbox refuses to run for root, as which containers run tests.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(eq=False)
class Watched:
    """A page, and what went wrong in it: errors and warnings of the console, among them refusals by
    its own policy, exceptions, and requests that failed."""

    page: Page
    base_url: str
    faults: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        self.page.on("requestfailed", self._on_failure)
        self.page.on("request", lambda request: self.asked.append(self._path(request)))

    def open(self, path: str = "/ui") -> None:
        self.page.goto(self.base_url + path)

    def polls(self) -> int:
        """How often it has asked for the data."""
        return sum(path.startswith("/ui/data") for path in self.asked)

    def excuse(self, part: str) -> None:
        """Faults with this text are what the test is about; there has to be one."""
        excused = [fault for fault in self.faults if part in fault]
        assert excused, f"nothing with {part!r} in {self.faults}"
        self.faults = [fault for fault in self.faults if fault not in excused]

    def _path(self, request: Request) -> str:
        return request.url.removeprefix(self.base_url)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text}")

    def _on_failure(self, request: Request) -> None:
        self.faults.append(f"failed: {self._path(request)} {request.failure}")


@contextmanager
def watched(browser: Browser, base_url: str, *, key: str = "", **options: Any) -> Iterator[Watched]:
    """A page of its own, with the key as if it had been typed in before; `options` are the
    context's. At its end nothing may have gone wrong."""
    context = browser.new_context(**options)
    context.set_default_timeout(TIMEOUT_MS)
    if key:
        context.add_init_script(f"sessionStorage.setItem('radixgate-key', '{key}')")
    try:
        seen = Watched(context.new_page(), base_url)
        yield seen
        assert seen.faults == []
    finally:
        context.close()
