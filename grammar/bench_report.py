"""The figures of a bench: a table to read, and an object for programs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grammar.bench import CaseResult, Ending

MAX_IDS = 20
MAX_REASONS = 30
MAX_REASON_CHARS = 90
ENDINGS: tuple[Ending, ...] = ("enforced", "checked", "refused", "crashed")
QUANTILES = (("p50", 50), ("p95", 95), ("p99", 99), ("max", 100))

Figures = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All results of one run."""

    results: Sequence[CaseResult]

    def summary(self) -> dict[str, Any]:
        """The object of the last line. Times are null where nothing was measured; false accepts
        and rejects count schemas, not instances."""
        return {
            "schemas": len(self.results),
            **{ending: len(self._ids(ending)) for ending in ENDINGS},
            "false_accept": len(self.false_accept_ids()),
            "false_reject": len(self.false_reject_ids()),
            **_rounded("compile_ms", self.compile_ms(), digits=3),
            **_rounded("mask_us", self.mask_us(), digits=2),
            "instances": sum(result.num_instances for result in self.results),
            "untestable_instances": sum(len(result.untestable) for result in self.results),
            "failed_instances": sum(len(result.failures) for result in self.results),
            "masks": sum(len(result.mask_ns) for result in self.results),
            "too_complex": sum(result.is_too_complex for result in self.results),
            "engines": dict(Counter(r.engine for r in self.results if r.engine)),
            "false_accept_ids": self.false_accept_ids(),
            "false_reject_ids": self.false_reject_ids(),
            "crashed_ids": self._ids("crashed"),
        }

    def details(self) -> dict[str, Any]:
        """The summary, and one entry a schema."""
        return {**self.summary(), "results": [_entry(result) for result in self.results]}

    def table(self) -> str:
        """The figures as text."""
        lines = [*self._counts(), "", *self._times()]
        lines += self._reasons("refused", "refusals by keyword", self._refusals())
        lines += self._reasons("checked", "what masks leave to the check", self._gaps())
        lines += _listing("schemas with an invalid instance accepted", self.false_accept_ids())
        lines += _listing("schemas with a valid instance rejected", self.false_reject_ids())
        for result in self.results:
            if result.ending == "crashed":
                lines += ["", f"crashed: {result.id}: {result.reason}"]
        untestable = Counter(reason for r in self.results for reason in r.untestable)
        lines += _listing(
            "instances that cannot be tried", [f"{n} x {t}" for t, n in untestable.most_common()]
        )
        failures = [f"{r.id}: {reason}" for r in self.results for reason in r.failures]
        return "\n".join(lines + _listing("matchers that gave up", failures))

    def false_accept_ids(self) -> list[str]:
        return [result.id for result in self.results if result.false_accepts]

    def false_reject_ids(self) -> list[str]:
        return [result.id for result in self.results if result.false_rejects]

    def compile_ms(self) -> npt.NDArray[np.float64]:
        """From text to first mask, of all that compiled; what took too long counts as the
        deadline. Refusals by analysis are no compilation."""
        return np.array(
            [r.compile_ms for r in self.results
             if r.ending in ("enforced", "checked") or r.is_too_complex]
        )  # fmt: skip

    def mask_us(self) -> npt.NDArray[np.float64]:
        arrays = [result.mask_ns for result in self.results]
        return np.concatenate(arrays).astype(np.float64) / 1e3 if arrays else np.empty(0)

    def _ids(self, ending: Ending) -> list[str]:
        return [result.id for result in self.results if result.ending == ending]

    def _counts(self) -> list[str]:
        total = len(self.results)
        rows = [("schemas", total), *((ending, len(self._ids(ending))) for ending in ENDINGS)]
        rows += [
            ("an invalid instance accepted", len(self.false_accept_ids())),
            ("a valid instance rejected", len(self.false_reject_ids())),
        ]
        return [f"{name:<30}{count:>8}{count / max(total, 1):>9.2%}" for name, count in rows]

    def _times(self) -> list[str]:
        head = f"{'':<30}" + "".join(f"{name:>11}" for name, _ in QUANTILES)
        rows = (("compile, ms", self.compile_ms()), ("mask, us", self.mask_us()))
        return [head, *(f"{name:<30}" + _cells(values) for name, values in rows)]

    def _reasons(self, ending: Ending, title: str, reasons: Counter[tuple[str, str]]) -> list[str]:
        if not self._ids(ending):
            return []
        lines = ["", f"{title}:"]
        for (keyword, reason), count in reasons.most_common(MAX_REASONS):
            lines.append(f"{count:>6}  {keyword:<22}{reason[:MAX_REASON_CHARS]}")
        return lines

    def _refusals(self) -> Counter[tuple[str, str]]:
        return Counter((r.keyword or "-", r.reason) for r in self.results if r.ending == "refused")

    def _gaps(self) -> Counter[tuple[str, str]]:
        gaps = [{(g.keyword, g.reason) for g in result.gaps} for result in self.results]
        return Counter(gap for of_schema in gaps for gap in of_schema)


def _entry(result: CaseResult) -> dict[str, Any]:
    return {
        "id": result.id,
        "ending": result.ending,
        "engine": result.engine,
        "compile_ms": round(result.compile_ms, 3),
        "reason": result.reason,
        "pointer": result.pointer,
        "keyword": result.keyword,
        "gaps": [f"{gap.pointer}: {gap.reason}" for gap in result.gaps],
        "false_accepts": result.false_accepts,
        "false_rejects": result.false_rejects,
        "untestable": result.untestable,
        "failures": result.failures,
        "masks": len(result.mask_ns),
        "mask_us_max": round(float(result.mask_ns.max()) / 1e3, 2) if len(result.mask_ns) else None,
    }


def _listing(title: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    more = [f"  and {len(items) - MAX_IDS} more"] if len(items) > MAX_IDS else []
    return ["", f"{title}:", *(f"  {item}" for item in items[:MAX_IDS]), *more]


def _rounded(prefix: str, values: npt.NDArray[np.float64], *, digits: int) -> Figures:
    return {
        f"{prefix}_{name}": round(_quantile(values, quantile), digits) if len(values) else None
        for name, quantile in QUANTILES
    }


def _cells(values: npt.NDArray[np.float64]) -> str:
    if not len(values):
        return f"{'-':>11}" * len(QUANTILES)
    return "".join(f"{_quantile(values, quantile):>11.2f}" for _, quantile in QUANTILES)


def _quantile(values: npt.NDArray[np.float64], percent: int) -> float:
    """The smallest value that so many percent do not exceed."""
    return float(np.percentile(values, percent, method="inverted_cdf"))
