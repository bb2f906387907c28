"use strict";
// The radix tree as an icicle: an edge is as wide as the tokens of all that is cached from it on,
// and lies under the edge that it goes on from.

const ROW_HEIGHT = 26;
// Deeper edges are drawn once one looks closer.
const MAX_ROWS = 24;
const LABEL_WIDTH = 0.05;
const HEAT_STEPS = 5;

// Edges with `children`, `total` tokens from there on, `depth`, and their place: `x` and `width` as
// shares of the tokens of `roots`.
function plantTree(nodes) {
  const edges = nodes.map((node) => ({ ...node, children: [], total: node.tokens, depth: 1 }));
  const byNumber = new Map(edges.map((edge) => [edge.id, edge]));
  const roots = [];
  for (const edge of edges) {
    const parent = byNumber.get(edge.parent);
    edge.above = parent || null;
    if (parent) edge.depth = parent.depth + 1;
    (parent ? parent.children : roots).push(edge);
  }
  // Parents come before their children, so that backwards all sums below are known.
  for (const edge of edges.toReversed()) {
    if (edge.above) edge.above.total += edge.total;
  }
  for (const edge of edges) edge.children.sort((a, b) => a.id - b.id);
  roots.sort((a, b) => a.owner.localeCompare(b.owner) || a.id - b.id);
  return { edges, roots };
}

// What is drawn of the roots, as rows from the top: a list and no recursion, as trees are deep.
function placeEdges(roots) {
  const total = roots.reduce((sum, edge) => sum + edge.total, 0) || 1;
  const placed = [];
  const waiting = [{ edges: roots, x: 0, row: 0 }];
  while (waiting.length) {
    const { edges, x, row } = waiting.shift();
    let at = x;
    for (const edge of edges) {
      const width = edge.total / total;
      placed.push({ edge, x: at, width, row });
      if (row + 1 < MAX_ROWS) waiting.push({ edges: edge.children, x: at, row: row + 1 });
      at += width;
    }
  }
  return placed;
}

class Tree {
  constructor(parts) {
    Object.assign(this, parts);
    this.edges = [];
    this.roots = [];
    this.zoomedId = null;
    this.focusedId = null;
    this.content = "";
    this.shown = new Map();
    this.all.addEventListener("click", () => this.zoom(null));
    this.picture.addEventListener("keydown", (event) => this.onKey(event));
  }

  show(state) {
    const content = JSON.stringify(state.tree.nodes.map(
      ({ last_used_at, ...rest }) => [rest, Boolean(last_used_at)],
    ));
    if (content !== this.content) {
      this.content = content;
      Object.assign(this, plantTree(state.tree.nodes));
      this.draw();
      this.table.replaceChildren(...this.edges.map(edgeRow));
    }
    say(this.note, treeNote(state));
  }

  get top() {
    const zoomed = this.edges.find((edge) => edge.id === this.zoomedId);
    return zoomed ? [zoomed] : this.roots;
  }

  draw() {
    const hadFocus = this.picture.contains(document.activeElement);
    const placed = placeEdges(this.top);
    const mostHits = Math.max(1, ...this.edges.map((edge) => edge.hits));
    this.shown = new Map(placed.map((place) => [place.edge.id, this.edgeShape(place, mostHits)]));
    this.picture.replaceChildren(...this.shown.values());
    const lastRow = Math.max(0, ...placed.map(({ row }) => row));
    this.picture.setAttribute("height", ROW_HEIGHT * (1 + lastRow));
    for (const part of [this.picture, this.keys, this.legend, this.whole]) {
      part.toggleAttribute("hidden", !this.edges.length);
    }
    this.all.hidden = this.zoomedId === null || !this.edges.length;
    if (!this.shown.has(this.focusedId)) this.focusedId = placed.length ? placed[0].edge.id : null;
    const focused = this.shown.get(this.focusedId);
    if (!focused) return;
    focused.setAttribute("tabindex", "0");
    if (hadFocus) focused.focus();
  }

  edgeShape({ edge, x, width, row }, mostHits) {
    const heat = Math.ceil(((HEAT_STEPS - 1) * Math.log1p(edge.hits)) / Math.log1p(mostHits));
    const classes = ["edge", `heat-${heat}`, edge.in_use && "used", edge.pinned_until && "pinned"];
    const box = drawn(
      "svg",
      { x: `${100 * x}%`, y: row * ROW_HEIGHT, width: `${100 * width}%`, height: ROW_HEIGHT - 2 },
      drawn("rect", { width: "100%", height: "100%" }),
      width >= LABEL_WIDTH && drawn("text", { x: 5, y: 16 }, edgeLabel(edge)),
    );
    const shape = drawn("g", {
      class: classes.filter(Boolean).join(" "), role: "treeitem", tabindex: "-1",
      "aria-level": edge.depth, "aria-label": edgeDetail(edge), "data-edge": edge.id,
    }, box);
    shape.addEventListener("mouseenter", () => say(this.detail, edgeDetail(edge)));
    shape.addEventListener("focus", () => this.onFocus(edge));
    const nextId = edge.id === this.zoomedId ? parentId(edge) : edge.id;
    shape.addEventListener("click", () => this.zoom(nextId));
    return shape;
  }

