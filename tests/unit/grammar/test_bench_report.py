"""The figures of a bench from results that are known."""

import numpy as np

from grammar.bench import CaseResult
from grammar.bench_report import BenchReport
from grammar.spec import Gap

GAP = Gap("/uniqueItems", "uniqueItems", "too many")
RESULTS = [
    CaseResult("a", "enforced", 1.0, engine="llguidance", num_instances=2,
               mask_ns=np.array([1000, 2000, 3000], dtype=np.uint32)),
    CaseResult("b", "checked", 3.0, engine="xgrammar", gaps=(GAP, GAP), num_instances=3,
               false_accepts=(0, 2), untestable=("a lone surrogate",),
               mask_ns=np.array([9000], dtype=np.uint32)),
    CaseResult("c", "refused", 50.0, reason="no", pointer="/not", keyword="not"),
    CaseResult("d", "refused", 2000.0, reason="too complex", is_too_complex=True),
    CaseResult("e", "crashed", reason="killed by signal 9"),
    CaseResult("f", "enforced", 2.0, engine="llguidance", num_instances=1, false_rejects=(0,),
               failures=("the matcher failed",)),
]  # fmt: skip


def test_the_summary_counts_schemas_and_not_instances() -> None:
    summary = BenchReport(RESULTS).summary()
    counts = {name: summary[name] for name in ("schemas", "enforced", "checked", "refused")}
    assert counts == {"schemas": 6, "enforced": 2, "checked": 1, "refused": 2}
    assert (summary["crashed"], summary["false_accept"], summary["false_reject"]) == (1, 1, 1)
    assert (summary["instances"], summary["untestable_instances"]) == (6, 1)
    assert summary["engines"] == {"llguidance": 2, "xgrammar": 1}


def test_compile_times_are_of_what_compiled_and_of_what_took_too_long() -> None:
    summary = BenchReport(RESULTS).summary()
    assert summary["compile_ms_p50"] == 2.0
    assert summary["compile_ms_p99"] == summary["compile_ms_max"] == 2000.0


def test_mask_times_are_of_all_masks_together() -> None:
    summary = BenchReport(RESULTS).summary()
    assert (summary["mask_us_p50"], summary["mask_us_max"], summary["masks"]) == (2.0, 9.0, 4)


def test_the_table_names_what_went_wrong() -> None:
    table = BenchReport(RESULTS).table()
    assert "enforced                             2   33.33%" in table
    for line in (
        "     1  not                   no",
        "     1  -                     too complex",
        "     1  uniqueItems           too many",
        "schemas with an invalid instance accepted:\n  b",
        "schemas with a valid instance rejected:\n  f",
        "crashed: e: killed by signal 9",
        "instances that cannot be tried:\n  1 x a lone surrogate",
        "matchers that gave up:\n  f: the matcher failed",
    ):
        assert line in table


def test_a_run_in_which_nothing_compiled_has_no_times() -> None:
    report = BenchReport(RESULTS[4:5])
    assert report.summary()["compile_ms_p50"] is None
    assert report.summary()["mask_us_p99"] is None
    assert "compile, ms                             -" in report.table()


def test_a_long_list_of_schemas_is_cut() -> None:
    results = [CaseResult(f"case {n}", "enforced", false_accepts=(0,)) for n in range(25)]
    assert "  case 19\n  and 5 more" in BenchReport(results).table()
    assert len(BenchReport(results).summary()["false_accept_ids"]) == 25


def test_the_details_name_each_instance_that_went_wrong() -> None:
    entries = BenchReport(RESULTS).details()["results"]
    assert entries[1]["false_accepts"] == (0, 2)
    assert entries[2]["pointer"] == "/not"
    assert entries[0]["mask_us_max"] == 3.0
