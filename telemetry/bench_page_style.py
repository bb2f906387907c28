"""How the HTML report of a bench run looks, in light and dark; nothing is fetched.

Text and lines differ from their ground by at least 4.5:1 and 3:1. Class names are those that
telemetry.svg_plot and telemetry.bench_html give.
"""

_LIGHT = ("#0b5cad", "#c2410c", "#0f766e", "#7c3aed", "#8a6100", "#be185d", "#3f6212", "#475569")
_DARK = ("#6cb6ff", "#ff9e6b", "#4fd1c5", "#c4a7ff", "#e3c04a", "#ff8ab5", "#a3d95b", "#b6c2d1")

_RULES = """
:root { color-scheme: light dark; --ground: #fff; --card: #f7f8fa; --text: #1b2330;
  --soft: #566072; --rule: #d5dae1; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ground: #12161c; --card: #1a2028;
  --text: #e7ebf0; --soft: #a3adba; --rule: #343c47; --bad: #ff8a7d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 76rem; background: var(--ground);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.2rem; margin: 2rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0 0 .5rem; } p { margin: .25rem 0; }
.soft { color: var(--soft); }
pre { background: var(--card); padding: .6rem .8rem; border-radius: 6px; font-size: .85rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
dl { columns: 2 24rem; column-gap: 2rem; margin: .75rem 0; }
dl div { display: flex; gap: 1rem; break-inside: avoid; }
dt { color: var(--soft); flex: 0 0 5rem; } dd { margin: 0; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; padding: 0; }
.tiles li { list-style: none; background: var(--card); border: 1px solid var(--rule);
  border-radius: 8px; padding: .6rem 1rem; min-width: 9rem; }
.tiles strong { display: block; font-size: 1.45rem; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { padding: .25rem .45rem; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; }
th { font-weight: 600; white-space: normal; vertical-align: bottom; }
th[scope=row], th.name { text-align: left; white-space: nowrap; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr));
  gap: 1rem; }
figure { margin: 0; padding: .9rem; background: var(--card); border: 1px solid var(--rule);
  border-radius: 8px; min-width: 0; }
figure > svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 11.5px system-ui, sans-serif; }
.key { display: flex; flex-wrap: wrap; gap: .1rem .9rem; list-style: none; margin: .3rem 0;
  padding: 0; font-size: .85rem; overflow-wrap: anywhere; }
.key svg { vertical-align: -1px; margin-right: .3rem; }
summary { cursor: pointer; color: var(--soft); font-size: .85rem; }
section > details { margin: .75rem 0; }
section > details > summary { color: var(--text); font-size: 1rem; font-weight: 600;
  margin-bottom: .5rem; }
.odd { border-left: 4px solid var(--bad); background: var(--card); padding: .6rem 1rem .6rem 2rem;
  border-radius: 0 6px 6px 0; margin: 0; overflow-wrap: anywhere; }
.grid, .axis, .tick { fill: none; stroke: var(--rule); }
.axis, .tick { stroke: var(--soft); }
.line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
.dashed { stroke-dasharray: 7 4; } .dotted { stroke-dasharray: 1.5 4; stroke-linecap: round; }
.mark, .bar { fill: currentColor; }
.mark { stroke: var(--card); }
.dots { fill: none; stroke: currentColor; stroke-width: 4; stroke-linecap: round;
  stroke-opacity: .55; }
.cross { fill: none; stroke: currentColor; stroke-width: 2; }
.any { color: var(--soft); }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""


def style_sheet() -> str:
    """CSS for a `style` element."""
    light = "".join(f".c{index} {{ color: {color}; }}\n" for index, color in enumerate(_LIGHT))
    dark = "".join(f".c{index} {{ color: {color}; }}\n" for index, color in enumerate(_DARK))
    return f"{_RULES}{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"
