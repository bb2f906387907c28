"""Why requests are refused, as the metric counts it: each code of ours is a reason of its own."""

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import gateway
from gateway import errors, validation
from runtime.messages import ErrorCode
from telemetry.metrics import Metrics

SOURCES = Path(gateway.__file__).parent


def codes() -> set[str]:
    """All codes that an error of the gateway can have, those of no refusal among them."""
    found = {*itertools.chain.from_iterable(map(written, SOURCES.rglob("*.py")))}
    bounds = {"integer_", "decimal_"}
    found |= {kind + bound for kind in bounds for bound in validation._BOUNDS.values()}
    found |= {f"rate_limit_{kind}" for kind in get_args(errors.LimitKind)}
    return found | {*validation._CODES.values(), *validation._OWN_CODES, *map(str, ErrorCode)}


def written(source: Path) -> Iterator[str]:
    """Codes that stand in a call or in a class."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        match node:
            case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                yield code
            case ast.Assign(targets=[ast.Name(id="default_code")], value=ast.Constant(str(code))):
                yield code


def test_no_client_can_use_up_the_reasons_that_an_operator_watches() -> None:
    """Whoever sends one of each broken request first must not hide an overload later."""
    metrics = Metrics()
    for code in sorted(codes()):
        metrics.rejected(code)
    exposed = metrics.render()[0].decode()
    assert {"server_is_overloaded", "queue_timeout", "rate_limit_tokens"} < codes()
    for code in codes():
        assert f'radixgate_rejected_total{{reason="{code}"}} 1.0' in exposed
    assert 'reason="other"' not in exposed
