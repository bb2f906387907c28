"""What the cache routes answer, drawn for a terminal: sizes, hit rates, hot prefixes, the tree.

Texts of prompts are shown harmless: nothing in them moves the cursor or sets a colour.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.schemas.cache_response import (
    CacheExplanation,
    CacheState,
    HitRate,
    HotPrefixState,
    OwnerState,
    PoolState,
    TierState,
    TokenShown,
    TreeNode,
)
from gateway.terminal_text import cells, cut, harmless, last_cells

MIN_WIDTH = 40
_BAR_WIDTH = 20
_MIN_TEXT_WIDTH = 16
_OWNER_WIDTH = 10
_MAX_MOMENT_CHARS = 32
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Terminal:
    """`width` in cells. `is_plain`: no character beyond ASCII can be shown."""

    width: int
    has_colour: bool
    is_plain: bool
    now: datetime.datetime

    def dim(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self.has_colour else text

    def bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.has_colour else text

    def bar(self, share: float) -> str:
        full, empty = ("#", ".") if self.is_plain else ("█", "░")
        num_full = round(min(max(share, 0.0), 1.0) * _BAR_WIDTH)
        return full * num_full + empty * (_BAR_WIDTH - num_full)

    def shown(self, text: str, width: int) -> str:
        """A text in at most that many cells, on one line, harmless."""
        return cut(harmless(text, is_plain=self.is_plain), width, is_plain=self.is_plain)

    def age(self, moment: str | None) -> str:
        """How long ago, or from now."""
        if moment is None:
            return "never"
        try:
            seconds = (self.now - datetime.datetime.fromisoformat(moment)).total_seconds()
        except (ValueError, TypeError, OverflowError):  # no date, or one without a zone
            return harmless(moment[:_MAX_MOMENT_CHARS], is_plain=self.is_plain)
        return f"{duration(-seconds)} left" if seconds < 0 else f"{duration(seconds)} ago"


def state_lines(state: CacheState, terminal: Terminal) -> Iterator[str]:
    """The whole picture."""
    seen = "all owners" if state.scope == "all" else "this key's"
    yield terminal.bold(f"{harmless(state.model, is_plain=terminal.is_plain)}, {seen}")
    yield from _pool_lines(state, terminal)
    for tier in state.tiers:
        yield _tier_line(tier, terminal)
    if state.hit_rates:
        rates = " | ".join(map(_hit_rate, state.hit_rates))
        yield f"  hits       {rates}"
    for owner in state.owners:
        yield from _owner_lines(owner, terminal, has_rates=len(state.owners) > 1)
    if state.hottest:
        yield ""
        yield terminal.bold("hottest prefixes")
        yield from (_hot_line(hot, terminal) for hot in state.hottest)
    yield ""
    left_out = f", {state.tree.left_out:,} smaller left out" if state.tree.left_out else ""
    yield terminal.bold(f"tree: {len(state.tree.nodes):,} edges{left_out}")
    yield from tree_lines(state.tree.nodes, terminal)


def tree_lines(nodes: Sequence[TreeNode], terminal: Terminal) -> Iterator[str]:
    """One line an edge; a heading for each owner where there are several."""
    owners = list(dict.fromkeys(node.owner for node in nodes))
    children: dict[int | None, list[TreeNode]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node)
    notes = {node.id: _note(node, terminal) for node in nodes}
    note_width = max((len(note) for note in notes.values()), default=0)
    for owner in owners:
        if len(owners) > 1:
            yield f"owner {owner or '(none)'}"
        roots = [node for node in children.get(None, []) if node.owner == owner]
        # A stack, as trees are deeper than calls may nest.
        waiting = [(node, "", node is roots[-1]) for node in reversed(roots)]
        while waiting:
            node, indent, is_last = waiting.pop()
            yield _edge_line(
                node, indent, is_last, note=notes[node.id], width=note_width, terminal=terminal
            )
            below = children.get(node.id, [])
            deeper = indent + ("   " if is_last else _branch(terminal, "│  "))
            waiting += [(child, deeper, child is below[-1]) for child in reversed(below)]


def explanation_lines(told: CacheExplanation, terminal: Terminal) -> Iterator[str]:
    """How much is cached, and where it stops."""
    found = sum(told.tiers.values())
    share = found / told.cacheable_tokens if told.cacheable_tokens else 1.0
    tiers = ", ".join(f"{name} {count:,}" for name, count in told.tiers.items())
    yield (
        f"{terminal.bar(share)} {found:,} of {told.cacheable_tokens:,} tokens cached"
        f" ({percent(share)}): {tiers}"
    )
    yield f"{told.reason or 'complete'}: " + harmless(told.explanation, is_plain=terminal.is_plain)
    difference = told.first_difference
    if difference is None:
        return
    room = max(terminal.width - 24, _MIN_TEXT_WIDTH)
    before = harmless(difference.before, is_plain=terminal.is_plain)
    yield f"  both       {last_cells(before, room) or '(nothing)'}"
    yield f"  prompt     {_side(difference.prompt, terminal, room)}"
    cached = difference.cached
    yield f"  cached     {'(nothing)' if cached is None else _side(cached, terminal, room)}"


def size(num_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} TiB"


def duration(seconds: float) -> str:
    """In the largest unit that gives a whole number of it."""
    length, unit = next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1])
    return f"{int(seconds // length)} {unit}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _pool_lines(state: CacheState, terminal: Terminal) -> Iterator[str]:
    pool = state.pool
    own = sum(owner.pages for owner in state.owners if owner.is_own)
    cached = own if pool.cached_pages is None else pool.cached_pages
    share = cached / pool.pages if pool.pages else 0.0
    yield (
        f"  device     {terminal.bar(share)} {cached:,} of {pool.pages:,} pages cached,"
        f" {size(cached * state.page_bytes)} of {size(pool.bytes)}"
    )
    notes = _use(pool)
    yield terminal.dim(f"             pages of {state.page_size} tokens{notes}")


def _use(pool: PoolState) -> str:
    if pool.free_pages is None:
        return ""
    return (
        f"; {pool.locked_pages:,} of them in use, {pool.held_pages:,} being written,"
        f" {pool.free_pages:,} free, {pool.evicted_pages:,} evicted so far"
    )


def _tier_line(tier: TierState, terminal: Terminal) -> str:
    name = f"  {tier.name:<10}"
    up = "" if tier.is_up else " (does not answer)"
    if tier.pages is None or tier.bytes is None:
        return f"{name} {'up' if tier.is_up else 'down'}"
    bounds = f" of {size(tier.max_bytes)}" if tier.max_bytes else ""
    share = tier.bytes / tier.max_bytes if tier.max_bytes else 0.0
    rejected = sum((tier.rejected or {}).values())
    odd = f", {rejected:,} that did not fit" if rejected else ""
    return (
        f"{name} {terminal.bar(share)} {tier.pages:,} pages, {size(tier.bytes)}{bounds};"
        f" {tier.found or 0:,} found, {tier.fetched or 0:,} fetched, {tier.stored or 0:,}"
        f" stored{odd}{up}"
    )


def _owner_lines(owner: OwnerState, terminal: Terminal, *, has_rates: bool) -> Iterator[str]:
    name = "own" if owner.is_own else owner.owner[:_OWNER_WIDTH]
    pinned = f", {owner.pinned_pages:,} pinned" if owner.pinned_pages else ""
    quota = f", quota {owner.quota_pages:,}" if owner.quota_pages is not None else ""
    yield f"  {name:<10} {owner.pages:,} pages, {size(owner.bytes)}{pinned}{quota}"
    rates = " | ".join(map(_hit_rate, owner.hit_rates))
    if has_rates and rates:
        yield terminal.dim(f"             hits: {rates}")


def _hit_rate(rate: HitRate) -> str:
    window = "since the start" if rate.window_s is None else duration(rate.window_s)
    if rate.hit_rate is None:
        return f"{window} -"
    return f"{window} {percent(rate.hit_rate)} of {rate.prompt_tokens:,}"


def _hot_line(hot: HotPrefixState, terminal: Terminal) -> str:
    note = f"{hot.tokens:>8,} tokens {hot.hits:>6,} hits  {terminal.age(hot.last_used_at):>10}  "
    text = hot.starts_with
    if hot.ends_with is not None:
        text = f"{text} ... {hot.ends_with}" if terminal.is_plain else f"{text} … {hot.ends_with}"
    room = max(terminal.width - len(note), _MIN_TEXT_WIDTH)
    return terminal.dim(note) + terminal.shown(text, room)


def _note(node: TreeNode, terminal: Terminal) -> str:
    pinned = "" if node.pinned_until is None else f"pinned {terminal.age(node.pinned_until)}"
    in_use = "in use" if node.in_use else ""
    flags = ", ".join(filter(None, (pinned, in_use)))
    return (
        f"{node.tokens:>8,} tokens {node.pages:>6,} pages {node.hits:>6,} hits"
        f" {terminal.age(node.last_used_at):>10}" + (f"  {flags}" if flags else "")
    )


def _edge_line(
    node: TreeNode, indent: str, is_last: bool, *, note: str, width: int, terminal: Terminal
) -> str:
    room = max(terminal.width - width - 2, _MIN_TEXT_WIDTH)
    joint = _branch(terminal, "└─ " if is_last else "├─ ")
    # What is too deep for the terminal keeps some room for its text.
    lead = last_cells(indent + joint, max(room - _MIN_TEXT_WIDTH, len(joint)))
    text = "(another owner's)" if node.text is None else node.text or "(empty)"
    shown = terminal.shown(text, room - len(lead))
    padding = " " * max(room - len(lead) - cells(shown), 0)
    return f"{lead}{shown}{padding}  {terminal.dim(note)}".rstrip()


def _branch(terminal: Terminal, drawn: str) -> str:
    if not terminal.is_plain:
        return drawn
    return drawn.translate({ord("│"): "|", ord("├"): "|", ord("└"): "`", ord("─"): "-"})


def _side(token: TokenShown, terminal: Terminal, room: int) -> str:
    text = harmless(token.text, is_plain=terminal.is_plain)
    after = terminal.shown(token.after, max(room - cells(text), 1))
    return f"{terminal.bold(f'[{text}]')}{after}"
