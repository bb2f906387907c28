"""What docs/observability.md promises beside its generated table exists."""

import re
from pathlib import Path
from xml.etree import ElementTree

from gateway.settings import describe_settings
from telemetry.catalog import METRICS
from telemetry.catalog_document import BEGIN, END
from telemetry.metric_definition import MetricDefinition

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "observability.md").read_text(encoding="utf-8")
MAX_PICTURE_BYTES = 60_000


def prose() -> str:
    """Without the table that is generated."""
    head, _, rest = PAGE.partition(BEGIN)
    return head + rest.partition(END)[2]


def test_every_metric_in_a_query_or_a_sentence_exists() -> None:
    named = set(re.findall(r"\bradixgate_[a-z_]+\b", prose()))
    shown = {name for metric in METRICS for name in names_of(metric)}
    assert named
    assert named <= shown, named - shown


def names_of(metric: MetricDefinition) -> set[str]:
    ends = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ()
    return {metric.exposed_name, *(metric.exposed_name + end for end in ends)}


def test_every_setting_on_the_page_exists() -> None:
    known = {setting.variable for setting in describe_settings()}
    named = set(re.findall(r"\bRADIXGATE_[A-Z_]+\b", PAGE))
    assert {"RADIXGATE_TRACE_CONTENT", "RADIXGATE_TRACE_STEPS"} <= named
    assert named <= known, named - known


def test_the_picture_is_there_small_and_valid() -> None:
    (path,) = re.findall(r"!\[[^]]+\]\((images/trace\.svg)\)", PAGE)
    text = (DOCS / path).read_bytes()
    assert len(text) < MAX_PICTURE_BYTES
    root = ElementTree.fromstring(text)
    bars = [bar for bar in root.iter("{http://www.w3.org/2000/svg}rect") if bar.get("class")]
    assert len(bars) > 10


def test_links_within_the_page_lead_somewhere() -> None:
    titles = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    wanted = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert wanted
    assert wanted <= anchors, wanted - anchors
