"""The file of a bench run: what it holds beside the run, and what is refused when it is read."""

import json
from dataclasses import replace
from typing import Any

import pytest

from telemetry.bench_json import BenchFileError, decode_run, encode_run
from tests.bench_run_samples import record, run_of, series, two_servers_at_two_loads


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_run(two_servers_at_two_loads()))
    return found


def test_the_run_comes_back_as_it_was() -> None:
    run = two_servers_at_two_loads()
    assert decode_run(encode_run(run)) == run


def test_form_and_version_are_said() -> None:
    found = document()
    assert (found["form"], found["version"]) == ("radixgate.bench", 1)
    assert list(found) == ["form", "version", "run", "figures", "ratios"]


def test_figures_and_ratios_stand_beside_the_requests() -> None:
    found = document()
    first, second, *_ = found["figures"]
    assert (first["label"], first["level"], first["num_failed"]) == ("ours", "1 client", 0)
    assert first["ttft"]["p50"] == 0.1
    assert first["output_tok_s"] == 15 / 2.0
    assert second["errors"] == {"status": 1}
    ratio = found["ratios"][0]
    assert (ratio["label"], ratio["to"]) == ("theirs", "ours")
    assert ratio["ttft_p50"]["value"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2"),
        ({"form": "other"}, "found 'other'"),
        ({"run": {}}, "missing required field `started_at`"),
        ({"run": None}, "Expected `object`"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_place(
    change: dict[str, Any], said: str
) -> None:
    with pytest.raises(BenchFileError, match=said.replace("(", "\\(")):
        decode_run(json.dumps(document() | change).encode())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"form": 1}'])
def test_what_is_no_file_of_ours_is_refused(content: bytes) -> None:
    with pytest.raises(BenchFileError, match="not what `radixgate bench --json-out` writes"):
        decode_run(content)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ttft_s", -1.0),
        ("tpot_s", 1e300),
        ("itl_s", [1e300]),
        ("end_s", -1e12),
        ("output_tokens", 1 << 60),
        ("cached_tokens", -1),
    ],
)
def test_numbers_that_nothing_can_be_computed_from_are_refused(field: str, value: object) -> None:
    found = document()
    found["run"]["series"][0]["rounds"][0]["records"][0][field] = value
    with pytest.raises(BenchFileError, match="a number that no run has"):
        decode_run(json.dumps(found).encode())


@pytest.mark.parametrize(("name", "value"), [("wall_s", -1.0), ("client_cpu_s", 1e300)])
def test_impossible_times_of_a_round_are_refused(name: str, value: float) -> None:
    found = document()
    found["run"]["series"][0]["rounds"][0][name] = value
    with pytest.raises(BenchFileError, match="wall_s or client_cpu_s"):
        decode_run(json.dumps(found).encode())


def test_a_price_below_zero_is_refused() -> None:
    run = replace(run_of(series(record())), price_per_hour=-1.0)
    with pytest.raises(BenchFileError, match="price_per_hour"):
        decode_run(encode_run(run))


def test_text_that_is_no_utf_8_does_not_lose_the_run() -> None:
    run = replace(run_of(series(record())), command="bench --model \udcff")
    assert decode_run(encode_run(run)) == replace(run, command="bench --model ?")
    said = run_of(series(replace(record(), finish_reason="\udfff")))
    assert decode_run(encode_run(said)) == run_of(series(replace(record(), finish_reason="?")))
