"""The page of GET /ui: one document, made of the files in gateway/ui/ when the server starts, and
the headers that let it run its own script and nothing else."""

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

_LINK = re.compile(r'<link rel="stylesheet" href="([\w.]+)">')
_SCRIPT = re.compile(r'<script src="([\w.]+)"></script>')


@dataclass(frozen=True, slots=True)
class Page:
    """`headers` allow scripts and styles by their hashes alone."""

    body: bytes
    headers: dict[str, str]


def load_page() -> Page:
    """index.html with the style sheet and the scripts that it names in place of their names, so
    that one answer is the whole page. Opened as a file it is the same page."""
    folder = resources.files("gateway") / "ui"
    text = (folder / "index.html").read_text("utf-8")
    hashes: dict[str, list[str]] = {"script": [], "style": []}

    def inline(found: re.Match[str], tag: str) -> str:
        content = _text(folder, found[1])
        # Either would end the element early, or begin a comment that hides its end.
        assert not re.search(f"</{tag}|<!--", content), found[1]
        hashes[tag].append(_hash(content))
        return f"<{tag}>{content}</{tag}>"

    text = _LINK.sub(lambda found: inline(found, "style"), text)
    text = _SCRIPT.sub(lambda found: inline(found, "script"), text)
    return Page(text.encode(), _headers(scripts=hashes["script"], styles=hashes["style"]))


def _text(folder: Traversable, name: str) -> str:
    return "\n" + (folder / name).read_text("utf-8")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _headers(*, scripts: list[str], styles: list[str]) -> dict[str, str]:
    policy = (
        "default-src 'none'",
        f"script-src {' '.join(scripts)}",
        f"style-src {' '.join(styles)}",
        "connect-src 'self'",
        "img-src data:",  # the icon
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No text may become markup or script, whatever the page's own script does.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": "; ".join(policy),
        "cache-control": "no-cache",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
