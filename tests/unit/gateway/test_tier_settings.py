"""What the runtime is told of lower tiers: names and sizes, and no secret."""

from gateway.settings import Settings
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
