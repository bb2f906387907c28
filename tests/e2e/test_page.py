"""The page at /ui as a browser shows it: it loads, streams, draws and tells, without a fault."""

import json
import re
from typing import Any

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Route, expect

from tests.conformance.target import Target
from tests.e2e.browser import Watched, watched
from tests.e2e.page_playground import ADMIN_KEY, add_fields, admin_client, answered, ask, endless

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

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
    expect(ui.page.get_by_label("Message")).to_be_focused()
    expect(stop).to_be_disabled()
    expect(ui.page.locator("#request-list li").first.locator(".state")).to_have_text("aborted")
    ui.excuse("/v1/chat/completions net::ERR_ABORTED")


def test_a_new_chat_ends_what_runs_and_goes_on_with_none_of_it(ui: Watched) -> None:
    endless(ui, "Go on")
    ui.page.get_by_role("button", name="New chat").click()
    expect(ui.page.get_by_role("button", name="Stop")).to_be_disabled()
    with ui.page.expect_request("**/v1/chat/completions") as asked:
        ask(ui, "Begin")
    body = asked.value.post_data_json
    assert body is not None
    assert body["messages"] == [{"role": "user", "content": "Begin"}]
    expect(ui.page.locator(".turn.assistant")).not_to_have_attribute("aria-busy", "true")
    ui.excuse("net::ERR_ABORTED")


def test_a_running_request_has_a_waterfall_of_its_phases(ui: Watched, keyed_server: Target) -> None:
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
    with admin_client(keyed_server) as client:
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


def test_errors_are_told_where_they_happen_and_in_the_list(
    ui: Watched, keyed_server: Target
) -> None:
    ui.page.locator("summary", has_text="JSON Schema").click()
    ui.page.locator("#schema").fill('{"$ref": "#/nowhere"}')
    turn = answered(ui, "Fail")
    expect(turn.locator(".error")).to_contain_text("#/nowhere")
    expect(turn.locator(".error")).to_contain_text("400, invalid_json_schema")
    expect(ui.page.get_by_label("Message")).to_have_value("Fail")
    with admin_client(keyed_server) as client:
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


def test_the_tree_is_the_one_of_the_cache(ui: Watched, keyed_server: Target) -> None:
    shared = "All of these begin with the same long words, as agents do. " * 3
    for prompt in ("one", "two", "three"):
        ui.page.get_by_role("button", name="New chat").click()
        answered(ui, shared + prompt)
    with admin_client(keyed_server) as client:
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


def test_edges_of_the_tree_are_reached_and_looked_at_by_keys(
    ui: Watched, keyed_server: Target
) -> None:
    answered(ui, "Walk along the tree. " * 4 + "left")
    answered(ui, "Walk along the tree. " * 4 + "right")
    ui.page.get_by_role("button", name="Ask again").click()
    below = ui.page.locator("#tree [role=treeitem][aria-level='2']")
    items = ui.page.locator("#tree [role=treeitem]")
    with admin_client(keyed_server) as client:
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


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(
    browser: Browser, keyed_server: Target, width: int
) -> None:
    with watched(
        browser, keyed_server.base_url, key=ADMIN_KEY, viewport={"width": width, "height": 740}
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
        client.post(
            "/v1/chat/completions", json={}, headers={"authorization": f"Bearer {ADMIN_KEY}"}
        )
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
    browser: Browser, keyed_server: Target, scheme: str
) -> None:
    with watched(browser, keyed_server.base_url, key=ADMIN_KEY, color_scheme=scheme) as ui:
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
