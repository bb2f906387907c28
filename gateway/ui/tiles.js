"use strict";
// The tiles: what the server does now and did in the last minute, each with its recent course.

// So many polls are remembered for the small curves.
const MAX_POINTS = 90;

const TILES = [
  {
    title: "Time to first token",
    value: ({ now }) => milliseconds(now.ttft_p50_ms),
    note: ({ now }) => `p95 ${milliseconds(now.ttft_p95_ms)}`,
    point: ({ now }) => now.ttft_p50_ms,
  },
  {
    title: "Time per token",
    value: ({ now }) => milliseconds(now.tpot_p50_ms),
    note: ({ now }) => `p95 ${milliseconds(now.tpot_p95_ms)}`,
    point: ({ now }) => now.tpot_p50_ms,
  },
  {
    title: "Output",
    value: ({ now }) => `${now.output_tok_s.toFixed(1)} tokens/s`,
    note: ({ now }) =>
      `${counted(now.requests, "request")} ended in the last ${duration(now.window_s)}`,
    points: ({ now }) => now.tokens_by_second,
  },
  {
    title: "Cache hits",
    value: ({ now }) => percent(now.hit_rate),
    note: ({ now }) =>
      `${whole(now.cached_tokens)} of ${counted(now.prompt_tokens, "prompt token")}`,
    point: ({ now }) => now.hit_rate,
  },
  {
    title: "Requests",
    value: ({ now }) => `${whole(now.in_flight)} in flight`,
    note: ({ now }) => now.running === null ? "the engine takes none"
      : `${whole(now.running)} running, ${whole(now.queued)} queued`,
    point: ({ now }) => now.in_flight,
  },
  {
    title: "KV pages",
    value: ({ pages }) => pages ? `${percent(1 - pages.free / pages.total)} used` : "–",
    note: ({ pages }) => pages ? pageNote(pages) : "",
    point: ({ pages }) => pages ? pages.total - pages.free : null,
  },
];

function pageNote(pages) {
  const states = [
    `${whole(pages.cached)} cached`, `${whole(pages.held)} held`, `${whole(pages.free)} free`,
  ];
  if (pages.locked) states.push(`${whole(pages.locked)} in use`);
  if (pages.pinned) states.push(`${whole(pages.pinned)} pinned`);
  return states.join(", ");
}

class Tiles {
  constructor(list) {
    this.tiles = TILES.map((tile) => {
      const value = element("p", { class: "value" }, "–");
      const note = element("p", { class: "muted" }, "");
      const line = drawn("polyline", { class: "spark", "vector-effect": "non-scaling-stroke" });
      const curve = drawn(
        "svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, line,
      );
      const title = element("h3", {}, tile.title);
      list.append(element("li", { class: "card tile" }, title, value, curve, note));
      return { tile, value, note, line, course: [] };
    });
  }

  show(state) {
    for (const { tile, value, note, line, course } of this.tiles) {
      say(value, tile.value(state));
      say(note, tile.note(state));
      if (!tile.points) {
        course.push(tile.point(state));
        course.splice(0, course.length - MAX_POINTS);
      }
      line.setAttribute("points", curvePoints(tile.points ? tile.points(state) : course));
    }
  }
}

// Along the whole width, from 0 at the bottom to the highest; where nothing was, the curve goes on
// from what was before.
function curvePoints(values) {
  const highest = Math.max(...values.filter((value) => value !== null), 0) || 1;
  let last = 0;
  return values.map((value, index) => {
    last = value === null ? last : value;
    const x = values.length > 1 ? (100 * index) / (values.length - 1) : 0;
    return `${x.toFixed(1)},${(22 - (20 * last) / highest).toFixed(1)}`;
  }).join(" ");
}

function serverLine({ server }) {
  const parts = [server.models.join(", "), `engine ${server.engine}`];
  if (server.dtype !== null) {
    parts.push(`${server.architecture}, ${server.dtype} on ${server.device}`);
  }
  parts.push(`up ${duration(server.uptime_s)}`, `version ${server.version}`);
  return parts.join(" · ");
}
