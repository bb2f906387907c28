"""What tests of the cache's routes share: paths, gateways whose cache says what a test wrote."""

from pathlib import Path
from typing import Any

from tests.fake_token_engine import AnswerScript
from tests.gateway_harness import Gateway, make_gateway
from tests.key_files import SECRET, key_file

EXPLAIN, CACHE = "/v1/cache/explain", "/v1/cache"
# A time at which something happened, and how it is told.
PAST_NS, PAST = 1_700_000_000_250_000_000, "2023-11-14T22:13:20.250Z"
KEYS = {"alice": {"tenant": "a"}, "bob": {"tenant": "b"}, "root": {"tenant": "r", "role": "admin"}}


def gateway_with(answer: AnswerScript, **settings: Any) -> Gateway:
    gateway = make_gateway(**settings)
    gateway.engine.answers = answer
    return gateway


def with_keys(folder: Path, answer: AnswerScript) -> Gateway:
    path = key_file(folder, KEYS)
    return gateway_with(answer, key_file=str(path), server_secret=SECRET.decode())


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
