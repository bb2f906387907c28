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


def first_block(language: str, target: Target) -> str:
    """The first block of that language, its address replaced by the running server's."""
    block = re.search(rf"```{language}\n(.*?)```", README, flags=re.S)
    assert block is not None
    assert ASSUMED in block[1]
    return block[1].replace(ASSUMED, target.base_url)


def output_of(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=110)
    return done.stdout


def test_the_curl_block_answers_in_the_shape_that_is_shown(server: Target) -> None:
    answer = json.loads(output_of("sh", "-c", first_block("sh", server)))
    shown = re.search(r"```json\n(.*?)```", README, flags=re.S)
    assert shown is not None
    assert answer.keys() == json.loads(shown[1]).keys()
    assert answer["choices"][0]["message"]["content"]


def test_the_python_block_streams_and_parses(server: Target) -> None:
    lines = output_of(sys.executable, "-c", first_block("python", server)).splitlines()
    assert len(lines[0]) > 10
    assert re.fullmatch(r"name='.*' country='.*'", lines[-2])
    assert re.fullmatch(r"cached prompt tokens: \d+", lines[-1])
