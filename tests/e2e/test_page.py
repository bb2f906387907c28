"""The page at /ui as a browser shows it: it loads, streams, draws and tells, without a fault."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Route, expect

from tests.conformance.target import Target
from tests.e2e.browser import Watched, chromium, watched
from tests.e2e.conftest import EXACT
from tests.e2e.server_process import serving
from tests.key_files import key_file
from tests.model_file import needs_model
from tests.small_png import with_palette

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

ADMIN, USER = "admin-key", "user-key"
PHASES = ["tokenize", "queue", "cache.match", "prefill", "decode"]
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "size": {"enum": ["small", "large"]}},
    "required": ["ok", "size"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Lima", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
# A folder for pictures of the page, which docs show.
SCREENSHOTS = os.environ.get("RADIXGATE_TEST_SCREENSHOTS")
EVIL = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def guarded(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server with an admin key and a user's, which nothing else asks."""
    keys = {ADMIN: {"tenant": "ops", "role": "admin"}, USER: {"tenant": "team"}}
    file = key_file(tmp_path_factory.mktemp("keys"), keys)
    with serving(*EXACT, model=str(tiny_model), key_file=str(file)) as (_, target):
        yield target


@pytest.fixture
def ui(browser: Browser, guarded: Target) -> Iterator[Watched]:
    """The page, opened by an admin, with everything there."""
    with watched(browser, guarded.base_url, key=ADMIN) as seen:
        seen.open()
        expect(seen.page.locator("#model option")).to_have_count(1)
        yield seen


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
    headers = {"authorization": f"Bearer {ADMIN}"}
    return httpx2.Client(base_url=target.base_url, headers=headers)


def test_it_loads_without_a_fault_and_says_what_is_served(
    browser: Browser, tiny_server: Target
) -> None:
    with watched(browser, tiny_server.base_url) as seen:
        seen.open()
        line = seen.page.locator("#server-line")
        expect(line).to_contain_text(f"{tiny_server.model} · engine ready · llama, float32 on cpu")
        expect(seen.page.locator("#tiles li")).to_have_count(6)
        expect(seen.page.get_by_label("Model")).to_have_value(tiny_server.model)
        expect(seen.page.locator("#key-form")).to_be_hidden()
        expect(seen.page.locator("#tree-note")).not_to_have_text("Not asked yet.")


def test_it_works_under_a_proxys_prefix(browser: Browser, tiny_server: Target) -> None:
    base_url = tiny_server.base_url

    def forward(route: Route) -> None:
        route.fulfill(response=route.fetch(url=route.request.url.replace("/llm/", "/")))

    with watched(browser, base_url) as seen:
        seen.page.route(base_url + "/llm/**", forward)
        seen.open("/llm/ui")
        expect(seen.page.locator("#model option")).to_have_count(1)
        expect(seen.page.locator("#tree-note")).not_to_have_text("Not asked yet.")
        assert seen.asked
        assert all(path.startswith("/llm/") for path in seen.asked if not path.startswith("data:"))
        seen.page.unroute_all(behavior="wait")


def test_an_answer_streams_and_the_second_finds_its_prompt_cached(ui: Watched) -> None:
    ui.page.get_by_label("System prompt").fill("Be brief, whatever you are asked about. " * 4)
    first = answered(ui, "Hello?")
    facts = first.locator(".muted").first
    expect(facts).to_have_text(
        re.compile(r"^TTFT [\d.]+ ms · [\d.]+ tokens/s · 24 tokens · 0 of \d+ prompt tokens cached")
    )
    expect(first.locator(".said")).not_to_be_empty()
    ui.page.get_by_role("button", name="New chat").click()
    expect(ui.page.locator(".turn")).to_have_count(0)
    second = answered(ui, "Hello!")
    found = re.search(r"(\d+) of (\d+) prompt tokens cached", second.inner_text())
    assert found is not None
    assert int(found[2]) > int(found[1]) > 100
    expect(ui.page.locator("#tiles")).to_contain_text(
        re.compile(rf"{found[1]} of \d+ prompt tokens")
    )


def test_a_conversation_goes_on_with_what_was_said(ui: Watched) -> None:
    first = answered(ui, "A turn")
    said = first.locator(".said").inner_text()
    with ui.page.expect_request("**/v1/chat/completions") as asked:
        answered(ui, "Another")
    body = asked.value.post_data_json
    assert body is not None
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert body["messages"][1]["content"].split() == said.split()


