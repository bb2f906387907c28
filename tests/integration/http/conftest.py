"""The conformance checks' target here: the gateway over a scripted engine, on a real socket."""

from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from gateway.redis_link import RedisLink
from runtime.messages import Submit
from tests.conformance.target import Target
from tests.gateway_harness import MODEL, listening_in_thread, make_gateway

FLAG = b'{"color":"red","size":"small"}'


def answer(submit: Submit, choice: int) -> Sequence[int]:
    """JSON or a choice where asked for, else a text that differs between choices and prompts."""
    if submit.constraint is not None:
        is_choice = submit.constraint.grammar.startswith("[")
        return list(b"first" if is_choice else FLAG)
    return list(f"Hello {choice} {sum(submit.prompt_token_ids)}, caf\u00e9!".encode())


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with listening_in_thread(make_gateway(answer)) as base_url:
        yield Target(base_url, MODEL)


@pytest.fixture
def patient_with_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine shall not look like a Redis that is down."""
    monkeypatch.setattr("gateway.app.RedisLink", partial(RedisLink, timeout_s=5))
    monkeypatch.setattr("gateway.response_store.REDIS_TIMEOUT_S", 5.0)
