"""Tokens and what they cost by tenant: whole numbers until a scrape asks, so that nothing is lost
in sums of small fractions. Owned by Metrics.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from telemetry import catalog
from telemetry.bounded_names import BoundedNames
from telemetry.families import family_of
from telemetry.prices import PriceTable

# Whose requests came without a key.
NO_TENANT = "none"


class TenantLedger(Collector):
    """Thread-safe. Of tenants beyond the first MAX_TENANTS the tokens are counted as OTHER's."""

    def __init__(self, *, max_tenants: int = catalog.MAX_TENANTS) -> None:
        self._tenants = BoundedNames(max_tenants)
        self._tokens: dict[tuple[str, str, str], int] = defaultdict(int)
        self._prices: PriceTable | None = None
        self._lock = threading.Lock()

    def set_prices(self, prices: PriceTable | None) -> None:
        """None: nothing costs anything, and no costs are shown."""
        self._prices = prices

    def add(self, *, tenant: str, model: str, prompt: int, cached: int, completion: int) -> None:
        """What one request took of the model of this id. `tenant` "" = it came without a key."""
        name = self._tenants.admit(tenant or NO_TENANT)
        counts = {"input": prompt - cached, "cached_input": cached, "output": completion}
        with self._lock:
            for kind, num_tokens in counts.items():
                self._tokens[name, model, kind] += num_tokens

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            tokens = dict(self._tokens)
        sums: dict[tuple[str, ...], float] = defaultdict(int)
        for (tenant, _, kind), num_tokens in tokens.items():
            sums[tenant, kind] += num_tokens
        yield family_of(catalog.TENANT_TOKENS, sums)
        costs = {key: float(cost) for key, cost in self._costs(tokens).items()}
        yield family_of(catalog.COST, costs)

    def describe(self) -> Iterator[Metric]:
        """Nothing is read when the collector is registered."""
        return iter(())

    def _costs(self, tokens: dict[tuple[str, str, str], int]) -> dict[tuple[str, ...], Decimal]:
        prices, costs = self._prices, defaultdict[tuple[str, ...], Decimal](Decimal)
        if prices is None:
            return costs
        for (tenant, model, kind), num_tokens in tokens.items():
            price = prices.of(model)
            if price is not None:
                costs[tenant, kind, prices.currency] += price.cost(kind, num_tokens)
        return costs