  onFocus(edge) {
    const before = this.shown.get(this.focusedId);
    if (before) before.setAttribute("tabindex", "-1");
    this.focusedId = edge.id;
    this.shown.get(edge.id).setAttribute("tabindex", "0");
    say(this.detail, edgeDetail(edge));
  }

  zoom(id) {
    this.zoomedId = id;
    if (id !== null) this.focusedId = id;
    this.draw();
  }

  onKey(event) {
    const edge = this.edges.find((edge) => edge.id === this.focusedId);
    if (!edge) return;
    const target = this.neighbour(edge, event.key);
    if (target && this.shown.has(target.id)) this.shown.get(target.id).focus();
    else if (event.key === "Enter" || event.key === " ") this.zoom(edge.id);
    else if (event.key === "Escape" && this.zoomedId !== null) this.zoom(parentId(this.top[0]));
    else return;
    event.preventDefault();
  }

  // The edge above or below, or the next in the same row.
  neighbour(edge, key) {
    const beside = edge.above ? edge.above.children : this.roots;
    const place = beside.indexOf(edge);
    const ways = {
      ArrowUp: edge.above, ArrowDown: edge.children[0], ArrowLeft: beside[place - 1],
      ArrowRight: beside[place + 1], Home: this.top[0],
    };
    return ways[key];
  }
}

function parentId(edge) {
  return edge.above ? edge.above.id : null;
}

function edgeText(edge) {
  return edge.text === null ? "(another owner's)" : oneLine(edge.text);
}

function edgeLabel(edge) {
  return `${whole(edge.tokens)} ${edgeText(edge)}`;
}

function edgeState(edge) {
  return [edge.in_use && "in use", edge.pinned_until && "pinned"].filter(Boolean).join(", ");
}

function edgeDetail(edge) {
  const facts = [
    `${counted(edge.tokens, "token")} after ${whole(edge.start)}`, counted(edge.pages, "page"),
    counted(edge.hits, "hit"),
  ];
  if (edge.children.length) facts.push(`${whole(edge.total)} tokens from here on`);
  if (edge.last_used_at) facts.push(`last used ${clockTime(edge.last_used_at)}`);
  if (edge.pinned_until) facts.push(`pinned until ${clockTime(edge.pinned_until)}`);
  if (edge.in_use) facts.push("in use");
  if (edge.owner) facts.push(`owner ${edge.owner}`);
  return `${facts.join(", ")}: ${edgeText(edge)}`;
}

function edgeRow(edge) {
  const above = edge.above ? String(edge.above.id) : "";
  const cells = [
    above, edge.depth, whole(edge.tokens), whole(edge.pages), whole(edge.hits), edgeState(edge),
    edgeText(edge),
  ];
  return element(
    "tr", {},
    element("th", { scope: "row" }, String(edge.id)),
    ...cells.map((cell) => element("td", {}, String(cell))),
  );
}

function treeNote(state) {
  const { nodes, left_out: leftOut } = state.tree;
  const tokens = nodes.reduce((sum, node) => sum + node.tokens, 0);
  const owners = state.scope === "all" ? "of all owners" : "of this key";
  if (!nodes.length) return `Nothing is cached ${owners}.`;
  const size = bytes(tokens * state.page_bytes / state.page_size);
  const more = leftOut ? `, ${whole(leftOut)} smaller ones left out` : "";
  return `${counted(nodes.length, "edge")} ${owners}${more}: ${whole(tokens)} tokens, ${size}.`;
}

function showTiers(list, title, tiers) {
  title.hidden = !tiers.length;
  list.replaceChildren(...tiers.map((tier) => element("li", {}, tierText(tier))));
}

function tierText(tier) {
  if (!tier.is_up) return `${tier.name}: does not answer`;
  if (tier.pages === null) return `${tier.name}: up`;
  const room = tier.max_bytes ? ` of ${bytes(tier.max_bytes)}` : "";
  return `${tier.name}: ${counted(tier.pages, "page")}, ${bytes(tier.bytes)}${room}; `
    + `${whole(tier.found)} found, ${whole(tier.missing)} not, ${whole(tier.fetched)} fetched, `
    + `${whole(tier.stored)} stored`;
}
