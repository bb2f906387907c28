"""The page where things go wrong: wrong keys, texts with markup, a server that is away."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.conformance.target import Target
from tests.e2e.browser import Watched, watched
from tests.e2e.page_playground import ADMIN_KEY, USER_KEY, admin_client, answered

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

EVIL = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"


def test_the_key_is_asked_for_and_each_kind_is_told_what_it_may(
    browser: Browser, keyed_server: Target
) -> None:
    with watched(browser, keyed_server.base_url) as seen:
        page = seen.page
        seen.open()
        form, message, box = (page.locator(f"#{one}") for one in ("key-form", "key-message", "key"))
        expect(message).to_have_text("This server wants an API key.")
        expect(box).to_be_focused()
        box.fill("wrong-key")
        box.press("Enter")
        expect(message).to_have_text("The server does not know this key.")
        assert page.evaluate("sessionStorage.length") == 0
        box.fill(USER_KEY)
        box.press("Enter")
        expect(message).to_contain_text("admin key only")
        expect(page.locator("#model option")).to_have_count(1)
        expect(page.locator("#tree-note")).to_contain_text("of this key")
        expect(answered(seen, "As a user").locator(".said")).not_to_be_empty()
        box.fill(ADMIN_KEY)
        box.press("Enter")
        expect(form).to_be_hidden()
        expect(page.locator("#server-line")).to_contain_text("engine ready")
        expect(page.locator("#request-list li")).not_to_have_count(0)
        assert ADMIN_KEY not in page.content()
        assert page.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
        page.reload()
        expect(page.locator("#server-line")).to_contain_text("engine ready")
        expect(form).to_be_hidden()
        seen.excuse("status of 401")
        seen.excuse("status of 403")


def evil_answers(base_url: str, page_data: dict[str, Any], cache: dict[str, Any]) -> dict[str, Any]:
    """What a server would say that has markup wherever a text can be."""
    page_data["server"]["models"] = [EVIL]
    for request in page_data["finished"]:
        request.update(model=EVIL, id=EVIL, route=EVIL, error=EVIL, state="ok")
        request["phases"][0].update(name=EVIL, attributes={EVIL: EVIL})
    error = {"number": 10**6, "at": EVIL, "request_id": EVIL, "trace_id": EVIL, "route": EVIL}
    page_data["errors"] = [{**error, "status": 400, "code": EVIL}]
    for node in cache["tree"]["nodes"]:
        node.update(text=EVIL, owner=EVIL)
    delta = {"content": EVIL, "reasoning_content": EVIL}
    call = {"index": 0, "id": "1", "function": {"name": EVIL, "arguments": EVIL}}
    events = [
        {
            "id": EVIL,
            "choices": [{"delta": {**delta, "tool_calls": [call]}, "finish_reason": EVIL}],
        },
        {"error": {"message": EVIL, "type": EVIL, "code": EVIL, "param": EVIL}},
    ]
    return {
        f"{base_url}/ui/data?since=0": json.dumps(page_data),
        f"{base_url}/v1/cache?max_nodes=500": json.dumps(cache),
        f"{base_url}/v1/models": json.dumps({"data": [{"id": EVIL}]}),
        f"{base_url}/v1/chat/completions": "".join(f"data: {json.dumps(e)}\n\n" for e in events),
    }


def test_markup_in_any_text_stays_text(browser: Browser, keyed_server: Target) -> None:
    with admin_client(keyed_server) as client:
        client.post("/v1/chat/completions", json=keyed_server.chat(max_tokens=4))
        page_data, cache = (client.get(path).json() for path in ("/ui/data", "/v1/cache"))
    answers = evil_answers(keyed_server.base_url, page_data, cache)

    def answer(route: Route) -> None:
        route.fulfill(body=answers[route.request.url], content_type="application/json")

    with watched(browser, keyed_server.base_url) as seen:
        page = seen.page
        for url in answers:
            page.route(url, answer)
        page.route(re.compile(r"/ui/data\?since=[1-9]"), lambda route: route.abort())
        seen.open()
        turn = answered(seen, "Anything")
        expect(turn.locator(".said")).to_have_text(EVIL)
        expect(turn.locator(".calls li")).to_have_text(f"{EVIL}({EVIL})")
        expect(turn.locator(".error")).to_contain_text(EVIL)
        page.locator("#request-list summary").first.click()
        page.locator("summary", has_text="The tree as a table").click()
        for place in ("#server-line", "#request-list", "#error-rows", "#tree-rows", "#model"):
            expect(page.locator(place)).to_contain_text(EVIL)
        assert EVIL in (page.locator("#tree g").first.get_attribute("aria-label") or "")
        expect(page.locator("img")).to_have_count(0)
        expect(page.locator("main script")).to_have_count(0)
        assert page.evaluate("window.hacked") is None
        seen.faults = [fault for fault in seen.faults if "net::ERR_FAILED" not in fault]


def test_its_policy_lets_no_other_script_in(browser: Browser, keyed_server: Target) -> None:
    with watched(browser, keyed_server.base_url, key=ADMIN_KEY) as seen:
        seen.open()
        seen.page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.append("window.hacked = 1");
                try { document.body.append(script); } catch { /* refused at once */ }
                try { document.body.innerHTML = "<b id=hacked>x</b>"; } catch { /* the same */ }
            }"""
        )
        assert seen.page.evaluate("window.hacked") is None
        expect(seen.page.locator("#hacked")).to_have_count(0)
        seen.excuse("This document requires 'Trusted")


