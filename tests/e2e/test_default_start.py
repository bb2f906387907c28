"""What a newcomer gets: no flags, the default model, and a request to paste."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.conformance.target import Target
from tests.e2e.server_process import ServerProcess, serving
from tests.model_file import needs_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), needs_model]


@pytest.fixture(scope="module")
def started(model_dir: Path) -> Iterator[tuple[ServerProcess, Target]]:
    with serving(model_dir=str(model_dir)) as server_and_target:
        yield server_and_target


async def test_the_last_line_is_a_request_that_works_as_pasted(
    started: tuple[ServerProcess, Target],
) -> None:
    server, target = started
    command, url, *options = shlex.split(server.stdout[-1])
    given = dict(zip(options[::2], options[1::2], strict=True))
    name, _, value = given["-H"].partition(": ")
    async with httpx2.AsyncClient(timeout=100) as client:
        response = await client.post(url, content=given["-d"].encode(), headers={name: value})
    assert command == "curl"
    assert url == f"{target.base_url}/v1/chat/completions"
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"]


async def test_the_model_has_the_name_that_the_documentation_uses(
    started: tuple[ServerProcess, Target],
) -> None:
    _, target = started
    async with target.http() as client:
        listed = (await client.get("/v1/models")).json()
        version = (await client.get("/version")).json()
    assert [model["id"] for model in listed["data"]] == ["smollm2-135m-instruct"]
    assert version["version"].count(".") == 2


def test_a_start_logs_no_warning_and_no_traceback(started: tuple[ServerProcess, Target]) -> None:
    server, _ = started
    assert any("info runtime.worker serving" in line for line in server.stderr)
    for sign in ("Traceback", "warning", "Warning", " error "):
        assert not any(sign in line for line in server.stderr), server.output()
