"""The flags of `make bench`."""

import pytest

from tests.bench.command_line import parse
from tests.bench.workloads import WORKLOADS


def test_without_flags_the_product_runs_all_workloads_alone() -> None:
    request = parse([])
    assert [contender.name for contender in request.contenders] == ["radixgate"]
    assert request.plan.workloads == WORKLOADS
    assert request.plan.clients == (1, 16)


@pytest.mark.parametrize("flag", ["--against", "--against-command"])
def test_a_peer_comes_first_and_keeps_its_name_and_model(flag: str) -> None:
    target = "http://h:1/v1"
    request = parse([flag, target, "--against-name", "vllm", "--against-model", "m"])
    peer, ours = request.contenders
    assert (peer.name, peer.target, peer.model) == ("vllm", target, "m")
    assert ours.name == "radixgate"


def test_two_peers_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--against", "http://h:1/v1", "--against-command", "x"])
    assert "not allowed with" in capsys.readouterr().err


def test_the_shown_command_leaves_out_the_peers_folders() -> None:
    spaced = parse(["--out", "/home/me/a.json", "--against-command", "/home/me/serve"])
    joined = parse(["--against-command=/home/me/serve", "--quick"])
    assert "home" not in spaced.command + joined.command
    assert "--out a.json --against-command ..." in spaced.command
    assert "--quick" in joined.command


def test_sixteen_clients_send_thirty_two_requests_and_one_sends_eight() -> None:
    plan = parse([]).plan
    assert [plan.num_requests(count) for count in (1, 16)] == [8, 32]
