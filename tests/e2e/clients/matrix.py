"""docs/compatibility.md: which client does what, made by running them (`make compatibility`).

The tests compare each client's run with its row and its column of that page.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conformance.target import Target
from tests.e2e.clients.client import CLIENTS, FEATURES, Client
from tests.e2e.clients.environments import BuildError, missing_platform
from tests.e2e.clients.run import Report, run_client
from tests.e2e.server_process import serving
from tests.model_file import ROOT, default_model_path

PAGE = ROOT / "docs/compatibility.md"
API_KEY = "sk-of-the-clients"
YES = "✓"
INTRODUCTION = """# Compatibility

Made by `make compatibility`, which runs each client against a real server with the default model,
from an environment of its own with exactly these versions; `make e2e-all` checks that this page is
what the runs give. A ✓ is a check of `tests/e2e/clients/` that passed; an empty cell means that the
client has no such feature or that it is not checked. What fails is not here: it ends the run.
"""


@contextmanager
def serving_clients(model_dir: Path) -> Iterator[Target]:
    """With a key, as clients know servers, and an exact number format, so that an answer is the
    same streamed and not. One thread leaves a core for the client."""
    flags = ("--dtype", "float32", "--num-threads", "1")
    with serving(*flags, model_dir=str(model_dir), api_keys=API_KEY) as (_, target):
        yield Target(target.base_url, target.model, api_key=API_KEY)


def page(reports: Sequence[Report]) -> str:
    versions = [version_row(report) for report in reports]
    head = _row(["feature", *(report.client.title for report in reports), "what is checked"])
    rule = _row(["---", *(":-:" for _ in reports), "---"])
    rows = [
        _row([name, *(YES if name in r.features else "" for r in reports), what])
        for name, what in FEATURES.items()
    ]
    return "\n".join(
        [
            INTRODUCTION,
            _row(["client", "versions", "runs in"]),
            _row(["---", "---", "---"]),
            *versions,
            "",
            head,
            rule,
            *rows,
            "",
        ]
    )


def version_row(report: Report) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in report.packages.items())
    verb = "`make e2e-all`" if report.client.is_wide else "`make e2e`"
    return _row([report.client.title, packages, f"{report.client.platform.value}, {verb}"])


def features_on_page(text: str, client: Client) -> tuple[str, ...]:
    """What the page's table says that the client does."""
    rows = [re.split(r" *\| *", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    (start,) = [index for index, row in enumerate(rows) if row[0] == "feature"]
    if client.title not in rows[start]:
        return ()
    column = rows[start].index(client.title)
    return tuple(row[0] for row in rows[start + 2 :] if row[column] == YES)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def run_all() -> list[Report]:
    """Raises: BuildError; RuntimeError."""
    reports = []
    with TemporaryDirectory() as folder:
        model_dir = Path(folder)
        (model_dir / "smollm2-135m-instruct.gguf").symlink_to(default_model_path().absolute())
        with serving_clients(model_dir) as target:
            for client in CLIENTS:
                reason = missing_platform(client)
                if reason is not None:
                    raise BuildError(f"the page needs every client, and {client.name}: {reason}")
                reports.append(run_client(client, target))
                print(f"{client.name}: {len(reports[-1].failures)} failures", flush=True)
    return reports


def main() -> int:
    try:
        reports = run_all()
    except (BuildError, RuntimeError) as error:
        print(f"radixgate: {error}", file=sys.stderr)
        return 1
    failures = [
        f"{report.client.name}, {name}: {why}"
        for report in reports
        for name, why in report.failures.items()
    ]
    for failure in failures:
        print(f"radixgate: {failure}", file=sys.stderr)
    if failures:
        return 1
    PAGE.write_text(page(reports))
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