def test_text_appears_while_it_is_made_and_stop_ends_it(ui: Watched) -> None:
    turn = endless(ui, "Talk for ever")
    stop = ui.page.get_by_role("button", name="Stop")
    expect(turn).to_have_attribute("aria-busy", "true")
    expect(ui.page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    stop.click()
    expect(turn.locator(".error")).to_have_text("Stopped.")
    expect(stop).to_be_disabled()
    expect(ui.page.locator("#request-list li").first.locator(".state")).to_have_text("aborted")
    ui.excuse("/v1/chat/completions net::ERR_ABORTED")


def test_a_running_request_has_a_waterfall_of_its_phases(ui: Watched, guarded: Target) -> None:
    endless(ui, "Run and run")
    request = ui.page.locator("#request-list li").first
    expect(request.locator(".state")).to_have_text("decoding")
    expect(request.locator("summary")).to_contain_text("decode since")
    request.locator("summary").click()
    expect(request.locator("tbody th")).to_have_text(PHASES)
    expect(request.locator("tbody tr").last).to_contain_text("so far")
    bars = request.locator("summary svg.bar > svg")
    expect(bars).to_have_count(len(PHASES))
    expect(bars.last).to_have_class("phase phase-decode")
    expect(bars.last.locator("text")).to_have_text("decode")
    expect(ui.page.locator("#tiles")).to_contain_text("1 in flight")
    with admin_client(guarded) as client:
        shown = client.get("/ui/data").json()["requests"][0]
    expect(request.locator(".ids")).to_contain_text(shown["id"])
    expect(request.locator(".ids")).to_contain_text(shown["trace_id"])
    ui.page.get_by_role("button", name="Stop").click()
    expect(request.locator(".state")).to_have_text("aborted")
    expect(request.locator("tbody tr").last).not_to_contain_text("so far")
    ui.excuse("net::ERR_ABORTED")


def test_an_answer_leads_to_its_phases(ui: Watched) -> None:
    turn = answered(ui, "Lead me")
    trace_id = turn.locator("code").inner_text()
    request = ui.page.locator("#request-list li").first
    expect(request.locator(".state")).to_have_text("ok")
    turn.get_by_role("button", name="Show its phases").click()
    expect(request.locator(".ids")).to_contain_text(trace_id)
    expect(request.locator("summary")).to_be_focused()


def test_the_schema_box_gives_an_answer_that_fits(ui: Watched) -> None:
    ui.page.locator("summary", has_text="JSON Schema").click()
    ui.page.locator("#schema").fill(json.dumps(SCHEMA))
    turn = answered(ui, "As JSON", max_tokens="64")
    answer = json.loads(turn.locator(".said").inner_text())
    assert isinstance(answer["ok"], bool)
    assert answer["size"] in ("small", "large")
    expect(turn).to_contain_text("constraint enforced")
    expect(turn).to_contain_text("finish reason stop")


def test_a_box_that_holds_no_json_says_so_and_sends_nothing(ui: Watched) -> None:
    box = ui.page.locator("#schema")
    ui.page.locator("summary", has_text="JSON Schema").click()
    for text, problem in (("{", "This is no JSON"), ("[1]", "This has to be an object.")):
        box.fill(text)
        ask(ui, "Anything")
        expect(ui.page.locator("#schema-error")).to_contain_text(problem)
        expect(box).to_have_attribute("aria-invalid", "true")
        expect(box).to_be_focused()
    assert not any(path.startswith("/v1/chat") for path in ui.asked)


def test_the_tools_box_shows_the_calls(ui: Watched) -> None:
    ui.page.locator("summary", has_text="Tools").click()
    ui.page.locator("#tools").fill(json.dumps([TOOL]))
    ui.page.get_by_label("Whether they are called").select_option("required")
    add_fields(ui, parallel_tool_calls=False)
    turn = answered(ui, "The weather in Lima", max_tokens="400")
    expect(turn.locator(".calls li").first).to_have_text(
        re.compile(r'^weather\(\{\s*"city"\s*:\s*"(Lima|Oslo)"\s*\}\)$')
    )
    expect(turn).to_contain_text("finish reason tool_calls")


def test_errors_are_told_where_they_happen_and_in_the_list(ui: Watched, guarded: Target) -> None:
    ui.page.locator("summary", has_text="JSON Schema").click()
    ui.page.locator("#schema").fill('{"$ref": "#/nowhere"}')
    turn = answered(ui, "Fail")
    expect(turn.locator(".error")).to_contain_text("#/nowhere")
    expect(turn.locator(".error")).to_contain_text("400, invalid_json_schema")
    expect(ui.page.get_by_label("Message")).to_have_value("Fail")
    with admin_client(guarded) as client:
        told = client.post("/v1/chat/completions", json={"model": "nobody", "messages": []})
    rows = ui.page.locator("#error-rows tr")
    expect(rows.filter(has_text=told.headers["x-request-id"])).to_contain_text(
        told.json()["error"]["code"]
    )
    expect(rows.filter(has_text="invalid_json_schema").first).to_contain_text("400")
    ui.excuse("status of 400")


def shown_tree(ui: Watched) -> list[dict[str, Any]]:
    """The drawn edges, as their table has them."""
    rows = ui.page.locator("#tree-rows tr").all()
    cells = [[cell.text_content() or "" for cell in row.locator("th, td").all()] for row in rows]
    return [
        {"id": row[0], "parent": row[1], "tokens": row[3], "pages": row[4], "hits": row[5]}
        for row in cells
    ]


def test_the_tree_is_the_one_of_the_cache(ui: Watched, guarded: Target) -> None:
    shared = "All of these begin with the same long words, as agents do. " * 3
    for prompt in ("one", "two", "three"):
        ui.page.get_by_role("button", name="New chat").click()
        answered(ui, shared + prompt)
    with admin_client(guarded) as client:
        state = client.get("/v1/cache", params={"max_nodes": 500}).json()
    nodes = state["tree"]["nodes"]
    ui.page.get_by_role("button", name="Ask again").click()
    expect(ui.page.locator("#tree-note")).to_contain_text(
        f"{sum(node['tokens'] for node in nodes):,} tokens"
    )
    expect(ui.page.locator("#tree [role=treeitem]")).to_have_count(len(nodes))
    ui.page.locator("summary", has_text="The tree as a table").click()
    assert shown_tree(ui) == [
        {
            "id": str(node["id"]),
            "parent": "" if node["parent"] is None else str(node["parent"]),
            **{name: f"{node[name]:,}" for name in ("tokens", "pages", "hits")},
        }
        for node in nodes
    ]
    check_widths(ui, nodes)


def check_widths(ui: Watched, nodes: list[dict[str, Any]]) -> None:
    """Each edge is as wide as the tokens from there on, and lies under the one above it."""
    totals = {node["id"]: node["tokens"] for node in nodes}
    for node in reversed(nodes):
        if node["parent"] is not None:
            totals[node["parent"]] += totals[node["id"]]
    whole = sum(totals[node["id"]] for node in nodes if node["parent"] is None)
    assert len({node["parent"] for node in nodes}) > 2, "a tree, and no list"
    boxes = ui.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#tree g")].map((edge) => {
            const {x, y, width} = edge.querySelector("rect").getBoundingClientRect();
            return [edge.dataset.edge, {x, y, width}];
        }))"""
    )
    (full,) = {box["width"] for box in [ui.page.locator("#tree").bounding_box()] if box}
    for node in nodes:
        box = boxes[str(node["id"])]
        assert box["width"] == pytest.approx(full * totals[node["id"]] / whole, abs=1)
        if node["parent"] is not None:
            above = boxes[str(node["parent"])]
            assert box["y"] > above["y"]
            assert above["x"] - 1 <= box["x"] <= above["x"] + above["width"] + 1


def test_edges_of_the_tree_are_reached_and_looked_at_by_keys(ui: Watched, guarded: Target) -> None:
    answered(ui, "Walk along the tree. " * 4 + "left")
    answered(ui, "Walk along the tree. " * 4 + "right")
    ui.page.get_by_role("button", name="Ask again").click()
    below = ui.page.locator("#tree [role=treeitem][aria-level='2']")
    items = ui.page.locator("#tree [role=treeitem]")
    with admin_client(guarded) as client:
        nodes = client.get("/v1/cache", params={"max_nodes": 500}).json()["tree"]["nodes"]
    num_edges = len(nodes)
    expect(items).to_have_count(num_edges)
    expect(ui.page.locator("#tree [tabindex='0']")).to_have_count(1)
    below.first.focus()
    detail = ui.page.locator("#tree-detail")
    expect(detail).to_have_text(below.first.get_attribute("aria-label") or "?")
    ui.page.keyboard.press("ArrowUp")
    focused = ui.page.locator("#tree [role=treeitem]:focus")
    expect(focused).to_have_attribute("aria-level", "1")
    ui.page.keyboard.press("ArrowDown")
    expect(focused).to_have_attribute("aria-level", "2")
    ui.page.keyboard.press("Enter")
    expect(ui.page.get_by_role("button", name="Show all of it")).to_be_visible()
    assert items.count() < num_edges
    expect(items.first).to_be_focused()
    ui.page.keyboard.press("Escape")
    ui.page.keyboard.press("Escape")
    expect(items).to_have_count(num_edges)


def test_the_key_is_asked_for_and_each_kind_is_told_what_it_may(
    browser: Browser, guarded: Target
) -> None:
    with watched(browser, guarded.base_url) as seen:
        page = seen.page
        seen.open()
        form, message, box = (page.locator(f"#{one}") for one in ("key-form", "key-message", "key"))
        expect(message).to_have_text("This server wants an API key.")
        expect(box).to_be_focused()
        box.fill("wrong-key")
        box.press("Enter")
        expect(message).to_have_text("The server does not know this key.")
        assert page.evaluate("sessionStorage.length") == 0
        box.fill(USER)
        box.press("Enter")
        expect(message).to_contain_text("admin key only")
        expect(page.locator("#model option")).to_have_count(1)
        expect(page.locator("#tree-note")).to_contain_text("of this key")
        expect(answered(seen, "As a user").locator(".said")).not_to_be_empty()
        box.fill(ADMIN)
        box.press("Enter")
        expect(form).to_be_hidden()
        expect(page.locator("#server-line")).to_contain_text("engine ready")
        expect(page.locator("#request-list li")).not_to_have_count(0)
        assert ADMIN not in page.content()
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


def test_markup_in_any_text_stays_text(browser: Browser, guarded: Target) -> None:
    with admin_client(guarded) as client:
        client.post("/v1/chat/completions", json=guarded.chat(max_tokens=4))
        page_data, cache = (client.get(path).json() for path in ("/ui/data", "/v1/cache"))
    answers = evil_answers(guarded.base_url, page_data, cache)

    def answer(route: Route) -> None:
        route.fulfill(body=answers[route.request.url], content_type="application/json")

    with watched(browser, guarded.base_url) as seen:
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


def test_its_policy_lets_no_other_script_in(browser: Browser, guarded: Target) -> None:
    with watched(browser, guarded.base_url, key=ADMIN) as seen:
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


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(browser: Browser, guarded: Target, width: int) -> None:
    with watched(
        browser, guarded.base_url, key=ADMIN, viewport={"width": width, "height": 740}
    ) as ui:
        filled(ui)
        wide = ui.page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide == [width, width]


def filled(ui: Watched) -> None:
    """Opens the page, with something in each of its parts, and all that folds opened."""
    ui.open()
    expect(ui.page.locator("#model option")).to_have_count(1)
    answered(ui, "Fill it. " * 10)
    with httpx2.Client(base_url=ui.base_url) as client:
        client.post("/v1/chat/completions", json={}, headers={"authorization": f"Bearer {ADMIN}"})
    expect(ui.page.locator("#error-rows tr")).not_to_have_count(0)
    expect(ui.page.locator("#tree g")).not_to_have_count(0)
    ui.page.evaluate(
        """() => {
            const parts = "section > details, form details, .requests li:nth-child(-n+3) details";
            for (const one of document.querySelectorAll(parts)) one.open = true;
        }"""
    )
    expect(ui.page.locator("#request-list tbody tr")).not_to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_of_accessibility(
    browser: Browser, guarded: Target, scheme: str
) -> None:
    with watched(browser, guarded.base_url, key=ADMIN, color_scheme=scheme) as ui:
        filled(ui)
        found = Axe().run(ui.page).response
        assert [(one["id"], one["nodes"]) for one in found["violations"]] == []
        assert len(found["passes"]) > 30
        ui.page.evaluate("byId('key-form').hidden = false; byId('notice').append('Away.')")
        for part in ("#key-form", "#notice"):
            assert Axe().run(ui.page, context=part).response["violations"] == []


def test_it_can_be_used_with_the_keyboard_alone(ui: Watched) -> None:
    page = ui.page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the playground")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "prompt":
            break
    expect(page.get_by_label("Message")).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.type("By keys alone")
    page.keyboard.press("Control+Enter")
    turn = page.locator(".turn.assistant")
    expect(turn.get_by_role("button")).to_be_visible()
    expect(turn.locator(".said")).not_to_be_empty()
    expect(page.get_by_label("Message")).to_be_focused()


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
