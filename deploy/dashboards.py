"""Writes Grafana's dashboards: `python -m deploy.dashboards`. A test compares the files with this.

What the metrics on them mean is in docs/observability.md.
"""

import sys
from pathlib import Path

from deploy.cache_dashboard import CACHE_AND_COST
from deploy.grafana_json import render
from deploy.operations_dashboard import OPERATIONS

FOLDER = Path(__file__).resolve().parent / "grafana" / "dashboards"
DASHBOARDS = {"operations.json": OPERATIONS, "cache_and_cost.json": CACHE_AND_COST}


def main() -> int:
    """Writes the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, dashboard in DASHBOARDS.items():
        (FOLDER / name).write_text(render(dashboard), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
