"""The price file: exact numbers, and one line for each mistake."""

from decimal import Decimal
from pathlib import Path

import pytest

from telemetry.prices import (
    MAX_BYTES,
    ModelPrice,
    PriceFileError,
    PriceTable,
    parse_prices,
    read_price_file,
)

GOOD = b"""
currency: EUR
models:
  small: {input: 0.15, cached_input: 0.075, output: 0.60}
  "*": {input: 1, output: 2.5}
"""


def test_prices_are_what_was_written() -> None:
    table = parse_prices(GOOD)
    assert table == PriceTable(
        "EUR",
        {
            "small": ModelPrice(Decimal("0.15"), Decimal("0.075"), Decimal("0.60")),
            "*": ModelPrice(Decimal(1), Decimal(1), Decimal("2.5")),
        },
    )


def test_a_model_without_a_price_has_that_of_all_others_if_there_is_one() -> None:
    table = parse_prices(GOOD)
    assert table.of("small") is table.models["small"]
    assert table.of("large") is table.models["*"]
    assert PriceTable("EUR", {"small": table.models["small"]}).of("large") is None


def test_cost_is_exact() -> None:
    price = ModelPrice(Decimal("0.1"), Decimal("0.03"), Decimal("0.7"))
    assert price.cost("input", 3) == Decimal("0.0000003")
    assert price.cost("cached_input", 1_000_000) == Decimal("0.03")
    assert price.cost("output", 10**15 + 1) == Decimal("700000000.0000007")


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", 1, "it is empty"),
        ("[1]", 1, "expected fields"),
        ("currency: USD", 1, "expected a field 'models'"),
        ("models: {a: {input: 1, output: 1}}", 1, "expected a field 'currency'"),
        ("currency: usd\nmodels: {a: {input: 1, output: 1}}", 1, "three capital letters"),
        ("currency: dollars\nmodels: {a: {input: 1, output: 1}}", 1, "three capital letters"),
        ("currency: USD\nmodels: {}", 2, "expected a model"),
        ("currency: USD\nmodels: []", 2, "expected fields"),
        ("currency: USD\nmodels:\n  a: {input: 1}", 3, "expected a field 'output'"),
        ("currency: USD\nmodels:\n  a: {output: 1}", 3, "expected a field 'input'"),
        ("currency: USD\nmodels:\n  a: {input: -1, output: 1}", 3, "expected a number"),
        ("currency: USD\nmodels:\n  a: {input: 1e3, output: 1}", 3, "expected a number"),
        ("currency: USD\nmodels:\n  a: {input: .nan, output: 1}", 3, "expected a number"),
        ("currency: USD\nmodels:\n  a: {input: '1', output: 1}", 3, "expected a number"),
        ("currency: USD\nmodels:\n  a: {input: 1000000001, output: 1}", 3, "expected a number"),
        ("currency: USD\nmodels:\n  a: {input: [1], output: 1}", 3, "expected one word"),
        ("currency: USD\nmodels:\n  a: {input: 1, output: 1, out: 1}", 3, "unknown field 'out'"),
        ("currency: USD\nmodels:\n  a: {input: 1, output: 1, input: 1}", 3, "is there twice"),
        ("currency: USD\nmodels:\n  a: {input: 1, output: 1}\n  a: {}", 4, "is there twice"),
        ("currency: USD\nprices: {}", 2, "unknown field 'prices'"),
        ("currency: USD\nmodels: {a: {input: 1, output: 1}", 2, ""),
        ("currency: USD\nmodels: &a {a: *a}", 2, ""),
        ("currency: \x00", 1, "characters that YAML does not allow"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_its_place(text: str, line: int, problem: str) -> None:
    with pytest.raises(PriceFileError) as caught:
        parse_prices(text.encode())
    message = str(caught.value)
    assert message.startswith(f"line {line}")
    assert problem in message
    assert "\n" not in message


def test_no_text_and_nothing_nested_without_end_is_read() -> None:
    with pytest.raises(PriceFileError, match="line 2: it is not UTF-8"):
        parse_prices(b"currency: USD\n\xff")
    with pytest.raises(PriceFileError, match="nested too deeply"):
        parse_prices(b"[" * 100_000)


@pytest.mark.parametrize("kind", ["missing", "folder", "large"])
def test_what_is_no_file_of_prices_is_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    if kind == "folder":
        path.mkdir()
    if kind == "large":
        path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(PriceFileError) as caught:
        read_price_file(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_bytes(GOOD)
    assert read_price_file(path) == parse_prices(GOOD)
    path.write_text("currency: USD", encoding="utf-8")
    with pytest.raises(PriceFileError, match=f"{path}, line 1: expected a field 'models'"):
        read_price_file(path)
