"""A model that calls tools, in the loops of two agent libraries: it chooses one of two tools, reads
the result and answers. Run by `make test-models`, which fetches the model."""

import json
from collections.abc import Iterator

import pytest

from tests.conformance.target import Target
from tests.e2e.clients.client import CLIENTS, Client
from tests.e2e.clients.run import run_script
from tests.e2e.server_process import serving
from tests.fetch_models import QWEN2_CODER

# An environment may have to be made first.
pytestmark = [pytest.mark.models, pytest.mark.timeout(900)]

AGENTS = [client for client in CLIENTS if client.name in ("openai_agents", "pydantic_ai")]


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    assert QWEN2_CODER.path.is_file(), "`make test-models` fetches the model"
    with serving("--model", str(QWEN2_CODER.path)) as (_, target):
        yield target


@pytest.mark.parametrize("client", AGENTS, ids=lambda client: client.name)
def test_the_model_calls_the_right_tool_and_answers_with_its_result(
    client: Client, target: Target
) -> None:
    said = run_script(client, "weather_loop.py", target)
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["api"] for line in lines] == ["responses", "chat"]
    for line in lines:
        assert line["calls"] == [["get_weather", "Tokyo"]]
        assert "18" in line["answer"]
        assert "rain" in line["answer"]
