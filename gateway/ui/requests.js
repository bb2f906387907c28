"use strict";
// The requests under way and the last ones, each with the phases that its time went into.

const MAX_SHOWN = 50;
const PHASE_CLASSES = new Set([
  "tokenize", "queue", "grammar.compile", "cache.match", "cache.fetch", "prefill", "decode",
  "validate",
]);
// Narrower ones cannot hold their name.
const LABEL_SHARE = 0.08;

class Requests {
  constructor(list, note) {
    this.list = list;
    this.note = note;
    this.rows = new Map();
    this.finished = [];
  }

  forget() {
    this.finished = [];
  }

  show(state) {
    this.finished = [...state.finished.toReversed(), ...this.finished].slice(0, MAX_SHOWN);
    const shown = [...state.requests.toReversed(), ...this.finished];
    const kept = new Map();
    for (const request of shown) {
      const key = [request.id, request.trace_id, request.started_at].join(" ");
      const row = this.rows.get(key) || new RequestRow();
      row.show(request);
      kept.set(key, row);
    }
    this.rows = kept;
    arrange(this.list, [...kept.values()].map((row) => row.item));
    say(this.note, requestsNote(state, shown.length));
  }

  // Opens the request of this trace; whether it is in the list.
  reveal(traceId) {
    const row = [...this.rows.values()].find((row) => row.request.trace_id === traceId);
    if (!row) return false;
    row.details.open = true;
    row.summary.focus();
    row.item.scrollIntoView({ block: "nearest" });
    return true;
  }
}

// Puts the items into this order and moves only those that are not in their place, as a moved
// element loses the focus.
function arrange(list, items) {
  const wanted = new Set(items);
  for (const item of [...list.children]) {
    if (!wanted.has(item)) item.remove();
  }
  items.forEach((item, index) => {
    if (list.children[index] !== item) list.insertBefore(item, list.children[index] || null);
  });
}

function requestsNote(state, numShown) {
  if (!numShown) return "None so far.";
  const more = state.left_out ? `, and ${whole(state.left_out)} more under way` : "";
  const running = counted(state.requests.length, "request");
  return `${running} under way${more}; then the latest that ended.`;
}

class RequestRow {
  constructor() {
    this.state = element("span", { class: "state" });
    this.title = element("span", { class: "grow" });
    this.facts = element("span", { class: "facts" });
    this.bar = drawn("svg", { class: "bar", "aria-hidden": "true" });
    this.summary = element("summary", {}, this.state, this.title, this.facts, this.bar);
    this.body = element("div", { class: "phases" });
    this.details = element("details", {}, this.summary, this.body);
    this.details.addEventListener("toggle", () => this.showBody());
    this.item = element("li", {}, this.details);
    this.request = null;
    this.rows = null;
  }

  show(request) {
    const isOver = this.request !== null && this.request.number !== null;
    if (isOver) return;
    this.request = request;
    say(this.state, request.state);
    this.state.className = `state state-${request.state}`;
    say(this.title, `${request.model} ${request.route}`);
    say(this.facts, requestFacts(request));
    this.bar.replaceChildren(...request.phases.map((phase) => phaseBar(phase, request, true)));
    this.showBody();
  }

  // Rows are replaced and not the table, which may have the focus.
  showBody() {
    if (!this.details.open) return;
    if (!this.rows) {
      this.ids = element("dl", { class: "ids" });
      this.rows = element("tbody");
      this.body.append(this.ids, phaseTable(this.rows));
    }
    this.ids.replaceChildren(...requestIds(this.request));
    this.rows.replaceChildren(...this.request.phases.map((phase) => phaseRow(phase, this.request)));
  }
}

