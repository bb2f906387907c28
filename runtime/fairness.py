"""Between tenants: how much each was served, whose turn it is, who has to give a place up.

Owns what each tenant was served and the numbers of its sequences; knows no sequence and no page.
Called by the scheduler and its queue.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# What a token counts: one that is computed as input, and one that is sampled. As in the paper; a
# token of a prompt that was found in the cache counts nothing, since nobody waited for it.
INPUT_WEIGHT = 1
OUTPUT_WEIGHT = 2

# Two tenants that both always have work may need different numbers of places for the same service,
# long answers more than long prompts. So twice as many alone say little, four times as many a lot.
MANY_TIMES = 4

# Tenants without work whose debt is remembered. Beyond that the smallest debt is forgotten.
MAX_REMEMBERED = 256


@dataclass(eq=False, slots=True)
class Account:
    """`served` is the virtual counter, `turn` grows with when the tenant last began to wait."""

    served: float = 0.0
    turn: int = 0
    num_waiting: int = 0
    num_running: int = 0


class TenantCounters:
    """The Virtual Token Counter of Sheng et al., "Fairness in Serving Large Language Models"
    (OSDI 2024, section 4): whoever was served least has the next turn.

    A tenant that begins to wait is lifted to the least counter of those that wait, or else to that
    of the last that did: time without work is no claim. Two things are not in the paper:

    - An endless stream of new tenants, each at the least counter, would overtake for ever one that
      is ahead of it. While that one has nothing running, what new ones are lifted to rises
      towards its counter, as fast as its own would in an even share.
    - Nobody comes back with more than `max_lead` beyond that: what was served while nobody else
      waited is held against a tenant for about one request.
    """

    def __init__(self, *, max_lead: float) -> None:
        self._max_lead = max_lead
        self._active: dict[str, Account] = {}
        self._idle: dict[str, Account] = {}
        self._floor = 0.0
        self._served_since = 0.0
        self._last_started = ""
        self._num_turns = 0
        # Grows with every change that may change an order.
        self.version = 0

    @property
    def num_running(self) -> int:
        """Sequences of all tenants."""
        return sum(account.num_running for account in self._active.values())

    @property
    def num_remembered(self) -> int:
        """Tenants without work that are not forgotten."""
        return len(self._idle)

    @property
    def active(self) -> Mapping[str, Account]:
        """Those with work, waiting or running."""
        return self._active

    def joined(self, tenant: str) -> None:
        """One more sequence waits."""
        account = self._active.get(tenant)
        if account is None:
            account = self._idle.pop(tenant, None) or Account()
        if account.num_waiting == 0:
            self._raise_floor()
            account.served = min(max(account.served, self._floor), self._floor + self._max_lead)
            account.turn = self._num_turns
            self._num_turns += 1
        self._active[tenant] = account
        account.num_waiting += 1
        self.version += 1

    def left(self, tenant: str) -> None:
        """One that waited is gone."""
        self._active[tenant].num_waiting -= 1
        self._forget_if_idle(tenant)

    def started(self, tenant: str) -> None:
        """One that waited runs."""
        self._raise_floor()
        self._last_started = tenant
        account = self._active[tenant]
        account.num_waiting -= 1
        account.num_running += 1
        self.version += 1

    def stopped(self, tenant: str) -> None:
        """One that ran has ended, or is preempted."""
        self._active[tenant].num_running -= 1
        self._forget_if_idle(tenant)

    def charge(self, tenant: str, weighted_tokens: float) -> None:
        """A tenant with work was served so much."""
        self._active[tenant].served += weighted_tokens
        self._served_since += weighted_tokens
        self.version += 1

    def _raise_floor(self) -> None:
        """To what a tenant is lifted that begins to wait now. It never falls: who waits began at
        it or above, and counters only grow."""
        waiting = [account for account in self._active.values() if account.num_waiting]
        self._floor = max(self._floor, min((one.served for one in waiting), default=self._last()))
        starving = [account for account in waiting if account.num_running == 0]
        if starving:
            oldest = min(starving, key=lambda account: account.turn)
            even_share = self._served_since / len(self._active)
            self._floor = max(self._floor, min(self._floor + even_share, oldest.served))
        self._served_since = 0.0

    def _last(self) -> float:
        """What the last one that started was served."""
        account = self._active.get(self._last_started) or self._idle.get(self._last_started)
        return account.served if account is not None else 0.0

    def _forget_if_idle(self, tenant: str) -> None:
        """A counter at the floor or below says nothing: it would be lifted. One above is a debt."""
        self.version += 1
        account = self._active[tenant]
        if account.num_waiting or account.num_running:
            return
        del self._active[tenant]
        if account.served > self._floor:
            self._idle[tenant] = account
        if len(self._idle) > MAX_REMEMBERED:
            del self._idle[min(self._idle, key=lambda one: self._idle[one].served)]


class FairTurns:
    """Whose turn it is, by the counters.

    A tenant is favoured that has much less running than another: one sequence or fewer than its
    even share, and at most half of the other's. Its prompts come before all else, until it was
    served a `quantum` more than that other. Apart from that the least served come first;
    differences within a `quantum` change no turn.
    """

    def __init__(self, counters: TenantCounters, *, quantum: float) -> None:
        self._counters = counters
        self._quantum = quantum
        self._version = -1
        self._even_share = 0.0
        self._heavy: list[tuple[str, Account]] = []

    def key(self, tenant: str) -> tuple[bool, int, int]:
        """The lower the earlier."""
        account = self._counters.active[tenant]
        return not self.is_favoured(tenant), int(account.served // self._quantum), account.turn

    def is_favoured(self, tenant: str) -> bool:
        self._refresh()
        own = self._counters.active[tenant]
        return any(
            _is_outweighed(own, other) and own.served <= other.served + self._quantum
            for _, other in (self._heavy if own.num_running < max(2, self._even_share) else ())
        )

    def donor(self, tenant: str) -> str | None:
        """Who is to give a place up for a sequence of `tenant` that waits: of those that have much
        more running and were served no less, the one served most. Unless it has MANY_TIMES as
        many running, only if the counters are a `quantum` apart."""
        self._refresh()
        own = self._counters.active[tenant]
        if own.num_running >= self._even_share:
            return None
        donors = [
            (other.served, name)
            for name, other in self._heavy
            if _is_outweighed(own, other)
            and other.num_running >= own.num_running + 2
            and other.served >= own.served + self._least_lead(own, other)
        ]
        return max(donors)[1] if donors else None

    def _least_lead(self, own: Account, other: Account) -> float:
        return 0.0 if other.num_running >= MANY_TIMES * own.num_running else self._quantum

    def _refresh(self) -> None:
        """Who has more running than an even share of all that runs."""
        if self._version == self._counters.version:
            return
        self._version = self._counters.version
        active = self._counters.active
        self._even_share = self._counters.num_running / max(1, len(active))
        self._heavy = [
            (name, account)
            for name, account in active.items()
            if account.num_running > self._even_share
        ]


def _is_outweighed(own: Account, other: Account) -> bool:
    return other.num_running >= 2 * max(1, own.num_running)


class RecomputeCredit:
    """What fairness may cost: a token that is computed for the first time pays for one that a
    preempted sequence has to compute again, so at most half of all work is repetition. How many
    it has to is known when it is back; until then all that it had are spent. No more than
    `max_tokens` are saved up."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._spent: dict[int, int] = {}

    def covers(self, num_tokens: int) -> bool:
        return num_tokens <= self._num_tokens

    def earn(self, num_tokens: int) -> None:
        """So many were computed for the first time."""
        self._num_tokens = min(self._max_tokens, self._num_tokens + num_tokens)

    def spend(self, who: int, num_tokens: int) -> None:
        """A sequence was preempted that had so many."""
        self._num_tokens -= num_tokens
        self._spent[who] = num_tokens

    def settle(self, who: int, num_tokens: int) -> None:
        """Any sequence has come in, and has to compute so many again, or is gone."""
        num_spent = self._spent.pop(who, 0)
        self.earn(num_spent - min(max(0, num_tokens), num_spent))
