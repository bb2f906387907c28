"""What a person does in the page's playground, and whoever has the keys beside it."""

from typing import Any

import httpx2
from playwright.sync_api import Locator, expect

from tests.conformance.target import Target
from tests.e2e.browser import Watched

# Of the server `keyed_server`.
ADMIN_KEY, USER_KEY = "admin-key", "user-key"


def ask(ui: Watched, prompt: str, *, max_tokens: str = "24") -> Locator:
    """Sends it, and gives the place of the answer."""
    page = ui.page
    num_turns = page.locator(".turn.assistant").count()
    page.get_by_label("Most tokens").fill(max_tokens)
    page.get_by_label("Message").fill(prompt)
    page.get_by_role("button", name="Send", exact=True).click()
    return page.locator(".turn.assistant").nth(num_turns)


def answered(ui: Watched, prompt: str, **parameters: Any) -> Locator:
    """The same, once the answer is complete."""
    turn = ask(ui, prompt, **parameters)
    expect(turn).not_to_have_attribute("aria-busy", "true")
    return turn


def add_fields(ui: Watched, **fields: Any) -> None:
    """What the page has no box for."""
    ui.page.route(
        "**/v1/chat/completions",
        lambda route: route.continue_(post_data={**route.request.post_data_json, **fields}),
    )


def endless(ui: Watched, prompt: str, *, max_tokens: str = "30000") -> Locator:
    """The same, of an answer that is longer than any test lasts and has begun."""
    add_fields(ui, ignore_eos=True)
    turn = ask(ui, prompt, max_tokens=max_tokens)
    expect(turn.locator(".said")).not_to_be_empty()
    return turn


def admin_client(target: Target) -> httpx2.Client:
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    return httpx2.Client(base_url=target.base_url, headers=headers)
