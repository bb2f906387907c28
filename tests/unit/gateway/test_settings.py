"""Settings come from environment and flags, or the start stops with one line."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.settings import Settings, SettingsError, describe_settings


def failure(environ: dict[str, str], overrides: dict[str, object] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ, overrides or {})
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults_serve_the_local_machine_without_keys() -> None:
    settings = Settings.load({}, {})
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.api_keys == ()


def test_environment_is_parsed_to_types() -> None:
    environ = {
        "RADIXGATE_MAX_RUNNING": "8",
        "RADIXGATE_WATERMARK": "0.1",
        "RADIXGATE_STRICT_PARAMS": "true",
        "RADIXGATE_API_KEYS": "one, two,",
        "RADIXGATE_KEEPALIVE": "chunk",
    }
    settings = Settings.load(environ, {})
    assert (settings.max_running, settings.watermark) == (8, 0.1)
    assert settings.strict_params is True
    assert settings.api_keys == ("one", "two")
    assert settings.keepalive == "chunk"


def test_flag_wins_over_environment_and_absent_flag_does_not() -> None:
    environ = {"RADIXGATE_PORT": "1", "RADIXGATE_MAX_QUEUE": "2"}
    settings = Settings.load(environ, {"port": 3, "max_queue": None})
    assert (settings.port, settings.max_queue) == (3, 2)


def test_host_and_port_are_read_without_prefix_and_the_prefix_wins() -> None:
    assert Settings.load({"HOST": "0.0.0.0", "PORT": "9"}, {}).port == 9
    assert Settings.load({"PORT": "9", "RADIXGATE_PORT": "10"}, {}).port == 10


def test_foreign_and_test_variables_are_left_alone() -> None:
    environ = {"PATH": "/bin", "RADIXGATE_TEST_MODEL": "x", "RADIXGATED": "y", "RADIXGATE_KEY": "z"}
    assert Settings.load(environ, {"server_secret": "s" * 16}) == Settings(server_secret="s" * 16)


@pytest.mark.parametrize("key", ["RADIXGATE_MAX_RUNING", "RADIXGATE_", "RADIXGATE_max_running"])
def test_unknown_variable_stops_the_start_and_is_named(key: str) -> None:
    message = failure({key: "5"})
    assert message.startswith(f"{key}='5': unknown setting")
    assert "RADIXGATE_MAX_RUNNING" in message


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("RADIXGATE_MAX_RUNNING", "many", "an integer"),
        ("RADIXGATE_MAX_RUNNING", "0", "an integer"),
        ("RADIXGATE_MAX_MODEL_LEN", "x", "an integer"),
        ("RADIXGATE_WATERMARK", "nan", "a number"),
        ("RADIXGATE_STRICT_PARAMS", "perhaps", "true or false"),
        ("RADIXGATE_KEEPALIVE", "loud", "one of comment, chunk, off"),
        ("RADIXGATE_CORS_ORIGINS", ",", "a comma-separated list"),
        ("PORT", "http", "an integer"),
    ],
)
def test_value_that_does_not_parse_names_key_value_and_type(
    key: str, value: str, expected: str
) -> None:
    message = failure({key: value})
    assert message.startswith(f"{key}={value!r}: expected {expected}")


def test_flag_that_does_not_parse_is_named_as_a_flag() -> None:
    assert failure({}, {"max_running": "x"}).startswith("--max-running='x': expected an integer")


@pytest.mark.parametrize(
    ("key", "value"), [("RADIXGATE_API_KEYS", ","), ("RADIXGATE_SERVER_SECRET", "hunter2")]
)
def test_secrets_are_not_printed(key: str, value: str) -> None:
    assert f"{key}=(hidden)" in failure({key: value})


def test_empty_variable_counts_as_absent() -> None:
    assert Settings.load({"RADIXGATE_API_KEYS": "", "RADIXGATE_MAX_QUEUE": " "}, {}).max_queue > 0


def test_secrets_are_not_in_the_settings_text() -> None:
    settings = Settings(api_keys=("hunter2",), server_secret="hunter2-hunter2-hunter2")
    assert "hunter2" not in repr(settings)


def test_secrets_are_read_from_the_files_that_variables_name(tmp_path: Path) -> None:
    keys, secret = tmp_path / "keys", tmp_path / "secret"
    keys.write_text("first-key\n\n  second-key,third-key\n")
    secret.write_text("0123456789abcdef\n")
    settings = Settings.load(
        {"RADIXGATE_API_KEYS_FILE": str(keys), "RADIXGATE_SERVER_SECRET_FILE": str(secret)}, {}
    )
    assert settings.api_keys == ("first-key", "second-key", "third-key")
    assert settings.server_secret == "0123456789abcdef"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "cannot be read"), ("\n \n", "nothing in"), ("a" * 16 + "\n" + "b" * 16, "one line")],
)
def test_a_secret_file_that_holds_no_secret_stops_the_start(
    tmp_path: Path, content: str | None, expected: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    message = failure({"RADIXGATE_SERVER_SECRET_FILE": str(path)})
    assert message.startswith("RADIXGATE_SERVER_SECRET_FILE=")
    assert expected in message


def test_a_secret_file_of_an_editor_that_marks_texts_and_ends_lines_with_two_characters_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"\xef\xbb\xbffirst\r\nsecond\r\n")
    assert Settings.load({"RADIXGATE_API_KEYS_FILE": str(path)}, {}).api_keys == ("first", "second")


def test_a_file_without_an_end_is_no_secret() -> None:
    assert "larger than any secret" in failure({"RADIXGATE_SERVER_SECRET_FILE": "/dev/zero"})


@pytest.mark.parametrize(
    "address",
    ["tcp://127.0.0.1", "tcp://h:0", "tcp://h:65536", "tcp://h:5x", "tcp://:5700", "tcp://h:57/x"]
    + ["tcp://me:secret@h:5700", "tcp://a b:5700", "http://h:80", "inproc://x", "ipc://"]
    + [f"ipc:///{'a' * 107}", "nonsense"],
)
def test_what_is_no_address_of_a_runtime_stops_the_start(address: str) -> None:
    for variable in ("RADIXGATE_RUNTIME_URL", "RADIXGATE_RUNTIME_LISTEN"):
        message = failure({variable: address})
        assert message.startswith(f"{variable}=")
        assert "tcp://HOST:PORT" in message or "107 bytes" in message


@pytest.mark.parametrize(
    "address", ["tcp://runtime_1:5700", "tcp://[::1]:65535", "ipc://rel", "ipc:///run/a b.sock"]
)
def test_addresses_that_a_runtime_can_have_are_taken(address: str) -> None:
    assert Settings.load({"RADIXGATE_RUNTIME_URL": address}, {}).runtime_url == address


def test_only_who_listens_may_be_at_every_address() -> None:
    everywhere = "tcp://*:5700"
    assert Settings.load({"RADIXGATE_RUNTIME_LISTEN": everywhere}, {}).runtime_listen == everywhere
    assert "one host" in failure({"RADIXGATE_RUNTIME_URL": everywhere})


def test_the_content_of_a_secret_file_is_never_told(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("too-short")
    message = failure({"RADIXGATE_SERVER_SECRET_FILE": str(path)})
    assert "RADIXGATE_SERVER_SECRET_FILE" in message
    assert "too-short" not in message


def test_a_secret_is_given_once_and_only_secrets_have_files(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("from-the-file")
    both = {"RADIXGATE_API_KEYS": "given", "RADIXGATE_API_KEYS_FILE": str(path)}
    assert "one of them" in failure(both)
    assert "unknown setting" in failure({"RADIXGATE_MODEL_FILE": str(path)})
    assert Settings.load({"RADIXGATE_KEY_FILE": str(path)}, {}).key_file == str(path)


def test_each_start_has_another_secret_unless_one_is_set() -> None:
    assert Settings.load({}, {}).server_secret != Settings.load({}, {}).server_secret


def test_settings_are_frozen_and_closed() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 5
    unknown: dict[str, Any] = {"nope": 1}
    with pytest.raises(ValidationError):
        Settings(**unknown)


def test_every_setting_is_described() -> None:
    described = describe_settings()
    assert {info.name for info in described} == set(Settings.model_fields)
    for info in described:
        assert info.description
        assert info.variable == "RADIXGATE_" + info.name.upper()
        is_time = info.name.endswith("_s")
        assert (info.unit == "s") is is_time, info.name


def test_description_has_the_defaults() -> None:
    by_name = {info.name: info for info in describe_settings()}
    assert by_name["port"].default == "8000"
    assert by_name["model"].default == ""
    assert by_name["strict_params"].default == "false"
    assert by_name["server_secret"].default == "random"
    assert by_name["trusted_proxies"].default == "127.0.0.1"
    assert by_name["api_keys"].is_secret
    assert not by_name["port"].is_secret
