"""Named workloads, traces and arrivals: sizes, words, times."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from telemetry.arrivals import poisson_times
from telemetry.bench_run import Arrival, LoadLevel
from telemetry.named_workloads import NAMES, SizeError, Sizes, describe_named, make_named
from telemetry.script_source import TraceSource, WorkloadSource
from telemetry.trace_file import read_trace
from telemetry.workload_file import WorkloadFileError
from telemetry.workload_text import shuffled
from telemetry.workloads import Agent, Script, prompt_turn, turns_of

CLOSED = LoadLevel(Arrival.CLOSED, concurrency=2)
SMALL = Sizes(prompt_tokens=6, output_tokens=3)


def scripts(
    name: str, sizes: Sizes = SMALL, *, seed: int | str = 1, count: int = 4
) -> list[Script]:
    source = WorkloadSource(make_named(name, sizes, num_requests=count, num_clients=2))
    return list(source.scripts(seed))


def said(script: Script) -> str:
    return " ".join(str(one["content"]) for turn in script.turns for one in turn.messages)


@pytest.mark.parametrize("name", NAMES)
def test_a_named_workload_has_as_many_requests_and_its_sizes(name: str) -> None:
    workload = make_named(name, SMALL, num_requests=7, num_clients=2)
    num_scripts, turns = turns_of(workload)
    made = list(WorkloadSource(workload).scripts(1))
    assert [len(one.turns) for one in made] == [turns] * num_scripts
    assert num_scripts * turns >= 7
    assert num_scripts >= 2
    assert {turn.fields["max_tokens"] for one in made for turn in one.turns} == {3}
    assert "prompt tokens 6" in describe_named(name, SMALL)


@pytest.mark.parametrize("name", NAMES)
def test_other_seeds_are_other_words_and_the_same_seed_the_same(name: str) -> None:
    assert scripts(name) == scripts(name)
    assert said(scripts(name)[0]) != said(scripts(name, seed="1.2.0")[0])


def test_unique_prompts_share_nothing_and_a_shared_prefix_is_shared_by_all() -> None:
    unique = scripts("unique")
    assert len({tuple(said(one).split()[:2]) for one in unique}) == 4
    sizes = Sizes(prompt_tokens=6, prefix_tokens=20)
    shared = scripts("shared_prefix", sizes)
    assert len({str(one.turns[0].messages[0]) for one in shared}) == 1
    assert len({said(one) for one in shared}) == 4
    two = scripts("shared_prefix", Sizes(prefix_tokens=20, groups=2))
    assert len({str(one.turns[0].messages[0]) for one in two}) == 2


def test_answers_that_fit_schemas_end_by_themselves_and_have_several() -> None:
    made = scripts("json_schema", count=10)
    schemas = [json.dumps(turn.schema) for one in made for turn in one.turns]
    assert len(set(schemas)) == 5
    assert all("ignore_eos" not in turn.fields for one in made for turn in one.turns)
    assert all(one.turns[0].schema is None for one in scripts("unique"))


def test_an_agent_has_a_request_more_than_calls() -> None:
    workload = make_named("agent", Sizes(turns=4), num_requests=8)
    assert isinstance(workload, Agent)
    assert (workload.calls, turns_of(workload)) == (3, (2, 4))


@pytest.mark.parametrize(("name", "sizes"), [("unique", Sizes(turns=2)), ("chat", Sizes(groups=2))])
def test_a_size_that_a_workload_does_not_have_is_refused(name: str, sizes: Sizes) -> None:
    with pytest.raises(SizeError, match=name):
        describe_named(name, sizes)
    with pytest.raises(SizeError):
        make_named(name, sizes, num_requests=1)
    with pytest.raises(SizeError, match="--output-tokens: expected at most 1,000,000"):
        make_named(name, Sizes(output_tokens=1_000_001), num_requests=1)


def test_a_closed_loop_has_no_times_and_an_open_one_those_of_its_conversations() -> None:
    source = WorkloadSource(make_named("multi_turn", Sizes(turns=5), num_requests=10))
    assert source.begin_s(1, CLOSED) is None
    times = source.begin_s(1, LoadLevel(Arrival.POISSON, rate=10.0))
    assert times is not None
    assert list(islice(times, 5)) == list(islice(poisson_times(2.0, 1), 5))


def test_a_poisson_process_has_its_rate_and_its_spread() -> None:
    times = list(islice(poisson_times(50.0, "a"), 4000))
    gaps = [later - one for one, later in zip(times, times[1:], strict=False)]
    assert mean(gaps) == pytest.approx(1 / 50, rel=0.05)
    # Of an exponential distribution the deviation is the mean; of a steady rate it is none.
    assert mean((gap - 1 / 50) ** 2 for gap in gaps) ** 0.5 == pytest.approx(1 / 50, rel=0.1)
    assert times[:5] != list(islice(poisson_times(50.0, "b"), 5))


def written(folder: Path, *lines: object) -> Path:
    path = folder / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_a_trace_is_in_order_and_begins_at_none(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"timestamp": 12.5, "prompt_tokens": 5, "output_tokens": 2},
        {"timestamp": 10, "input_length": 4, "output_length": 0, "chat_id": 9},
    )
    first, second = read_trace(path)
    assert (first.at_s, first.prompt_tokens, first.output_tokens) == (0.0, 4, 1)
    assert (second.at_s, second.prompt_tokens) == (2.5, 5)
    source = TraceSource((first, second))
    assert list(source.begin_s(1, LoadLevel(Arrival.TRACE, speed=5.0)) or ()) == [0.0, 0.5]
    assert [len(said(one).split()) for one in source.scripts(1)] == [4, 5]
    assert not source.says_the_same
    assert source.num_requests == 2


def test_requests_with_the_same_blocks_have_the_same_beginning(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"timestamp": 0, "input_length": 25, "output_length": 1, "hash_ids": [1, 2, 3]},
        {"timestamp": 1, "input_length": 22, "output_length": 1, "hash_ids": [1, 2, 4]},
        {"timestamp": 2, "input_length": 10, "output_length": 1, "hash_ids": [9]},
    )
    one, two, three = (
        said(script).split() for script in TraceSource(read_trace(path, block_tokens=10)).scripts(1)
    )
    assert (len(one), len(two), len(three)) == (25, 22, 10)
    assert one[:20] == two[:20]
    assert one[20:22] != two[20:22]
    assert one[:2] != three[:2]


BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def test_a_trace_may_have_bodies(tmp_path: Path) -> None:
    source = TraceSource(read_trace(written(tmp_path, {"timestamp": 0, "body": BODY})))
    assert [said(one) for one in source.scripts(1)] == ["hi"]
    assert source.says_the_same


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"input_length": 1, "output_length": 1}, "timestamp: expected a number"),
        ({"timestamp": True}, "timestamp"),
        ({"timestamp": 1e300}, "timestamp"),
        ({"timestamp": 1}, "input_length or prompt_tokens"),
        ({"timestamp": 1, "input_length": -1}, "input_length"),
        ({"timestamp": 1, "input_length": 10**9}, "input_length"),
        ({"timestamp": 1, "input_length": 1}, "output_length"),
        ({"timestamp": 1, "body": {}}, "body: messages"),
        (
            {"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": [1, 2]},
            "hash_ids: 2 blocks",
        ),
        ({"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": "1"}, "hash_ids"),
        ([1], "expected an object"),
    ],
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: object, reason: str) -> None:
    path = written(tmp_path, {"timestamp": 0, "body": BODY}, line)
    with pytest.raises(WorkloadFileError, match="line 2") as error:
        read_trace(path)
    assert reason in str(error.value)


@pytest.mark.parametrize("content", ["", "\n\n", "{", "[" * 100_000])
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    with pytest.raises(WorkloadFileError):
        read_trace(path)


def test_a_load_of_more_requests_than_anyone_sends_begins_at_once() -> None:
    """The first words are those of a load with fewer."""
    few = make_named("unique", SMALL, num_requests=100_000)
    many = make_named("unique", SMALL, num_requests=999_999_999)
    endless = make_named("unique", SMALL, num_requests=None)
    firsts = [said(next(WorkloadSource(one).first_scripts(1))) for one in (few, many, endless)]
    assert len(set(firsts)) == 1
    assert turns_of(endless) == (1_000_000_000, 1)
    groups = Sizes(prefix_tokens=1_000_000, prompt_tokens=1, groups=1_000_000)
    large = make_named("shared_prefix", groups, num_requests=1)
    assert len(said(next(WorkloadSource(large).first_scripts(1)))) > 1_000_000


def test_every_number_of_a_shuffled_million_comes_once() -> None:
    order = list(shuffled(250_000, "a"))
    assert sorted(order) == list(range(250_000))
    assert order[:100_000] == list(shuffled(100_000, "a"))
    assert order[100_000:200_000] != [one + 100_000 for one in order[:100_000]]


def test_of_long_scripts_few_are_made_before_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(*_: object, **__: object) -> Iterator[Script]:
        for index in range(100):
            made.append(index)
            yield Script((prompt_turn("word " * 200_000, 1),))

    monkeypatch.setattr("telemetry.script_source.iter_scripts", counted)
    source = WorkloadSource(make_named("unique", SMALL, num_requests=100))
    found = source.scripts(1)
    assert len(made) == 16
    assert len(list(found)) == 100
