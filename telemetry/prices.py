"""The price file: what a million tokens of each model cost. Read once, at start, and strictly.

    currency: USD
    models:
      some-model: {input: 0.15, cached_input: 0.075, output: 0.60}
      "*": {input: 1, output: 2}

Prices are decimal numbers and stay exactly what was written.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import yaml

MAX_BYTES = 1024 * 1024
ANY_MODEL = "*"
MAX_PRICE = Decimal(10) ** 9
_CURRENCY = re.compile(r"[A-Z]{3}")
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_PRICES = ("input", "cached_input", "output")
_MILLION = Decimal(1_000_000)


class PriceFileError(Exception):
    """The file cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Of a million tokens each. `input` are prompt tokens that were computed."""

    input: Decimal
    cached_input: Decimal
    output: Decimal

    def cost(self, kind: str, num_tokens: int) -> Decimal:
        """Of tokens of a kind: one of this class' fields."""
        price: Decimal = getattr(self, kind)
        return price * num_tokens / _MILLION


@dataclass(frozen=True, slots=True)
class PriceTable:
    """`models` are ids; ANY_MODEL stands for all others. `currency` is a code of ISO 4217."""

    currency: str
    models: Mapping[str, ModelPrice]

    def of(self, model_id: str) -> ModelPrice | None:
        return self.models.get(model_id) or self.models.get(ANY_MODEL)


def read_price_file(path: Path) -> PriceTable:
    """Raises: PriceFileError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PriceFileError(f"{path}: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise PriceFileError(f"{path}: it is larger than {MAX_BYTES} bytes")
    try:
        return parse_prices(raw)
    except PriceFileError as error:
        raise PriceFileError(f"{path}, {error}") from None


def parse_prices(raw: bytes) -> PriceTable:
    """Raises: PriceFileError, which does not know the file's name."""
    fields = _fields(_compose(raw), "the file", known=("currency", "models"))
    for name in ("currency", "models"):
        if name not in fields:
            raise PriceFileError(f"line 1: expected a field '{name}'")
    currency = _scalar(fields["currency"], "'currency'")
    if _CURRENCY.fullmatch(currency) is None:
        _fail(fields["currency"], "'currency'", "expected three capital letters, such as USD")
    models = _fields(fields["models"], "'models'", known=None)
    if not models:
        _fail(fields["models"], "'models'", 'expected a model, or "*" for all')
    return PriceTable(currency, {name: _price(node, name) for name, node in models.items()})


def _price(node: yaml.Node, model_id: str) -> ModelPrice:
    where = f"model {model_id[:100]!r}"
    fields = _fields(node, where, known=_PRICES)
    for name in ("input", "output"):
        if name not in fields:
            _fail(node, where, f"expected a field '{name}' with the price of a million tokens")
    prices = {name: _number(value, f"{where}, '{name}'") for name, value in fields.items()}
    return ModelPrice(
        input=prices["input"],
        cached_input=prices.get("cached_input", prices["input"]),
        output=prices["output"],
    )


def _number(node: yaml.Node, where: str) -> Decimal:
    text = _scalar(node, where)
    is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
    if not is_plain or _NUMBER.fullmatch(text) is None or Decimal(text) > MAX_PRICE:
        _fail(node, where, f"expected a number from 0 to {MAX_PRICE}, such as 0.15")
    return Decimal(text)


def _fields(node: yaml.Node, where: str, *, known: tuple[str, ...] | None) -> dict[str, yaml.Node]:
    """`known` None: any names."""
    if not isinstance(node, yaml.MappingNode):
        _fail(node, where, "expected fields, each with a name and a value")
    fields: dict[str, yaml.Node] = {}
    for name_node, value in node.value:
        name = _scalar(name_node, where)
        if known is not None and name not in known:
            _fail(name_node, where, f"unknown field {name[:40]!r}; known: {', '.join(known)}")
        if name in fields:
            _fail(name_node, where, f"the field {name[:40]!r} is there twice")
        fields[name] = value
    return fields


def _scalar(node: yaml.Node, where: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or not node.value:
        _fail(node, where, "expected one word or number")
    return str(node.value)


def _compose(raw: bytes) -> yaml.Node:
    """The file as a tree that knows its lines. Nothing in it is executed or expanded."""
    loader: Any = yaml.SafeLoader
    try:
        node = yaml.compose(raw.decode(), Loader=loader)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PriceFileError(f"line {line}: it is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise PriceFileError(f"line {line}: {error.problem or 'it is not YAML'}") from None
    except yaml.YAMLError:
        raise PriceFileError("line 1: it has characters that YAML does not allow") from None
    except RecursionError:
        raise PriceFileError("line 1: it is nested too deeply") from None
    if node is None:
        raise PriceFileError("line 1: it is empty; expected fields 'currency' and 'models'")
    return node


def _fail(node: yaml.Node, where: str, problem: str) -> NoReturn:
    raise PriceFileError(f"line {node.start_mark.line + 1}, {where}: {problem}")
