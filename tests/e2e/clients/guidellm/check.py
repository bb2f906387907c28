"""guidellm: load by several streams at once, over each endpoint that it knows, and its report.

Its prompts come from a file, so that it needs no tokenizer: token counts are the server's usage.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from features import API_KEY, BASE_URL, MODEL, Checks, equal

checks = Checks("guidellm")

GUIDELLM = Path(sys.executable).with_name("guidellm")
FOLDER = Path(os.environ["HOME"]) / "guidellm"
NUM_REQUESTS = 6
NUM_STREAMS = 3
MAX_TOKENS = 8
TIMEOUT_S = 90
# Each worker imports what the command has imported, which takes longer than the requests.
ONE_WORKER = {"GUIDELLM__MAX_WORKER_PROCESSES": "1", "GUIDELLM__MP_CONTEXT_TYPE": "forkserver"}


def benchmark(request_format: str, *, model: str = MODEL, **options: object) -> dict[str, Any]:
    """The report of one run."""
    backend = {
        "kind": "openai_http",
        "target": BASE_URL.removesuffix("/v1"),
        "model": model,
        "api_key": API_KEY,
        "request_format": request_format,
        "max_tokens": MAX_TOKENS,
        **options,
    }
    report = FOLDER / "report.json"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [
            *(GUIDELLM, "run", "--backend", json.dumps(backend)),
            *("--profile", f"kind=concurrent,streams={NUM_STREAMS}"),
            *("--constraint", f"kind=max_requests,count={NUM_REQUESTS}"),
            *("--data", f"kind=json_file,path={prompts()}"),
            *("--output", f"kind=json,path={report}", "--disable-console"),
        ],
        env={**os.environ, **ONE_WORKER},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    equal((done.returncode, done.stderr[-500:] if done.returncode else ""), (0, ""))
    (found,) = json.loads(report.read_text())["benchmarks"]
    return found


def prompts() -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "prompts.jsonl"
    rows = [
        {"prompt": f"Name {n} fruits.", "output_tokens_count": MAX_TOKENS}
        for n in range(NUM_REQUESTS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def check_report(report: dict[str, Any], *, is_streamed: bool) -> None:
    """All requests came back with the tokens that were asked for, and their times are sane."""
    totals = report["metrics"]["request_totals"]
    equal((totals["successful"], totals["errored"], totals["incomplete"]), (NUM_REQUESTS, 0, 0))
    for request in report["requests"]["successful"]:
        equal(request["output_tokens"], MAX_TOKENS)
        assert request["prompt_tokens"] > 0
        assert request["output"]
        if is_streamed:
            assert 0 < request["time_to_first_token_ms"] < 1000 * request["request_latency"]
            assert request["inter_token_latency_ms"] > 0


@checks.feature("chat")
def chat() -> None:
    check_report(benchmark("/v1/chat/completions", stream=False), is_streamed=False)


@checks.feature("stream")
def stream() -> None:
    check_report(benchmark("/v1/chat/completions"), is_streamed=True)


@checks.feature("completions")
def completions() -> None:
    check_report(benchmark("/v1/completions"), is_streamed=True)


@checks.feature("responses stream")
def responses_stream() -> None:
    check_report(benchmark("/v1/responses"), is_streamed=True)


@checks.feature("errors")
def errors() -> None:
    report = benchmark("/v1/chat/completions", model="nope")
    totals = report["metrics"]["request_totals"]
    # The last of the streams may be ended before it has its answer.
    equal((totals["successful"], totals["errored"] > 0), (0, True))
    assert "404" in report["requests"]["errored"][0]["info"]["error"]


if __name__ == "__main__":
    checks.run()
