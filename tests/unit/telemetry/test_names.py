"""Names: each once, and the document lists all of them and no other."""

import re
from pathlib import Path

from telemetry import names

DOCS = Path(__file__).resolve().parents[3] / "docs/observability.md"
CONSTANTS = {key: value for key, value in vars(names).items() if key.isupper()}


def test_no_name_is_defined_twice() -> None:
    assert len(set(CONSTANTS.values())) == len(CONSTANTS)


def test_the_documented_attributes_are_the_defined_ones() -> None:
    defined = {
        value
        for key, value in CONSTANTS.items()
        if key.startswith(("ATTR_", "GEN_AI_", "HTTP_", "ERROR_", "URL_", "SERVER_"))
    }
    documented = set(
        re.findall(
            r"`((?:gen_ai|http|url|server|radixgate|error)\.[\w.]+)`",
            DOCS.read_text(encoding="utf-8"),
        )
    )
    assert documented == defined


def test_the_documented_tree_has_every_span_name() -> None:
    text = DOCS.read_text(encoding="utf-8")
    tree = set(re.findall(r"[├└]─ (\S+)", text))
    spans = {v for k, v in CONSTANTS.items() if k.startswith("SPAN_")}
    assert tree == {"chat"} | spans - {names.SPAN_ENGINE_STEP}
    assert re.search(rf"^{names.SPAN_ENGINE_STEP} ", text, re.MULTILINE)


def test_the_documented_events_are_the_defined_ones() -> None:
    (listed,) = re.findall(r"events: (.+)", DOCS.read_text(encoding="utf-8"))
    events = {v for k, v in CONSTANTS.items() if k.startswith("EVENT_")}
    assert set(listed.split(", ")) == events
