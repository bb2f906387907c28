"""Requests made up from the OpenAPI document, right ones and wrong ones: no fault of the server's,
every error in its shape, answers as documented, and the server as good as before.
"""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.target import Target
from tests.e2e.conftest import EXACT
from tests.e2e.fuzzing import Fuzzing, fuzz
from tests.e2e.scrape import until_running
from tests.e2e.server_process import greedy_text, serving

# That of the tiny model.
VOCAB_SIZE = 512
# Its environment may have to be made first.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

SHORT = Fuzzing(phases=("coverage", "fuzzing"), max_examples=25, max_time_s=90, seed=1)
LONG = Fuzzing(phases=("coverage", "fuzzing", "stateful"), max_examples=1000, max_time_s=600)


@pytest.fixture
def target(tiny_model: Path) -> Iterator[Target]:
    """A server of its own, so that what is left of it is the fuzzer's doing."""
    with serving(*EXACT, model=str(tiny_model)) as (_, target):
        yield target


async def state(target: Target) -> tuple[object, str]:
    """Which run of the engine it is, and what it says; nothing else is running then."""
    async with target.http() as client:
        assert (await client.get("/ready")).status_code == 200
        await until_running(client, 0, timeout_s=10)
        version = (await client.get("/version")).json()
    return version, await greedy_text(target)


@pytest.mark.parametrize(
    "fuzzing",
    [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.wide)],
)
def test_nothing_that_the_document_allows_or_forbids_harms_the_server(
    target: Target, fuzzing: Fuzzing
) -> None:
    before = asyncio.run(state(target))
    output = fuzz(target, fuzzing, vocab_size=VOCAB_SIZE)
    assert asyncio.run(state(target)) == before
    counted = re.search(r"(\d+) generated, (\d+) passed", output)
    assert counted is not None, output
    assert int(counted[1]) > 1000
