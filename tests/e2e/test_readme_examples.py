"""The README's first blocks work as pasted, against the server that they assume."""

import json
import re
import subprocess
import sys

import pytest

from tests.conformance.target import Target
from tests.model_file import ROOT, needs_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), needs_model]

README = (ROOT / "README.md").read_text()
ASSUMED = "http://127.0.0.1:8000"


def block(language: str, target: Target, *, index: int = 0) -> str:
    """One of the blocks of that language, its address replaced by the running server's."""
    found: str = re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)[index]
    assert ASSUMED in found
    return found.replace(ASSUMED, target.base_url)


def output_of(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=110)
    return done.stdout


def test_the_curl_block_answers_in_the_shape_that_is_shown(server: Target) -> None:
    answer = json.loads(output_of("sh", "-c", block("sh", server)))
    shown = re.search(r"```json\n(.*?)```", README, flags=re.S)
    assert shown is not None
    assert answer.keys() == json.loads(shown[1]).keys()
    assert answer["choices"][0]["message"]["content"]


def test_the_python_block_streams_and_parses(server: Target) -> None:
    lines = output_of(sys.executable, "-c", block("python", server)).splitlines()
    assert len(lines[0]) > 10
    assert re.fullmatch(r"name='.*' country='.*'", lines[-2])
    assert re.fullmatch(r"cached prompt tokens: \d+", lines[-1])


def test_the_second_python_block_finds_the_system_prompt_unless_it_asks_not_to(
    server: Target,
) -> None:
    lines = output_of(sys.executable, "-c", block("python", server, index=1)).splitlines()
    counts = [
        re.fullmatch(r" *\d+ ms, (\d+) of (\d+) prompt tokens cached", line) for line in lines
    ]
    assert None not in counts
    cached = [int(found[1]) for found in counts if found is not None]
    num_prompt_tokens = int(counts[0][2]) if counts[0] is not None else 0
    assert len(cached) == 3
    assert cached[0] < 30
    assert cached[1] == 0
    assert cached[2] > 0.9 * num_prompt_tokens
