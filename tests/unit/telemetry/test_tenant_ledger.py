"""Tokens and costs by tenant: exact, bounded in number, and complete."""

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.prices import ModelPrice, PriceTable
from telemetry.tenant_ledger import TenantLedger

PRICES = PriceTable(
    "USD",
    {
        "a": ModelPrice(Decimal("0.15"), Decimal("0.075"), Decimal("0.6")),
        "*": ModelPrice(Decimal(3), Decimal(2), Decimal(5)),
    },
)


def read(ledger: TenantLedger) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
    """Tokens by tenant and kind; costs by tenant, kind and currency."""
    tokens, costs = (
        {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in ledger.collect()
    )
    return tokens, costs


def test_input_is_what_was_computed_and_cached_input_what_was_found() -> None:
    ledger = TenantLedger()
    ledger.add(tenant="t", model="a", prompt=10, cached=4, completion=7)
    ledger.add(tenant="t", model="b", prompt=1, cached=0, completion=2)
    tokens, costs = read(ledger)
    assert tokens == {("t", "input"): 7, ("t", "cached_input"): 4, ("t", "output"): 9}
    assert costs == {}


def test_each_model_has_its_price() -> None:
    ledger = TenantLedger()
    ledger.set_prices(PRICES)
    ledger.add(tenant="t", model="a", prompt=3_000_000, cached=1_000_000, completion=500_000)
    ledger.add(tenant="t", model="b", prompt=1_000_000, cached=0, completion=0)
    _, costs = read(ledger)
    assert costs == {
        ("t", "input", "USD"): 2 * 0.15 + 3,
        ("t", "cached_input", "USD"): 0.075,
        ("t", "output", "USD"): 0.3,
    }


def test_many_small_costs_add_up_to_what_they_are() -> None:
    ledger = TenantLedger()
    ledger.set_prices(PRICES)
    for _ in range(10_000):
        ledger.add(tenant="t", model="a", prompt=1, cached=0, completion=1)
    _, costs = read(ledger)
    assert costs["t", "input", "USD"] == 0.0015
    assert costs["t", "output", "USD"] == 0.006


def test_who_comes_without_a_key_is_a_tenant_too() -> None:
    ledger = TenantLedger()
    ledger.add(tenant="", model="a", prompt=2, cached=0, completion=0)
    assert read(ledger)[0]["none", "input"] == 2


@settings(derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50), st.integers(0, 50))))
def test_tenants_beyond_the_bound_share_a_name_and_nothing_is_lost(
    requests: list[tuple[int, int, int]],
) -> None:
    ledger = TenantLedger(max_tenants=3)
    for tenant, cached, completion in requests:
        ledger.add(
            tenant=f"t{tenant}", model="a", prompt=cached + 1, cached=cached, completion=completion
        )
    tokens, _ = read(ledger)
    assert len({tenant for tenant, _ in tokens}) <= 4
    assert sum(value for (_, kind), value in tokens.items() if kind == "input") == len(requests)
    assert sum(tokens.values()) == sum(c + 1 + o for _, c, o in requests)
