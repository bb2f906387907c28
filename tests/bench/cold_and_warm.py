"""Time to first token of a 1,400-token prompt, cold and warm: `make bench`.

Starts a server of its own on a free port, sends pairs of the same fresh prompt (the first is
cold, the second finds its prefix), and prints medians beside hardware and commit.
"""

import argparse
import os
import platform
import random
import statistics
import subprocess
import time
from pathlib import Path

import openai

from tests.e2e.server_process import serving
from tests.model_file import ROOT

# One token each in the default model, so that with the template a prompt has about 1,400.
WORDS = "river stone market winter letter garden engine signal road answer".split()
PROMPT_WORDS = 1370


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with serving() as (_, target):
        client = openai.OpenAI(base_url=f"{target.base_url}/v1", api_key="none", max_retries=0)
        num_tokens = count_tokens(client, target.model, fresh_prompt(random.Random(0)))
        runs = [measure_pair(client, target.model, random.Random(1 + n)) for n in range(pairs)]
    cold, warm = (statistics.median(times) for times in zip(*runs, strict=True))
    print(f"{os.cpu_count()} cores, {cpu_name()}; commit {commit()}; {target.model}")
    print(f"TTFT of a prompt of {num_tokens} tokens, median of {pairs} pairs")
    print(f"cold {cold:.0f} ms   warm {warm:.0f} ms   cold / warm {cold / warm:.1f}")


def measure_pair(client: openai.OpenAI, model: str, rng: random.Random) -> tuple[float, float]:
    """Milliseconds of the first and of the second request with one prompt."""
    prompt = fresh_prompt(rng)
    cold = time_to_first_token(client, model, prompt)
    return cold, time_to_first_token(client, model, prompt)


def fresh_prompt(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(PROMPT_WORDS))


def count_tokens(client: openai.OpenAI, model: str, prompt: str) -> int:
    """The prompt's length as the server counts it; also the warm-up."""
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": prompt}], max_tokens=1
    )
    assert answer.usage is not None
    return answer.usage.prompt_tokens


def time_to_first_token(client: openai.OpenAI, model: str, prompt: str) -> float:
    """From just before the request to the first text, in ms; the stream is read to its end."""
    start = time.perf_counter()
    first: float | None = None
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": prompt}],
        stream=True,
        temperature=0,
        max_tokens=4,
        extra_body={"ignore_eos": True},
    )
    for chunk in stream:
        if first is None and chunk.choices[0].delta.content:
            first = time.perf_counter()
    assert first is not None, "an answer without text"
    return (first - start) * 1e3


def cpu_name() -> str:
    """What Linux calls the processor; elsewhere what Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "")


def commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
