"""Times as flags have them: `500ms`, `1.5s`, `.5s`, `5m`. Called by `gateway.bench_flags` and
`gateway.plan_flags`."""

import re

_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ms|s|m|h)?", re.ASCII)
_MAX_S = 1e9


def seconds_of(text: str, *, needs_unit: bool = False) -> float | None:
    """None for what is no time; without a unit seconds are meant, where none is needed."""
    found = _TIME.fullmatch(text.strip())
    if found is None or (needs_unit and not found[2]):
        return None
    seconds = float(found[1]) * _UNITS_S[found[2] or "s"]
    return seconds if seconds < _MAX_S else None