SET_HIDDEN = """(hidden) => {
    Object.defineProperty(document, "hidden", {configurable: true, value: hidden});
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_it_asks_nothing_while_nobody_looks(ui: Watched) -> None:
    page = ui.page
    page.clock.install()
    page.evaluate(SET_HIDDEN, True)
    pass_time(ui)
    num_polls = ui.polls()
    pass_time(ui)
    assert ui.polls() == num_polls
    with page.expect_response("**/ui/data*"):
        page.evaluate(SET_HIDDEN, False)
    pass_time(ui)
    assert ui.polls() > num_polls + 2


def pass_time(ui: Watched) -> None:
    """Some seconds of the page's clock, with time for requests to be made and answered."""
    for _ in range(5):
        ui.page.clock.run_for(2_000)
        ui.page.evaluate("fetch('health').then((response) => response.text())")


def test_a_server_that_is_away_is_told_and_asked_ever_more_rarely(ui: Watched) -> None:
    page, notice = ui.page, ui.page.locator("#notice")
    away = re.compile("/ui/data")
    page.clock.install()
    page.route(away, lambda route: route.abort())
    for wait_s in (2, 4, 8):
        page.clock.run_for(1000 * wait_s)
        expect(notice).to_have_text(f"The server does not answer. Trying again in {wait_s} s.")
    page.unroute(away)
    page.get_by_role("button", name="Try now").click()
    expect(notice).to_be_empty()
    expect(page.get_by_role("button", name="Try now")).to_be_hidden()
    ui.faults = [fault for fault in ui.faults if "net::ERR_FAILED" not in fault]


def test_after_another_start_of_the_server_nothing_of_the_first_is_shown(ui: Watched) -> None:
    page = ui.page
    answered(ui, "Before")
    expect(page.locator("#request-list li")).not_to_have_count(0)

    def restarted(route: Route) -> None:
        state = route.fetch().json()
        state["server"]["started_at"] = "2001-01-01T00:00:00.000Z"
        route.fulfill(json={**state, "finished": [], "errors": [], "latest": 0})

    page.route(re.compile("/ui/data"), restarted)
    expect(page.locator("#request-list li")).to_have_count(0)
    expect(page.locator("#requests-note")).to_have_text("None so far.")
    page.unroute_all(behavior="wait")
