"""The picture of the page that the docs show, made only where a folder for it is named."""

import os
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser import watched
from tests.e2e.page_playground import answered, endless
from tests.e2e.server_process import serving
from tests.model_file import needs_model
from tests.small_png import with_palette

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SCREENSHOTS = os.environ.get("RADIXGATE_TEST_SCREENSHOTS")
RULES = (
    "You are the help desk of a small library. Answer in one or two sentences. Be polite, never "
    "make up a book, a price or a date, and say so where you do not know something. The library is "
    "open from nine to six, on Saturdays until two, and closed on Sundays."
)
QUESTIONS = (
    "When do you open on Saturday?",
    "When do you open on Sunday?",
    "May I bring my dog?",
    "How long may I keep a book?",
    "How long may I keep a film?",
    "Do you have a room where we can talk?",
)


@needs_model
@pytest.mark.skipif(SCREENSHOTS is None, reason="RADIXGATE_TEST_SCREENSHOTS names no folder")
def test_a_picture_for_the_docs(browser: Browser, model_dir: Path) -> None:
    assert SCREENSHOTS is not None
    window = {"width": 1280, "height": 1420}
    with (
        serving(model_dir=str(model_dir)) as (_, target),
        httpx2.Client(base_url=target.base_url, timeout=60) as client,
        watched(browser, target.base_url, viewport=window) as seen,
    ):
        seen.open()
        expect(seen.page.locator("#model option")).to_have_count(1)
        client.post("/v1/chat/completions", json=target.chat("x" * 100_000))
        for question in QUESTIONS:
            messages = [
                {"role": "system", "content": RULES}, {"role": "user", "content": question}
            ]  # fmt: skip
            body = {"model": target.model, "messages": messages, "max_tokens": 60}
            assert client.post("/v1/chat/completions", json=body).status_code == 200
            with seen.page.expect_response("**/ui/data*"):
                pass  # so that the small curves have a course
        seen.page.get_by_label("System prompt").fill(RULES)
        seen.page.get_by_label("Temperature").fill("0.4")
        answered(seen, QUESTIONS[0], max_tokens="60")
        endless(seen, "Tell me a long story about a book that was lost.", max_tokens="4000")
        request = seen.page.locator("#request-list li")
        expect(request.first.locator(".state")).to_have_text("decoding")
        request.nth(1).locator("summary").click()
        expect(seen.page.locator("#tree g")).not_to_have_count(0)
        seen.page.locator("#tree g").first.hover()
        picture = with_palette(seen.page.screenshot())
        (Path(SCREENSHOTS) / "page.png").write_bytes(picture)
        seen.page.get_by_role("button", name="Stop").click()
        expect(request.first.locator(".state")).to_have_text("aborted")
        seen.excuse("net::ERR_ABORTED")
