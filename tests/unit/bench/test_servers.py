"""What the table says of a server: enough to repeat it, nothing of this machine's folders."""

import pytest

from tests.bench.servers import Contender, product


def test_a_command_is_described_without_folders() -> None:
    peer = Contender(
        "peer", "env A=1 /opt/x/bin/python -m server --model /data/model --port {port}"
    )
    assert peer.describe() == "env A=1 python -m server --model model --port '{port}'"


def test_the_product_is_restarted_and_shows_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADIXGATE_DTYPE", "float32")
    monkeypatch.setenv("RADIXGATE_MODEL_DIR", "/home/me/models")
    monkeypatch.setenv("RADIXGATE_SERVER_SECRET", "not to be shown")
    ours = product(RADIXGATE_KV_MEMORY_MB="64")
    assert ours.restarts
    command = "RADIXGATE_DTYPE=float32 RADIXGATE_KV_MEMORY_MB=64 python -m gateway.cli serve"
    assert ours.describe().startswith(command)
    assert "MODEL_DIR" not in ours.describe()
    assert "SECRET" not in ours.describe()


@pytest.mark.parametrize(
    ("target", "is_command"), [("http://h:1/v1", False), ("python -m http://x", True)]
)
def test_a_url_is_no_command(target: str, is_command: bool) -> None:
    assert Contender("peer", target).is_command == is_command
