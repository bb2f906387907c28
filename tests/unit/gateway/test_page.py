"""The page as one document: its own scripts and styles are let in by their hashes, no others."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gateway.page import Page, load_page

FOLDER = Path(__file__).parents[3] / "gateway" / "ui"
MAX_LINES = 500
MAX_LINE_LEN = 100
# What makes markup or code of a string.
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser"
    r"|srcdoc|createContextualFragment|setAttribute\(\"on|javascript:"
)


@pytest.fixture(scope="module")
def page() -> Page:
    return load_page()


class Elements(HTMLParser):
    """The attributes of all elements, and what stands in scripts and styles."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self._open: str | None = None
        self.feed(page.body.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._open = tag if tag in self.inline else None
        if self._open is not None:
            self.inline[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = None if tag == self._open else self._open

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.inline[self._open][-1] += data


def policy_of(page: Page) -> dict[str, list[str]]:
    directives = page.headers["content-security-policy"].split("; ")
    return {name: values for name, *values in (one.split() for one in directives)}


def hashes(contents: list[str]) -> list[str]:
    digests = (hashlib.sha256(content.encode()).digest() for content in contents)
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]


def test_the_policy_has_the_hash_of_each_script_and_style_and_nothing_else(page: Page) -> None:
    inline, policy = Elements(page).inline, policy_of(page)
    assert len(inline["script"]) == len(list(FOLDER.glob("*.js"))) > 1
    assert policy["script-src"] == hashes(inline["script"])
    assert policy["style-src"] == hashes(inline["style"])
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == ["'none'"]
    assert policy["connect-src"] == ["'self'"]
    assert policy["require-trusted-types-for"] == ["'script'"]


def test_nothing_of_the_page_is_elsewhere(page: Page) -> None:
    for tag, name, value in Elements(page).attributes:
        assert not name.startswith("on"), (tag, name)
        assert name != "style", tag
        if name in ("src", "href", "action", "srcset"):
            assert value.startswith(("#", "data:image/svg+xml,")), (tag, value)
    for content in Elements(page).inline["style"]:
        assert "url(" not in content
        assert "@import" not in content
    urls = re.findall(r"https?://[^\s'\"]+", page.body.decode())
    assert set(urls) == {"http://www.w3.org/2000/svg"}


def test_each_file_of_the_folder_is_in_the_page_whole(page: Page) -> None:
    inline = Elements(page).inline
    for file in FOLDER.iterdir():
        text = file.read_text()
        assert len(text.splitlines()) <= MAX_LINES, file.name
        if file.suffix != ".html":
            assert max(map(len, text.splitlines())) <= MAX_LINE_LEN, file.name
        if file.suffix in (".js", ".css"):
            kind = "script" if file.suffix == ".js" else "style"
            assert "\n" + text in inline[kind], file.name


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.js")), ids=lambda file: file.name)
def test_no_script_makes_markup_or_code_of_a_string(file: Path) -> None:
    assert not SINKS.search(file.read_text())
    assert file.read_text().startswith('"use strict";\n')


def test_a_browser_takes_the_page_for_what_it_is(page: Page) -> None:
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
