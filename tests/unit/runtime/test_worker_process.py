"""The environment of the runtime process."""

import pytest

from runtime.worker_process import CACHE_REDIS_VARIABLE, environment


def test_the_child_has_the_url_that_it_is_given_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CACHE_REDIS_VARIABLE, "redis://of-the-environment/0")
    assert environment("redis://of-a-flag/0")[CACHE_REDIS_VARIABLE] == "redis://of-a-flag/0"
    assert CACHE_REDIS_VARIABLE not in environment()