function requestFacts(request) {
  const facts = [milliseconds(request.duration_ms)];
  const open = request.phases.find((phase) => phase.end_ms === null);
  if (open) facts.push(`${open.name} since ${milliseconds(request.duration_ms - open.start_ms)}`);
  if (request.prompt_tokens !== null) facts.push(`${whole(request.prompt_tokens)} prompt`);
  if (request.cached_tokens !== null) facts.push(`${whole(request.cached_tokens)} cached`);
  facts.push(`${whole(request.output_tokens)} out`);
  if (request.ttft_ms !== null) facts.push(`TTFT ${milliseconds(request.ttft_ms)}`);
  if (request.tpot_ms !== null) facts.push(`TPOT ${milliseconds(request.tpot_ms)}`);
  if (request.error !== null) facts.push(`${request.status} ${request.error}`);
  return facts.join(" · ");
}

// One stretch of a request's time, as wide as its share of the whole.
function phaseBar(phase, request, hasLabel) {
  const total = Math.max(request.duration_ms, 0.001);
  const start = share(phase.start_ms / total);
  const width = Math.max(share((phase.end_ms ?? total) / total) - start, 0.002);
  const name = PHASE_CLASSES.has(phase.name) ? phase.name.replace(".", "-") : "other";
  return drawn(
    "svg",
    { x: `${100 * start}%`, width: `${100 * width}%`, height: 18, class: `phase phase-${name}` },
    drawn("rect", { width: "100%", height: "100%" }),
    hasLabel && width >= LABEL_SHARE && drawn("text", { x: 4, y: 13 }, phase.name),
  );
}

// Clocks of two processes may differ a little: nothing is drawn outside.
function share(value) {
  return Math.min(Math.max(value, 0), 1);
}

function requestIds(request) {
  const facts = [
    ["request", request.id], ["trace", request.trace_id], ["tenant", request.tenant],
    ["began", clockTime(request.started_at)], ["ended with", request.finish_reasons.join(", ")],
  ];
  if (request.choices > 1) facts.push(["choices", whole(request.choices)]);
  return facts.filter(([, value]) => value).map(
    ([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)),
  );
}

function phaseTable(rows) {
  const heads = ["Phase", "Waterfall", "From", "Takes", "What"].map(
    (head) => element("th", { scope: "col" }, head),
  );
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), rows);
  return element(
    "div", { class: "scroll", role: "group", "aria-label": "Phases", tabindex: "0" }, table,
  );
}

function phaseRow(phase, request) {
  const isOpen = phase.end_ms === null;
  const took = (isOpen ? request.duration_ms : phase.end_ms) - phase.start_ms;
  const told = Object.entries(phase.attributes).filter(isTold).map(
    ([name, value]) => `${name} ${attribute(value)}`,
  );
  return element(
    "tr", {},
    element("th", { scope: "row" }, phase.name),
    element("td", { class: "waterfall" }, drawn(
      "svg", { class: "bar", "aria-hidden": "true" }, phaseBar(phase, request, false),
    )),
    element("td", { class: "number" }, milliseconds(phase.start_ms)),
    element("td", { class: "number" }, milliseconds(took) + (isOpen ? " so far" : "")),
    element("td", {}, told.join(", ")),
  );
}

// That nothing was preempted or forced goes without saying; that nothing was cached does not.
function isTold([name, value]) {
  return value !== 0 || name === "cache.hit_tokens";
}

function attribute(value) {
  return typeof value === "number" && !Number.isInteger(value) ? value.toFixed(2) : String(value);
}

class Errors {
  constructor(rows, note, region) {
    Object.assign(this, { rows, note, region });
  }

  forget() {
    this.rows.replaceChildren();
  }

  show(errors) {
    for (const error of errors) {
      const cells = [
        clockTime(error.at), String(error.status), error.code, error.route, error.request_id,
        error.trace_id,
      ];
      this.rows.prepend(element("tr", {}, ...cells.map((cell) => element("td", {}, cell))));
    }
    while (this.rows.children.length > MAX_SHOWN) this.rows.lastElementChild.remove();
    const count = this.rows.children.length;
    this.region.hidden = !count;
    const more = `The latest ${whole(count)}; the log and the trace say more.`;
    say(this.note, count ? more : "None so far.");
  }
}
