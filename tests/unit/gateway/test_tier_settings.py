"""What the runtime is told of lower tiers: names and sizes, and no secret."""

import msgspec
import pytest

from gateway.settings import MAX_TIER_MB, Settings, SettingsError
from gateway.tier_settings import tier_config

URL = "redis://:password@localhost/0"


def settings(**values: object) -> Settings:
    return Settings.model_validate({"server_secret": "s" * 16, **values})


def test_sizes_are_in_bytes_and_the_served_id_is_what_replicas_agree_under() -> None:
    config = tier_config(
        settings(cache_dir="/c", cache_disk_mb=3, cache_host_mb=2, cache_format="int8"),
        model_id="main",
    )
    assert (config.disk_dir, config.disk_bytes, config.host_bytes) == ("/c", 3 << 20, 2 << 20)
    assert (config.format, config.redis_ttl_s, config.model_id) == ("int8", 3600, "main")


def test_neither_the_url_nor_the_secret_is_among_the_options() -> None:
    config = tier_config(settings(cache_redis_url=URL), model_id="main")
    assert "password" not in repr(config)
    assert "s" * 16 not in repr(config)


def test_the_check_tells_secrets_apart_and_nothing_else() -> None:
    checks = [
        tier_config(settings(**values), model_id=model_id).secret_check
        for values, model_id in (
            ({}, "a"),
            ({"cache_disk_mb": 9}, "b"),
            ({"server_secret": "t" * 16}, "a"),
        )
    ]
    assert checks[0] == checks[1] != checks[2]
    assert len(checks[0]) == 64


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cache_disk_mb", MAX_TIER_MB + 1),
        ("cache_host_mb", MAX_TIER_MB + 1),
        ("cache_redis_ttl_s", 10**15),
        ("cache_max_ttl_s", 1e13),
    ],
)
def test_what_a_message_of_the_runtime_could_not_say_stops_the_start(
    name: str, value: float
) -> None:
    with pytest.raises(SettingsError, match=f"RADIXGATE_{name.upper()}"):
        Settings.load({f"RADIXGATE_{name.upper()}": str(value)}, {})


def test_the_largest_tier_has_a_size_that_fits_in_a_message() -> None:
    config = tier_config(settings(cache_disk_mb=MAX_TIER_MB, cache_dir="/c"), model_id="main")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config.disk_bytes)) == MAX_TIER_MB << 20
